"""A model of a Redis server that fails, and of a client that talks to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import redis
from redis._parsers import Encoder

from tests.models.simulation.database import Database, Keys
from tests.models.simulation.world import Process, World

SNAPSHOTS = 6
"""How many older states a failover may fall back to."""
RETRY_SECONDS = 2.0
TAKE_ARGUMENTS = 3
"""Of taking a partition over: the worker, its token and its group."""
LEAST_ARGUMENTS = 4
"""Of a commit: the epoch, the offset it was built on, its own, and the token."""


class Observer(Protocol):
    """Who is told what happens to the keys."""

    def acquired(self, worker: str, tag: bytes, epoch: int) -> None:
        """A worker learnt that it owns a partition."""

    def committed(
        self, worker: str, tag: bytes, words: tuple[bytes, ...], before: Keys, reply: Any
    ) -> None:
        """A commit ran; `before` is what the owner's hash was."""

    def torn(self, tag: bytes) -> None:
        """A commit failed half-way."""


def _script_call(words: tuple[bytes, ...]) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the partition's tag and the arguments of a call of a script; else nothing."""
    if words[0] != b"EVALSHA":
        return b"", ()
    return words[3].removesuffix(b":owner"), words[3 + int(words[2]) :]


class RedisServer:
    """One Redis, its older states, and what goes wrong with it."""

    def __init__(self, world: World, observer: Observer) -> None:
        self.world, self.observer = world, observer
        self.database = Database()
        self.away = False
        self._synced: Keys = {}
        self._snapshots: list[Keys] = [{}]
        self._writes_left = 0

    # -- What a client asks ---------------------------------------------------------------------

    def ask(self, process: Process, words: tuple[bytes, ...]) -> Any:
        """Answer a command; the worker may die before it, after it, or never hear the answer."""
        world, who = self.world, process.name
        process.pause()
        if self.away:
            process.pause(world.rng.random() * RETRY_SECONDS)
            raise redis.ConnectionError("connection refused")
        if world.strikes("redis call lost", who):
            raise redis.ConnectionError("connection reset before the command")
        if world.strikes("redis call late", who):
            world.later(world.rng.random() * 20, lambda: self._run_late(who, words))
            raise redis.TimeoutError("no answer yet")
        if world.strikes("redis call repeated", who):
            self._run(who, words)
        reply = self._run(who, words)
        process.pause()
        if world.strikes("redis reply lost", who):
            raise redis.ConnectionError("connection reset before the reply")
        tag, arguments = _script_call(words)
        if len(arguments) == TAKE_ARGUMENTS:
            epoch = dict(zip(reply[0][::2], reply[0][1::2], strict=True))[b"epoch"]
            self.observer.acquired(who, tag, int(epoch))
        return reply

    def _run_late(self, who: str, words: tuple[bytes, ...]) -> None:
        if not self.away:
            self.world.note(who, "a late call arrives", words[:3])
            try:
                self._run(who, words)
            except redis.ResponseError as error:
                self.world.note(who, "and fails", error)

    def _run(self, who: str, words: tuple[bytes, ...]) -> Any:
        tag, arguments = _script_call(words)
        if len(arguments) < LEAST_ARGUMENTS:
            return self.database.run(*words)
        owner = tag + b":owner"
        before = dict(self.database.keys.get(owner, {}))
        if self.world.strikes("redis write failed", who):
            self._writes_left = self.world.rng.randrange(1, 11)
            self.database.disturb = self._fail
        try:
            reply = self.database.run(*words)
        finally:
            self.database.disturb = None
            if self.database.keys.get(owner, {}).get(b"next") == b"-2":
                self.observer.torn(tag)
        self.observer.committed(who, tag, arguments[:LEAST_ARGUMENTS], before, reply)
        return reply

    def _fail(self, _: bytes) -> None:
        self._writes_left -= 1
        if self._writes_left == 0:
            raise redis.ResponseError("OOM command not allowed when used memory > 'maxmemory'")

    # -- What happens to it ---------------------------------------------------------------------

    def sync(self) -> None:
        """Write the log of writes to disk; now and then keep a copy of what there is."""
        self._synced = self.database.copy()
        if self.world.rng.random() < 0.3:
            self._snapshots = [*self._snapshots[-SNAPSHOTS:], self.database.copy()]

    def lose_last_second(self) -> None:
        """Come back with what had been written to disk."""
        self.database.restore(self._synced)
        self.sync()

    def fail_over(self) -> None:
        """Come back as an older state."""
        index = self.world.rng.randrange(len(self._snapshots))
        self.database.restore(self._snapshots[index])
        self._snapshots = self._snapshots[:index]
        self._snapshots.append(self.database.copy())
        self.sync()

    def flush(self) -> None:
        """Lose everything."""
        self.database.keys = {}
        self.sync()


ENCODED: dict[type, Callable[[Any], bytes]] = {
    bytes: lambda word: word,
    memoryview: bytes,
    str: str.encode,
    int: lambda word: b"%d" % word,
}
"""What redis-py makes of the words that the store sends."""


class RedisClient(redis.Redis):
    """redis-py's commands and scripts over what answers them instead of a connection."""

    def __init__(self, ask: Callable[[tuple[bytes, ...]], Any]) -> None:
        self._ask = ask
        self._encoder: Any = Encoder("utf-8", "strict", False)  # type: ignore[no-untyped-call]

    def get_encoder(self) -> Any:
        return self._encoder

    def execute_command(self, *args: Any, **_: Any) -> Any:
        words = tuple([ENCODED[type(word)](word) for word in args])
        if words[0] == b"INFO":  # a server that evicts nothing, and no fault strikes
            return {}
        reply = self._ask(words)
        if words[0] == b"HGETALL":
            return dict(zip(reply[::2], reply[1::2], strict=True))
        if words[0] == b"HSCAN":
            return int(reply[0]), dict(zip(reply[1][::2], reply[1][1::2], strict=True))
        return reply.decode() if words[0] == b"SCRIPT LOAD" else reply

    def pipeline(self, *_: Any, **__: Any) -> Any:
        return RedisPipeline(self)

    def close(self) -> None:
        """Nothing is open."""


class RedisPipeline:
    """Commands that are sent together; faults strike between them."""

    def __init__(self, client: RedisClient) -> None:
        self._client, self._waiting = client, list[tuple[Any, ...]]()

    def __enter__(self) -> RedisPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def execute_command(self, *args: Any) -> None:
        self._waiting.append(args)

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        assert not raise_on_error
        return [self._client.execute_command(*words) for words in self._waiting]
