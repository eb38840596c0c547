"""Sends commands to Redis or a cluster's nodes, many in one round trip; checks the reply types."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import HiredisRespSerializer, PythonRespSerializer
from redis.exceptions import ClusterError, RedisClusterException

from aggregator.errors import StateUnreadable
from aggregator.storage.parsing import Command, Read
from estimators.interruption import interruptible

T = TypeVar("T")
Parsed = TypeVar("Parsed")
LARGE_BYTES = 1_000_000
COPIED_BYTES = 6_000
"""Shorter words are copied into the text of their command."""
LAYOUT_LOST = (RedisClusterException, LookupError)
"""Errors, besides Redis errors, that the client raises if it cannot find the nodes of a cluster."""


class ClusterClient(RedisCluster):
    """A Redis Cluster client whose failures are all instances of :class:`redis.RedisError`."""

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command on the node that has its key."""
        try:
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call]
        except (*LAYOUT_LOST, AttributeError) as error:
            raise ClusterError(f"a Redis Cluster node is unreachable: {error}") from error

    def node_of(self, key: Any) -> redis.Redis:
        """Return a client of the node that has a key.

        Raises ClusterError if the client knows no node that has the key.
        """
        try:
            return self.get_redis_connection(self.get_node_from_key(key))  # type: ignore[no-untyped-call]
        except (*LAYOUT_LOST, AttributeError) as error:
            raise ClusterError(f"a Redis Cluster node is unreachable: {error}") from error

    def get_node(self, host: Any = None, port: Any = None, node_name: Any = None) -> Any:
        """Return a node; create it if it is new, as an ASK redirection may name a new node."""
        node = super().get_node(host, port, node_name)  # type: ignore[no-untyped-call]
        if node is None and node_name:
            host, _, port = str(node_name).rpartition(":")
            node = ClusterNode(host, int(port), "primary")  # type: ignore[no-untyped-call]
        return node


class Packer:
    """Encodes commands for Redis by hiredis, but does not copy large values.

    For a commit with large panes, hiredis takes four times the commit's memory.
    """

    def __init__(self) -> None:
        encode = redis.Redis(driver_info=None).get_encoder().encode
        self._uncopied = PythonRespSerializer(COPIED_BYTES, encode)
        self._fast = HiredisRespSerializer()

    def pack(self, *words: Any) -> list[Any]:
        """Return the pieces of a command, to be sent one after the other."""
        is_large = memoryview in map(type, words) and any(
            isinstance(word, memoryview) and len(word) > LARGE_BYTES for word in words
        )
        packed: list[Any] = (self._uncopied if is_large else self._fast).pack(*words)
        return packed


class Commands:
    """Sends commands to Redis and returns the replies."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Return the replies to commands, which take one round trip to each node.

        Raise StateUnreadable if the key of a command has another type than the command needs.
        """
        return [readable(reply) for reply in self.replies(commands)]

    def replies(self, commands: Sequence[Command]) -> list[Any]:
        """Return the replies to commands, with a StateUnreadable in place of a WRONGTYPE error."""
        if not commands:
            return []
        if (shared := _SHARED_ROUND_TRIPS.get()) is not None and shared[0].owner is self:
            return shared[0].replies(shared[1], commands)
        return [*map(_reply_or_error, commands, run(self.client, commands))]

    def together(self, *reads: Callable[[], Any]) -> list[Any]:
        """Return the values of reads, which run in a thread each, and share their round trips."""
        futures, shared = list[Future[Any]](), SharedRoundTrips(self, len(reads))
        with ThreadPoolExecutor(len(reads)) as threads:
            try:
                for number, read in enumerate(reads):
                    context = contextvars.copy_context()
                    context.run(_SHARED_ROUND_TRIPS.set, (shared, number))
                    futures.append(threads.submit(context.run, _read_unchecked, read))
                    futures[-1].add_done_callback(shared.end)
            finally:
                for _ in range(len(reads) - len(futures)):  # no thread could be started
                    shared.end()
        return [future.result() for future in futures]

    def read(self, reads: Sequence[Read]) -> list[Any]:
        """Return the parsed replies, with a StateUnreadable in place of an unreadable one."""
        values: list[Any] = []
        replies = self.replies([command for command, _ in reads])
        for (_, parse), reply in zip(reads, replies, strict=True):
            try:
                values.append(reply if isinstance(reply, StateUnreadable) else parse(reply))
            except StateUnreadable as error:
                values.append(error)
        return values

    @contextlib.contextmanager
    def stream(self, groups: Sequence[Sequence[Command]]) -> Iterator[Iterator[Any]]:
        """Return a context with the replies to commands about one partition.

        Each group takes a round trip, and only its replies are in memory. A failed command is not
        repeated: a lost connection or a moved slot of a Redis Cluster raises a redis.RedisError.
        """
        client: Any = self.client
        if isinstance(client, ClusterClient):
            client = client.node_of(groups[0][0][1])
        connection = client.connection_pool.get_connection()

        def replies() -> Iterator[Any]:
            for group in groups:
                connection.send_packed_command(connection.pack_commands(group))
                for command in group:
                    try:
                        reply = connection.read_response()
                    except redis.ResponseError as error:
                        reply = error
                    yield _reply_or_error(command, reply)

        unread = replies()
        is_read = False
        try:
            yield unread
            is_read = next(unread, unread) is unread
        finally:
            if not is_read:
                connection.disconnect()  # else the next command would get the replies to these
            client.connection_pool.release(connection)

    def members(self, key: str) -> set[bytes]:
        """Return the members of a set."""
        (members,) = self.ask([("SMEMBERS", key)])
        return set(members)

    def hash(self, key: str, parse: Callable[[str, dict[bytes, bytes]], Parsed]) -> Parsed:
        """Return the fields of a hash, parsed by a function of `aggregator.storage.parsing`."""
        (fields,) = self.ask([("HGETALL", key)])
        return parse(key, dict(fields))


class SharedRoundTrips:
    """Sends the commands of reads in threads, once each of these has sent commands or ended.

    `owner`: asks Redis; `running`: the number of reads.
    """

    def __init__(self, owner: Commands, running: int) -> None:
        self.owner, self._running, self._lock = owner, running, threading.Lock()
        self._context = contextvars.copy_context()
        self._waiting: dict[int, tuple[Sequence[Command], Future[list[Any]]]] = {}

    def replies(self, number: int, commands: Sequence[Command]) -> list[Any]:
        """Return the replies to commands of the read with this number."""
        future = Future[list[Any]]()
        with self._lock:
            self._waiting[number] = commands, future
        self._send()
        return future.result()

    def end(self, _: object = None) -> None:
        """Note that a read has ended."""
        with self._lock:
            self._running -= 1
        self._send()

    def _send(self) -> None:
        """Send all commands that wait, unless a read that still runs has sent none."""
        with self._lock:
            if not self._waiting or len(self._waiting) < self._running:
                return
            waiting = [request for _, request in sorted(self._waiting.items())]
            self._waiting.clear()
        try:
            replies = ask_each(
                lambda commands: self._context.run(self.owner.replies, commands),
                [commands for commands, _ in waiting],
            )
        except BaseException as error:  # each read raises it
            for _, future in waiting:
                future.set_exception(error)
        else:
            for (_, future), part in zip(waiting, replies, strict=True):
                future.set_result(part)


def _read_unchecked(read: Callable[[], T]) -> T:
    """Run a read without checks whether its caller waits: they may need the caller's thread."""
    with interruptible(lambda: None):
        return read()


_SHARED_ROUND_TRIPS = contextvars.ContextVar[tuple[SharedRoundTrips, int] | None](
    "shared round trips", default=None
)


def ask_each(
    ask: Callable[[Sequence[T]], list[Any]], parts: Sequence[Sequence[T]]
) -> list[list[Any]]:
    """Run all lists of commands in one round trip, by `ask`; return the replies to each list."""
    replies = iter(ask([command for part in parts for command in part]))
    return [list(itertools.islice(replies, len(part))) for part in parts]


def readable(reply: Any) -> Any:
    """Return a reply of :meth:`Commands.replies`; raise it if it is an error."""
    if isinstance(reply, StateUnreadable):
        raise reply
    return reply


def _reply_or_error(command: Command, reply: Any) -> Any:
    """Return a reply, or a StateUnreadable for a key of a wrong type; raise any other error."""
    if isinstance(reply, redis.ResponseError) and "WRONGTYPE" in str(reply):
        key, name = str(command[1]), str(command[0])
        return StateUnreadable(key, "another type", f"a type that {name} accepts")
    if isinstance(reply, Exception):
        raise reply
    return reply


def script(name: str) -> str:
    """Return the source of a Lua script."""
    return Path(__file__).with_name("lua").joinpath(f"{name}.lua").read_text()


def run(client: redis.Redis, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Run commands in one round trip to each node of a Redis Cluster; a command may run twice.

    Returns the replies in the order of the commands. If Redis refuses a command, its reply is the
    error.
    """
    if len(commands) == 1:
        return [_run_single(client, commands[0])]
    with client.pipeline(transaction=False) as pipeline:
        run_later: Any = pipeline.execute_command
        for command in commands:
            run_later(*command)
        try:
            return list(pipeline.execute(raise_on_error=False))
        except (*LAYOUT_LOST, AttributeError):
            if not isinstance(client, ClusterClient):
                raise
    return [_run_single(client, command) for command in commands]  # nodes joined, or left


def _run_single(client: Any, command: Sequence[Any]) -> Any:
    try:
        return client.execute_command(*command)
    except redis.ResponseError as error:
        return error
