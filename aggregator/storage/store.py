"""Redis as the store of the sums: taking a partition over, and the one commit."""

from __future__ import annotations

import contextlib
import importlib.resources
import os
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import redis

from aggregator.errors import CommitTooLarge, Fenced, OtherGroup, PartialCommit, StateUnreadable
from aggregator.state.pane_cover import Span
from aggregator.state.pane_keys import PaneKey
from aggregator.state.partition import Partition, Watermark
from aggregator.storage import consistent_read, parsing
from aggregator.storage.commit_writes import MOST_ARGUMENTS, keys_of, writes
from aggregator.storage.connection import connect, run
from aggregator.storage.parsing import TORN, UNSET, PartitionProgress, Snapshot, TopicProgress
from aggregator.storage.redis_keys import (
    CHANGED,
    changed_field,
    coordinator_key,
    deaths_key,
    definitions_key,
    expired_key,
    partitions_key,
    policies_key,
    publisher_key,
    rounds_key,
    stuck_key,
    tag,
)
from estimators.weights import DEFAULT_POLICY

__all__ = [
    "TORN",
    "UNSET",
    "PartitionProgress",
    "Snapshot",
    "Store",
    "TopicProgress",
    "connect",
    "script",
]

STUCK_MS = 60_000
"""A worker that was said to be stuck so long ago has ended."""
LOOKS = 3
"""How often a partition is read again whose panes came while it was read."""
TYPES = {b"owner": b"hash", b"watermarks": b"hash", b"counts": b"hash", b"open": b"set"}
"""What is at the keys of a partition without which nothing of it can be read."""

TOKEN_BYTES = 8

Command = tuple[str | int, ...]


class Store:
    """The sums of one topic in Redis; as a context manager, it closes its connections.

    Parameters
    ----------
    client : redis.Redis
    topic : str
        The reports topic whose partitions are counted.
    """

    def __init__(self, client: redis.Redis, topic: str) -> None:
        self.client, self.topic = client, topic
        self._tokens: dict[int, tuple[int, str]] = {}  # by partition: epoch, token
        self._snapshot = client.register_script(script("snapshot"))
        self._commit = client.register_script(script("commit"))

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client's connections."""
        self.client.close()

    def acquire(self, partition: int, worker: str, group: str = "") -> Snapshot:
        """Become a partition's owner: whoever owned it is fenced from now on.

        Parameters
        ----------
        group : str
            The worker's consumer group; empty: whichever it is.

        Raises
        ------
        OtherGroup
            If another consumer group counts it here. Nothing was changed.
        StateUnreadable
            If what is stored of the partition cannot be counted on from.
        """
        self._enlist(partition)
        token = os.urandom(TOKEN_BYTES).hex()
        snapshot = self._take(partition, worker, token, group)
        other = snapshot.owner.get("group", "")
        if group and other != group:
            raise OtherGroup(tag(self.topic, partition), group, other, snapshot.owner["worker"])
        self._tokens[partition] = int(snapshot.owner["epoch"]), token
        return snapshot

    def snapshot(self, partition: int) -> Snapshot:
        """Look at a partition's open state without touching its ownership."""
        prefix = tag(self.topic, partition)
        hashes: list[Command] = [
            ("HGETALL", f"{prefix}:{name}") for name in ("owner", "watermarks", "counts")
        ]

        def reads(opened: Collection[bytes]) -> list[Command]:
            commands = list(hashes)
            for member in sorted(opened):
                key, _ = parsing.opened(f"{prefix}:open", member)
                commands += [("GET", f"{prefix}:{key}"), ("GET", f"{prefix}:seen:{key}")]
                commands += [("HGETALL", f"{prefix}:keys:{key}")]
            return commands

        (found,) = consistent_read.read(self.ask, [consistent_read.Plan(prefix, reads)])
        values = iter(found.replies[len(hashes) :])
        panes = [[member, *(next(values) for _ in range(3))] for member in sorted(found.opened)]
        snapshot = Snapshot.of(prefix, [*found.replies[: len(hashes)], panes])
        if snapshot.gone and snapshot.next_offset != TORN:
            raise _gone(snapshot)
        return snapshot

    def _enlist(self, partition: int) -> None:
        """Add a partition to those that readers look at."""
        key = partitions_key(self.topic)
        self.ask([("SADD", key, partition)])

    def _take(self, partition: int, worker: str, token: str, group: str) -> Snapshot:
        prefix = tag(self.topic, partition)
        keys = [f"{prefix}:{name.decode()}" for name in TYPES]
        for _ in range(LOOKS):
            try:
                found = self._snapshot(keys, [worker, token, group])
            except redis.ResponseError as error:
                raise self._blamed(prefix, error) from None
            snapshot = Snapshot.of(prefix, found)
            if not snapshot.gone or snapshot.next_offset == TORN:
                return snapshot
            if not self._appeared(prefix, snapshot.gone):
                raise _gone(snapshot)
        raise redis.exceptions.TryAgainError(f"{prefix} changes while it is read")

    def _appeared(self, prefix: str, key: str) -> bool:
        """Return whether a key is there after all: a Redis Cluster was moving it.

        While it still does, Redis refuses to say.
        """
        (there,) = self.ask([("EXISTS", f"{prefix}:open", key)])
        return bool(there == 2)

    def _blamed(self, prefix: str, error: redis.ResponseError) -> Exception:
        """Return what a script that reads a partition has failed at, naming the key."""
        if "not an integer" in str(error):
            return StateUnreadable(f"{prefix}:owner, field epoch", str(error), "a whole number")
        if "WRONGTYPE" not in str(error):
            return error
        types = {f"{prefix}:{name.decode()}": kind for name, kind in TYPES.items()}
        with contextlib.suppress(redis.ResponseError):
            for member in self._members(f"{prefix}:open"):
                name = member.rpartition(b":")[0].decode(errors="replace")
                types |= {f"{prefix}:{name}": b"string", f"{prefix}:seen:{name}": b"string"}
                types[f"{prefix}:keys:{name}"] = b"hash"
        for key, kind in types.items():
            (found,) = self.ask([("TYPE", key)])
            if found not in (kind, b"none"):
                return StateUnreadable(key, f"a {found.decode()}", f"a {kind.decode()}")
        return error

    def halt(self, partition: int, reason: str) -> None:
        """Show why a partition is not counted, if Redis lets us: its owner could not write it."""
        with contextlib.suppress(redis.RedisError):
            self.client.hset(f"{tag(self.topic, partition)}:owner", "halted", reason)

    def commit(
        self,
        number: int,
        epoch: int,
        expected: int,
        partition: Partition,
        facts: Mapping[str, str | int],
    ) -> int | None:
        """Write what changed in a partition and its next offset, together or not at all.

        Parameters
        ----------
        number : int
            The partition's number.
        epoch : int
            From :meth:`acquire`.
        expected : int
            The next offset in the store on which this state was built.
        partition : Partition
            Told that it is saved when it is.
        facts : mapping
            Further fields of the owner's hash, for people and readers.

        Returns
        -------
        int or None
            Bytes of panes and batch ids that were written; None if this very commit was made before
            and its reply was lost, so that nothing, facts included, was written now.

        Raises
        ------
        Fenced
            If the store is not where this state came from. Nothing was written.
        Torn
            If a write failed after others were made.
        CommitTooLarge
            If Redis would not take it in one call. Nothing was written.
        """
        prefix = tag(self.topic, number)
        owner, name = f"{prefix}:owner", f"{self.topic}:{number}"
        taken, token = self._tokens.get(number, (epoch, ""))
        words: list[Any] = [epoch, expected, partition.next_offset]
        words.append(token if taken == epoch else "")
        mark = f"{prefix}:committed"
        words += [5, "SET", mark, 1, "PX", parsing.LAST_COMMIT_MS]
        keys = {owner: None, mark: None}
        for command in writes(prefix, partition, facts):
            words += [len(command), *command]
            keys.update(dict.fromkeys(keys_of(command)))
        if len(keys) + len(words) > MOST_ARGUMENTS:
            raise CommitTooLarge(name, sum(pane.changed for pane in partition.panes.values()))
        self._enlist(number)  # a Redis Cluster may have lost that, and nothing else
        try:
            outcome, stored_epoch, rest = self._commit([*keys], words)
        except redis.ResponseError as error:
            raise self._blamed(prefix, error) from None
        if outcome == b"torn":
            torn = PartialCommit(name, epoch, expected, rest.decode(errors="replace"), prefix)
            self.halt(number, str(torn))
            raise torn
        if outcome == b"fenced":
            now = parsing.integer(f"{owner}, field epoch", stored_epoch, 0)
            following = parsing.integer(f"{owner}, field next", rest, TORN)
            raise Fenced(name, epoch, now, expected, following)
        partition.saved()
        if outcome == b"known":
            return None
        return sum(len(word) for word in words if isinstance(word, bytes | memoryview))

    def partitions(self) -> list[int]:
        """Return the partitions that were ever counted, ascending."""
        key = partitions_key(self.topic)
        return parsing.partitions(key, self._members(key))

    def panes(
        self, partition: int, grain: str, metric: str, start: int | None, end: int | None
    ) -> dict[int, int]:
        """Return the panes of a metric that begin in [start, end), and their first offsets."""
        low = "-inf" if start is None else start
        high = "+inf" if end is None else f"({end}"
        key = self._index(partition, grain, metric)
        (found,) = self.ask([("ZRANGEBYSCORE", key, low, high)])
        return dict(parsing.start(key, member) for member in found)

    def find(self, metric: str, spans: Sequence[tuple[int, Span]]) -> list[tuple[int, PaneKey]]:
        """Return a metric's panes in spans of partitions: in one round trip, in their order.

        Raises
        ------
        StateUnreadable
            If an index is gone of which there were panes.
        """
        commands: list[Command] = []
        for partition, span in spans:
            low = "-inf" if span.start is None else span.start
            high = "+inf" if span.end is None else f"({span.end}"
            key = self._index(partition, span.grain, metric)
            commands += [
                ("SISMEMBER", f"{tag(self.topic, partition)}:indexed", f"{span.grain}:{metric}"),
                ("EXISTS", key),
                ("ZRANGEBYSCORE", key, low, high),
            ]
        replies, found = self.ask(commands), list[tuple[int, PaneKey]]()
        for place, (partition, span) in enumerate(spans):
            key = self._index(partition, span.grain, metric)
            is_indexed, exists, members = replies[3 * place : 3 * place + 3]
            if is_indexed and not exists:
                raise StateUnreadable(key, "nothing", "an index of panes that were counted")
            starts = (parsing.start(key, member)[0] for member in members)
            found += [(partition, PaneKey(span.grain, metric, start)) for start in starts]
        return found

    def extent(self, metric: str, partitions: Sequence[int]) -> tuple[int, int] | None:
        """Return where a metric's first and last pane begin, in ms since the epoch; None: none."""
        keys = [self._index(partition, "pane", metric) for partition in partitions]
        found = self._starts([("ZRANGE", key, end, end) for key in keys for end in (0, -1)])
        starts = [start for starts in found for start in starts]
        return (min(starts), max(starts)) if starts else None

    def latest(self, metric: str, partitions: Sequence[int], last: int | None = None) -> int | None:
        """Return where a metric's newest pane begins, up to `last`; None: there is none."""
        keys = [self._index(partition, "pane", metric) for partition in partitions]
        highest = "+inf" if last is None else last
        newest = (highest, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1)
        found = self._starts([("ZRANGE", key, *newest) for key in keys])
        return max((start for starts in found for start in starts), default=None)

    def first_panes(
        self, metric: str, partitions: Sequence[int], first: int, last: int, limit: int
    ) -> list[int]:
        """Return where a metric's panes begin, in [first, last]: of each partition the first ones.

        At most `limit` of a partition, in ms since the epoch, one partition after the other.
        """
        keys = [self._index(partition, "pane", metric) for partition in partitions]
        some = ("LIMIT", 0, limit)
        found = self._starts([("ZRANGEBYSCORE", key, first, last, *some) for key in keys])
        return [start for starts in found for start in starts]

    def _index(self, partition: int, grain: str, metric: str) -> str:
        return f"{tag(self.topic, partition)}:index:{grain}:{metric}"

    def _starts(self, commands: Sequence[Command]) -> list[list[int]]:
        """Return where the panes begin that commands find in indexes."""
        found = zip(commands, self.ask(commands), strict=True)
        return [[parsing.start(str(c[1]), member)[0] for member in members] for c, members in found]

    def indexed(self, partition: int) -> list[tuple[str, str]]:
        """Return the (grain, metric key) pairs of which a partition ever had a pane."""
        key = f"{tag(self.topic, partition)}:indexed"
        return sorted(parsing.indexed(key, member) for member in self._members(key))

    def expires(self, partition: int, metric: str) -> bool:
        """Return whether a partition ever had a pane of a metric that was to expire."""
        (is_one,) = self.ask([("SISMEMBER", f"{tag(self.topic, partition)}:expiring", metric)])
        return bool(is_one)

    def statistics(self, keys: Sequence[tuple[int, PaneKey]]) -> list[bytes | None]:
        """Return the statistics of partitions' panes as bytes, in one round trip.

        None where there is none (any more).
        """
        places: defaultdict[int, list[int]] = defaultdict(list)
        for place, (partition, _) in enumerate(keys):
            places[partition].append(place)
        commands = []
        for partition, mine in places.items():
            prefix = tag(self.topic, partition)
            commands.append(("MGET", *(f"{prefix}:{keys[place][1]}" for place in mine)))
        values: list[bytes | None] = [None] * len(keys)
        for mine, those in zip(places.values(), self.ask(commands), strict=True):
            for place, value in zip(mine, those, strict=True):
                values[place] = value
        return values

    def running(self, partitions: Sequence[int], metric: str) -> list[tuple[str, bytes]]:
        """Return the statistics that make up a metric's running total, with their keys."""
        (found,) = self.totals([(metric, partitions)])
        return found

    def totals(self, wanted: Sequence[tuple[str, Sequence[int]]]) -> list[list[tuple[str, bytes]]]:
        """Return what makes up the running totals of several metrics.

        In a few round trips, and each partition is asked for its open panes once.

        Parameters
        ----------
        wanted : sequence of (str, sequence of int)
            Metric keys, each once, and the partitions of which to add them up.
        """
        asked: defaultdict[int, list[str]] = defaultdict(list)
        for metric, partitions in wanted:
            for number in partitions:
                asked[number].append(metric)
        plans = [self._running(tag(self.topic, n), metrics) for n, metrics in asked.items()]
        found: dict[str, list[tuple[str, bytes]]] = {metric: [] for metric, _ in wanted}
        for plan, piece in zip(plans, consistent_read.read(self.ask, plans), strict=True):
            opened = {one.rpartition(b":")[0].decode(errors="replace") for one in piece.opened}
            for (_, place), value in zip(plan.reads(piece.opened), piece.replies, strict=True):
                key = str(place).removeprefix(f"{plan.prefix}:")
                if value is not None or key in opened:
                    found[PaneKey.parse(key).metric].append((str(place), value or b""))
        return [*found.values()]

    def _running(self, prefix: str, metrics: Sequence[str]) -> consistent_read.Plan:
        """Return what makes up running totals of metrics: closed panes, and open ones."""

        def reads(opened: Collection[bytes]) -> list[Command]:
            panes: dict[bytes, list[bytes]] = {metric.encode(): [] for metric in metrics}
            for member in sorted(opened):
                grain, _, rest = member.partition(b":")
                if grain == b"pane" and (mine := panes.get(rest.partition(b":")[0])) is not None:
                    mine.append(member)
            commands: list[Command] = []
            for metric, members in zip(metrics, panes.values(), strict=True):
                keys = (parsing.opened(f"{prefix}:open", member)[0] for member in members)
                commands.append(("GET", f"{prefix}:total:{metric}:0"))
                commands += [("GET", f"{prefix}:{key}") for key in keys]
            return commands

        return consistent_read.Plan(prefix, reads)

    def overview(self) -> TopicProgress:
        """Return how far everything is counted, in two round trips."""
        numbers, policies = self.partitions(), policies_key(self.topic)
        prefixes = [tag(self.topic, number) for number in numbers]
        names = ("owner", "watermarks", "counts")
        commands: list[Command] = [("HGETALL", f"{p}:{name}") for p in prefixes for name in names]
        marks: list[Command] = [("PTTL", f"{p}:committed") for p in prefixes]
        more: list[Command] = [("HGETALL", policies), ("HGETALL", rounds_key(self.topic))]
        *found, set_ones, opened = self._asked([*commands, *marks, *more])
        left = found[len(commands) :]
        standings, unreadable = {}, {}
        for place, (number, prefix) in enumerate(zip(numbers, prefixes, strict=True)):
            try:
                owner, latest, counts = map(_readable, found[3 * place : 3 * place + 3])
                standings[number] = PartitionProgress(
                    parsing.owner(f"{prefix}:owner", owner),
                    parsing.watermarks(f"{prefix}:watermarks", latest),
                    parsing.counts(f"{prefix}:counts", counts),
                    parsing.age(left[place]),
                )
            except StateUnreadable as error:
                unreadable[number] = error
        return TopicProgress(
            standings,
            parsing.texts(policies, _readable(set_ones)),
            parsing.names(rounds_key(self.topic), _readable(opened)),
            unreadable,
        )

    def goes_on(self, overview: TopicProgress) -> bool:
        """Return whether what was read since an overview is of one history, in one round trip.

        It is :meth:`aggregator.storage.parsing.TopicProgress.goes_on_in` of another overview, for
        which the owners are enough: they do not grow with the number of metrics.
        """
        places = [f"{tag(self.topic, number)}:owner" for number in overview.partitions]
        found = zip(
            overview.partitions, places, self._asked([("HGETALL", p) for p in places]), strict=True
        )
        later = {}
        for number, place, reply in found:
            with contextlib.suppress(StateUnreadable):
                later[number] = PartitionProgress(parsing.owner(place, _readable(reply)), {}, {})
        return overview.goes_on_in(TopicProgress(later, {}))

    def owner(self, partition: int) -> dict[str, str]:
        """Return the facts of a partition's owner's hash."""
        key = f"{tag(self.topic, partition)}:owner"
        return parsing.owner(key, self._hash(key))

    def watermarks(self, partition: int) -> dict[str, Watermark]:
        """Return a partition's watermarks by metric key."""
        key = f"{tag(self.topic, partition)}:watermarks"
        return parsing.watermarks(key, self._hash(key))

    def counts(self, partition: int) -> dict[str, int]:
        """Return a partition's numbers of reports by ``outcome:metric``."""
        key = f"{tag(self.topic, partition)}:counts"
        return parsing.counts(key, self._hash(key))

    def rounds(self) -> dict[str, bytes]:
        """Return the rounds that were published last, by metric key; see `stored.asked`."""
        key = rounds_key(self.topic)
        return parsing.names(key, self._hash(key))

    def policies(self) -> dict[str, str]:
        """Return the policies of weights that were set, by metric name."""
        key = policies_key(self.topic)
        found = parsing.texts(key, self._hash(key))
        return {name: policy for name, policy in found.items() if not name.endswith(CHANGED)}

    def set_policy(self, metric: str, policy: str, now_ms: int | None = None) -> None:
        """Set a metric's policy of weights: in force from the next read; note when it changed."""
        words: list[str | int] = [metric, policy]
        if self.policies().get(metric, DEFAULT_POLICY) != policy:
            now = time.time_ns() // 10**6 if now_ms is None else now_ms
            words += [changed_field(metric), now]
        self.ask([("HSET", policies_key(self.topic), *words)])

    def publishing(self) -> tuple[bool, dict[str, int]]:
        """Return whether somebody has the lease to publish, and how many events there are by type.

        The types are ``final`` and ``provisional``.
        """
        key = publisher_key(self.topic)
        held, events = self.ask([("EXISTS", f"{key}:lease"), ("HGETALL", f"{key}:events")])
        counts = parsing.counts(f"{key}:events", events)
        found = {name.rpartition(".")[2]: count for name, count in counts.items()}
        return bool(held), {"final": 0, "provisional": 0} | found

    def expired(self, metrics: Sequence[str]) -> list[int]:
        """Return how many panes of each metric had expired before their final event."""
        key = publisher_key(self.topic)
        return [int(n) for n in self.ask([("ZCARD", expired_key(key, one)) for one in metrics])]

    def coordinating(self) -> bool:
        """Return whether somebody has the lease to open and decide rounds."""
        (held,) = self.ask([("EXISTS", f"{coordinator_key(self.topic)}:lease")])
        return bool(held)

    def deaths(self) -> int:
        """Return how many workers died and were started again."""
        key = deaths_key(self.topic)
        (found,) = self.ask([("GET", key)])
        return parsing.integer(key, found or b"0", 0)

    def keep_definitions(self, digest: str, document: bytes) -> None:
        """Keep definitions, before anything is counted by them."""
        self.ask([("HSET", definitions_key(self.topic), digest, document.decode())])

    def definitions(self) -> dict[str, bytes]:
        """Return all definitions by which anything was counted, by their digest."""
        key = definitions_key(self.topic)
        return parsing.names(key, self._hash(key))

    def count_death(self) -> None:
        """Count a worker that died."""
        self.client.incr(deaths_key(self.topic))

    def stuck(self, now_ms: int) -> dict[str, tuple[str, float]]:
        """Return the workers that are stuck: in which step, and for how many seconds."""
        key = stuck_key(self.topic)
        found = {}
        for worker, text in parsing.texts(key, self._hash(key)).items():
            told_ms, _, rest = text.partition(":")
            seconds, _, step = rest.partition(":")
            if told_ms.isdecimal() and now_ms - int(told_ms) < STUCK_MS and seconds.isdecimal():
                found[worker] = step, float(seconds)
        return found

    def tell_stuck(self, worker: str, step: str, seconds: float, now_ms: int) -> None:
        """Note for how long a worker is stuck in a step; 0: no longer."""
        key = stuck_key(self.topic)
        if seconds:
            self.ask([("HSET", key, worker, f"{now_ms}:{seconds:.0f}:{step}")])
        else:
            self.ask([("HDEL", key, worker)])
        self.ask([("PEXPIRE", key, STUCK_MS)])

    def _members(self, key: str) -> set[bytes]:
        (found,) = self.ask([("SMEMBERS", key)])
        return set(found)

    def _hash(self, key: str) -> dict[bytes, bytes]:
        (found,) = self.ask([("HGETALL", key)])
        return dict(found)

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands in one round trip, of each node of a Redis Cluster.

        Raises
        ------
        StateUnreadable
            If a key is of another type than the command is for.
        """
        return [_readable(reply) for reply in self._asked(commands)]

    def _asked(self, commands: Sequence[Command]) -> list[Any]:
        """Return the replies to commands; one that found a key of another type is StateUnreadable.

        Any other failure is raised.
        """
        if not commands:
            return []
        found: list[Any] = []
        for command, reply in zip(commands, run(self.client, commands), strict=True):
            if isinstance(reply, redis.ResponseError) and "WRONGTYPE" in str(reply):
                key, name = str(command[1]), str(command[0])
                found.append(StateUnreadable(key, "another type", f"what {name} can be done with"))
            elif isinstance(reply, Exception):
                raise reply
            else:
                found.append(reply)
        return found


def _gone(snapshot: Snapshot) -> StateUnreadable:
    return StateUnreadable(snapshot.gone, "nothing", "what belongs to a pane that is open")


def _readable(reply: Any) -> Any:
    if isinstance(reply, StateUnreadable):
        raise reply
    return reply


def script(name: str) -> str:
    """Return the text of a Lua script."""
    return importlib.resources.files("aggregator").joinpath(f"storage/lua/{name}.lua").read_text()
