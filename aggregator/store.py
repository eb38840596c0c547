"""Redis as the store of the sums: taking a partition over, and the one commit."""

from __future__ import annotations

import dataclasses
import importlib.resources
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import redis

from aggregator import refusals
from aggregator.errors import Fenced, SettingsError, StoreRefused, StoreUnreachable
from aggregator.keys import (
    PaneKey,
    deaths_key,
    partitions_key,
    policies_key,
    publisher_key,
    tag,
)
from aggregator.partition import Partition, Watermark
from aggregator.settings import masked
from aggregator.windows import Span
from estimators import Metric

UNSET = -1
"""The next offset of a partition that was never committed."""
TORN = -2
"""The next offset of a partition in which a commit failed half-way: its sums cannot be trusted."""
URL = (
    "redis://, rediss:// (TLS) or unix://, then USER:PASSWORD@HOST:PORT/0, with special characters "
    "percent-encoded, and redis-py's parameters (ssl_ca_certs=..., with rediss:// only)"
)
WORDS_PER_WRITE = 4_000
"""Lua unpacks at most about 8,000 values at once."""


def connect(url: str) -> redis.Redis:
    """Return a client for a Redis URL (redis://, rediss:// or unix://).

    Raises
    ------
    StoreUnreachable
        If nothing answers there.
    StoreRefused
        If Redis turns us away: wrong password, certificate, missing rights, and so on.
    SettingsError
        If it is no such URL.
    """
    shown = str(masked("url", url))
    try:
        client = redis.Redis.from_url(url, socket_connect_timeout=5, health_check_interval=30)
        client.ping()
    except (TypeError, ValueError):  # what redis says of it may be a part of the password
        raise SettingsError("redis.url", shown, URL, "redis") from None
    except redis.RedisError as error:
        if why := refusals.of_redis(error):
            raise StoreRefused(shown, why) from None
        raise StoreUnreachable(shown, str(error)) from None
    return client


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A partition's state as the store has it, in one consistent piece.

    Attributes
    ----------
    owner : dict of str to str
        ``epoch``, ``next``, ``begin``, ``topic_id``, ``worker``, ``high``, ``halted``, ``gap``.
    watermarks : dict of str to Watermark
        By metric key.
    counts : dict of str to int
        Reports by ``outcome:metric``.
    open : dict of PaneKey to (int, bytes, set of bytes)
        First offset, statistic and counted batch ids of each open pane.
    """

    owner: dict[str, str]
    watermarks: dict[str, Watermark]
    counts: dict[str, int]
    open: dict[PaneKey, tuple[int, bytes, set[bytes]]]

    @property
    def next_offset(self) -> int:
        """The first offset that is not counted, or UNSET."""
        return int(self.owner.get("next", UNSET))

    def partition(self, metrics: Mapping[str, Metric], future_ms: int) -> Partition:
        """Return the partition in memory, ready to count on from here."""
        partition = Partition(metrics, future_ms, max(0, self.next_offset))
        partition.watermarks.update(self.watermarks)
        partition.counts.update(self.counts)
        for key, (first_offset, statistic, seen) in self.open.items():
            if statistic:
                partition.restore(key, first_offset, statistic, set(seen))
        return partition


@dataclasses.dataclass(frozen=True)
class Standing:
    """How far a partition is counted: its owner's facts, watermarks and counts."""

    owner: dict[str, str]
    watermarks: dict[str, Watermark]
    counts: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Overview:
    """How far all partitions are counted, and the policies of weights that were set."""

    partitions: dict[int, Standing]
    policies: dict[str, str]


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
        self._snapshot = client.register_script(script("snapshot"))
        self._commit = client.register_script(script("commit"))
        self._running = client.register_script(script("running"))

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client's connections."""
        self.client.close()

    def acquire(self, partition: int, worker: str) -> Snapshot:
        """Become a partition's owner: whoever owned it is fenced from now on."""
        self.client.sadd(partitions_key(self.topic), partition)
        return self._take(partition, worker)

    def snapshot(self, partition: int) -> Snapshot:
        """Look at a partition's open state without touching its ownership."""
        return self._take(partition, "")

    def _take(self, partition: int, worker: str) -> Snapshot:
        owner, watermarks, counts, panes = self._snapshot([tag(self.topic, partition)], [worker])
        opened = {}
        for member, statistic, seen in panes:
            name, _, first = member.decode().rpartition(":")
            opened[PaneKey.parse(name)] = (int(first), statistic, set(seen))
        marks = _watermarks(_pairs(watermarks))
        return Snapshot(_pairs(owner), marks, _counts(_pairs(counts)), opened)

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
        """
        prefix = tag(self.topic, number)
        words: list[Any] = [epoch, expected, partition.next_offset]
        for command in _writes(prefix, partition, facts):
            words += [len(command), *command]
        outcome, stored_epoch, stored = self._commit([prefix], words)
        if outcome == b"fenced":
            name = f"{self.topic}:{number}"
            raise Fenced(name, epoch, int(stored_epoch), expected, int(stored))
        partition.saved()
        if outcome == b"known":
            return None
        return sum(len(word) for word in words if isinstance(word, bytes))

    def partitions(self) -> list[int]:
        """Return the partitions that were ever counted, ascending."""
        return sorted(int(member) for member in self._members(partitions_key(self.topic)))

    def panes(
        self, partition: int, grain: str, metric: str, start: int | None, end: int | None
    ) -> dict[int, int]:
        """Return the panes of a metric that begin in [start, end), and their first offsets."""
        low = "-inf" if start is None else start
        high = "+inf" if end is None else f"({end}"
        found: Any = self.client.zrangebyscore(self._index(partition, grain, metric), low, high)
        pairs = (member.decode().split(":") for member in found)
        return {int(begin): int(first) for begin, first in pairs}

    def find(self, metric: str, spans: Sequence[tuple[int, Span]]) -> list[tuple[int, PaneKey]]:
        """Return a metric's panes in spans of partitions: in one round trip, in their order."""
        with self.client.pipeline(transaction=False) as pipeline:
            for partition, span in spans:
                low = "-inf" if span.start is None else span.start
                high = "+inf" if span.end is None else f"({span.end}"
                pipeline.zrangebyscore(self._index(partition, span.grain, metric), low, high)
            found: Any = pipeline.execute()
        return [
            (partition, PaneKey(span.grain, metric, int(member.split(b":")[0])))
            for (partition, span), members in zip(spans, found, strict=True)
            for member in members
        ]

    def earliest(self, metric: str, partitions: Sequence[int]) -> int | None:
        """Return when a metric's first pane begins, in ms since the epoch; None: it has none."""
        with self.client.pipeline(transaction=False) as pipeline:
            for partition in partitions:
                pipeline.zrange(self._index(partition, "pane", metric), 0, 0)
            found: Any = pipeline.execute()
        return min((int(m.split(b":")[0]) for members in found for m in members), default=None)

    def first_panes(
        self, metric: str, partitions: Sequence[int], first: int, last: int, limit: int
    ) -> list[int]:
        """Return where a metric's panes begin, in [first, last]: of each partition the first ones.

        At most `limit` of a partition, in ms since the epoch, one partition after the other.
        """
        with self.client.pipeline(transaction=False) as pipeline:
            for partition in partitions:
                pipeline.zrangebyscore(
                    self._index(partition, "pane", metric), first, last, 0, limit
                )
            found: Any = pipeline.execute()
        return [int(member.split(b":")[0]) for members in found for member in members]

    def count_panes(self, metric: str, partitions: Sequence[int], start: int, end: int) -> int:
        """Return how many panes of a metric begin in [start, end), over partitions."""
        with self.client.pipeline(transaction=False) as pipeline:
            for partition in partitions:
                pipeline.zcount(self._index(partition, "pane", metric), start, f"({end}")
            found: Any = pipeline.execute()
        return sum(found)

    def _index(self, partition: int, grain: str, metric: str) -> str:
        return f"{tag(self.topic, partition)}:index:{grain}:{metric}"

    def indexed(self, partition: int) -> list[tuple[str, str]]:
        """Return the (grain, metric key) pairs of which a partition ever had a pane."""
        members = self._members(f"{tag(self.topic, partition)}:indexed")
        pairs = (member.decode().split(":") for member in members)
        return sorted((grain, metric) for grain, metric in pairs)

    def statistics(self, keys: Sequence[tuple[int, PaneKey]]) -> list[bytes | None]:
        """Return the statistics of partitions' panes as bytes, in one round trip.

        None where there is none (any more).
        """
        places: defaultdict[int, list[int]] = defaultdict(list)
        for place, (partition, _) in enumerate(keys):
            places[partition].append(place)
        with self.client.pipeline(transaction=False) as pipeline:
            for partition, mine in places.items():
                prefix = tag(self.topic, partition)
                pipeline.mget([f"{prefix}:{keys[place][1]}" for place in mine])
            found: Any = pipeline.execute()
        values: list[bytes | None] = [None] * len(keys)
        for mine, those in zip(places.values(), found, strict=True):
            for place, value in zip(mine, those, strict=True):
                values[place] = value
        return values

    def running(self, partitions: Sequence[int], metric: str) -> list[bytes]:
        """Return the statistics that make up a metric's running total, as bytes."""
        with self.client.pipeline(transaction=False) as pipeline:
            for partition in partitions:
                self._running([tag(self.topic, partition)], [metric], client=pipeline)
            found: Any = pipeline.execute()
        return [statistic for those in found for statistic in those if statistic]

    def overview(self) -> Overview:
        """Return how far everything is counted, in two round trips."""
        numbers = self.partitions()
        with self.client.pipeline(transaction=False) as pipeline:
            for number in numbers:
                for what in ("owner", "watermarks", "counts"):
                    pipeline.hgetall(f"{tag(self.topic, number)}:{what}")
            pipeline.hgetall(policies_key(self.topic))
            *found, policies = map(_decoded, pipeline.execute())
        rows = zip(numbers, found[::3], found[1::3], found[2::3], strict=True)
        standings = {
            number: Standing(owner, _watermarks(marks), _counts(counts))
            for number, owner, marks, counts in rows
        }
        return Overview(standings, policies)

    def owner(self, partition: int) -> dict[str, str]:
        """Return the facts of a partition's owner's hash."""
        return _decoded(self.client.hgetall(f"{tag(self.topic, partition)}:owner"))

    def watermarks(self, partition: int) -> dict[str, Watermark]:
        """Return a partition's watermarks by metric key."""
        return _watermarks(
            _decoded(self.client.hgetall(f"{tag(self.topic, partition)}:watermarks"))
        )

    def counts(self, partition: int) -> dict[str, int]:
        """Return a partition's numbers of reports by ``outcome:metric``."""
        return _counts(_decoded(self.client.hgetall(f"{tag(self.topic, partition)}:counts")))

    def policies(self) -> dict[str, str]:
        """Return the policies of weights that were set, by metric name."""
        return _decoded(self.client.hgetall(policies_key(self.topic)))

    def set_policy(self, metric: str, policy: str) -> None:
        """Set a metric's policy of weights: in force from the next read."""
        self.client.hset(policies_key(self.topic), metric, policy)

    def publishing(self) -> tuple[bool, dict[str, int]]:
        """Return whether somebody has the lease to publish, and how many events there are by type.

        The types are ``final`` and ``provisional``.
        """
        key = publisher_key(self.topic)
        with self.client.pipeline(transaction=False) as pipeline:
            pipeline.exists(f"{key}:lease")
            pipeline.hgetall(f"{key}:events")
            held, events = pipeline.execute()
        counts = {name.rpartition(".")[2]: int(count) for name, count in _decoded(events).items()}
        return bool(held), {"final": 0, "provisional": 0} | counts

    def deaths(self) -> int:
        """Return how many workers died and were started again."""
        found: Any = self.client.get(deaths_key(self.topic))
        return int(found or 0)

    def count_death(self) -> None:
        """Count a worker that died."""
        self.client.incr(deaths_key(self.topic))

    def _members(self, key: str) -> set[bytes]:
        found: Any = self.client.smembers(key)
        return set(found)


def _writes(
    prefix: str, partition: Partition, facts: Mapping[str, str | int]
) -> Iterator[list[Any]]:
    """Yield the Redis commands that bring the store to a partition's state."""
    for key, pane in partition.panes.items():
        if not pane.changed:
            continue
        value = pane.statistic.astype("<i8", copy=False).tobytes()
        yield ["SET", f"{prefix}:{key}", value]
        index = f"{prefix}:index:{key.grain}:{key.metric}"
        yield ["ZADD", index, key.start, f"{key.start}:{pane.first_offset}"]
        yield ["SADD", f"{prefix}:indexed", f"{key.grain}:{key.metric}"]
        member = f"{key}:{pane.first_offset}"
        if not pane.closed:
            yield ["SADD", f"{prefix}:open", member]
            for i in range(0, len(pane.unsaved), WORDS_PER_WRITE):
                yield ["SADD", f"{prefix}:seen:{key}", *pane.unsaved[i : i + WORDS_PER_WRITE]]
            continue
        yield ["SREM", f"{prefix}:open", member]
        yield ["DEL", f"{prefix}:seen:{key}"]
        if pane.metric.retention_ms is not None:
            arrived = partition.watermarks[key.metric].arrived
            yield ["PEXPIREAT", f"{prefix}:{key}", arrived + pane.metric.retention_ms]
    if partition.watermarks:
        marks = {name: str(mark) for name, mark in partition.watermarks.items()}
        yield ["HSET", f"{prefix}:watermarks", *_flat(marks)]
    if partition.counts:
        yield ["HSET", f"{prefix}:counts", *_flat(partition.counts)]
    if facts:
        yield ["HSET", f"{prefix}:owner", *_flat(facts)]


def _flat(fields: Mapping[str, str | int]) -> list[str | int]:
    return [word for pair in fields.items() for word in pair]


def script(name: str) -> str:
    """Return the text of a Lua script."""
    return importlib.resources.files("aggregator").joinpath(f"lua/{name}.lua").read_text()


def _pairs(flat: list[bytes]) -> dict[str, str]:
    words = [word.decode() for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def _decoded(found: Any) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in found.items()}


def _watermarks(found: Mapping[str, str]) -> dict[str, Watermark]:
    return {name: Watermark.parse(text) for name, text in found.items()}


def _counts(found: Mapping[str, str]) -> dict[str, int]:
    return {name: int(value) for name, value in found.items()}
