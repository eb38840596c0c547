"""Lists the panes in a metric's indexes, and reads their sums."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from aggregator.errors import StateUnreadable
from aggregator.state.pane_cover import PaneSpan
from aggregator.state.pane_keys import SLICES, SLICES_TOTAL, PaneKey, retention_ms
from aggregator.state.watermark import CONFIRMING_BATCHES, NO_TIME
from aggregator.storage import consistent_read, parsing
from aggregator.storage.commands import Commands, ask_each, readable
from aggregator.storage.parsing import Ask, Command, Read
from aggregator.storage.redis_keys import tag
from estimators import Metric

T = TypeVar("T")
NEWEST_GROWTH = 8
"""If all panes that were read are open, this many times as many are read next."""


MAX_SCANNED_NAMES = 10**9
"""More names than a set has, so that one command looks at all of them."""


@dataclasses.dataclass(frozen=True)
class Total(Generic[T]):
    """A running total to read."""

    metric: str  # name and revision, as in keys
    partitions: Sequence[int]
    nbytes: int  # maximum size of a statistic
    # Makes one value of all (key, statistic) pairs of a partition.
    fold: Callable[[Iterable[tuple[str, bytes]]], T]
    width_ms: int  # of its panes
    newest: int = 2 * CONFIRMING_BATCHES  # at most so many panes are usually open

    @property
    def index(self) -> str:
        """The name of the index of its panes."""
        return f"{SLICES if '~' in self.metric else 'pane'}:{self.metric}"

    @property
    def closed_key(self) -> str:
        """The key of the sum of its closed panes."""
        return f"{SLICES_TOTAL if '~' in self.metric else 'total'}:{self.metric}:0"


class PaneIndex:
    """Finds and reads the panes of a topic's partitions."""

    def __init__(self, commands: Commands, topic: str) -> None:
        self._commands, self._topic = commands, topic
        self._large = threading.Lock()
        # By metric key, as last read: the stamps of partitions, and the keys of chunks.
        self._slice_keys: dict[str, tuple[list[Any] | None, list[str]]] = {}

    def starts(self, partition: int, grain: str, metric: str) -> dict[int, int]:
        """Return the first offset of each of a metric's panes, by its start in ms since the epoch.

        `partition`: the partition; `grain`: the panes' grain; `metric`: the metric's key.
        Raises StateUnreadable if a pane's score in the index is not its start, because windows
        would miss the pane.
        """
        key = f"{tag(self._topic, partition)}:index:{grain}:{metric}"
        (members,) = self._commands.ask([("ZRANGEBYSCORE", key, "-inf", "+inf", "WITHSCORES")])
        panes = {}
        if not all(isinstance(member, list | tuple) for member in members):  # RESP2
            members = zip(members[::2], members[1::2], strict=True)
        for member, score in members:
            start, panes[start] = parsing.start(key, member)
            if float(score) != start:
                stored = f"the pane {start} with score {float(score):.17g}"
                raise StateUnreadable(key, stored, "its start as score")
        return panes

    def find(
        self, spans: Sequence[tuple[int, str, PaneSpan]], ask: Ask | None = None
    ) -> list[tuple[int, PaneKey]]:
        """Return the panes in spans of event time, with their partitions, in one round trip.

        Parameters
        ----------
        spans : sequence of (int, str, PaneSpan)
            The partition and the metric's key of each span, and the span.
        ask : callable, optional
            Runs the commands in place of this object's connection.

        Raises
        ------
        StateUnreadable
            If an index has lost some or all of its panes.
        """
        by_index: defaultdict[tuple[int, str], list[PaneSpan]] = defaultdict(list)
        for number, metric, span in spans:
            by_index[number, f"{span.grain}:{metric}"].append(span)
        numbers = [*dict.fromkeys(number for number, _ in by_index)]
        owners: list[Command] = [
            ("HMGET", f"{tag(self._topic, number)}:owner", *parsing.COMMIT_FIELDS)
            for number in numbers
        ]
        parts = [
            _index_commands(tag(self._topic, number), index, index_spans)
            for (number, index), index_spans in by_index.items()
        ]
        facts, *replies = ask_each(ask or self._commands.ask, [owners, *parts])
        are_sizes_current = dict(zip(numbers, map(parsing.are_sizes_current, facts), strict=True))
        pane_keys: list[tuple[int, PaneKey]] = []
        for ((number, index), index_spans), (is_indexed, sizes, panes, *members) in zip(
            by_index.items(), replies, strict=True
        ):
            prefix, (indexed_size, size) = tag(self._topic, number), sizes
            if are_sizes_current[number] and indexed_size is None:
                raise parsing.loss_error(f"{prefix}:sizes", 0, 1)
            min_size = size if are_sizes_current[number] else None
            parsing.require_index(prefix, index, is_indexed, min_size, panes)
            grain, _, metric = index.partition(":")
            for span, span_members in zip(index_spans, members, strict=True):
                key = f"{prefix}:index:{index}"
                starts = parsing.starts(key, span_members, span.start, span.end)
                keys = map(functools.partial(PaneKey, grain, metric), starts)
                pane_keys += zip(itertools.repeat(number), keys, strict=False)
        return pane_keys

    def extent(self, metric: str, partitions: Sequence[int]) -> tuple[int, int] | None:
        """Return the starts of a metric's first and last pane, in ms; None without panes."""
        starts = self._starts(metric, partitions, ("ZRANGE", 0, 0), ("ZRANGE", -1, -1))
        return (min(starts), max(starts)) if starts else None

    def latest_start(
        self, metric: str, partitions: Sequence[int], last: int | None = None
    ) -> int | None:
        """Return the start of a metric's newest pane; None if there is none.

        `metric`: the metric's key; `partitions`: the partitions to look at; `last`, optional: the
        latest start to consider, in ms since the epoch.
        """
        highest = "+inf" if last is None else last
        newest = ("ZRANGE", highest, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1)
        return max(self._starts(metric, partitions, newest), default=None)

    def first_starts(
        self, metric: str, partitions: Sequence[int], first: int, last: int, limit: int
    ) -> list[int]:
        """Return the starts of a metric's first panes in [first, last], partition by partition.

        `metric`: the metric's key; `partitions`: the partitions to look at; `first`, `last`: the
        first and the last start, in ms since the epoch; `limit`: the most panes of each partition.
        """
        return self._starts(metric, partitions, ("ZRANGEBYSCORE", first, last, "LIMIT", 0, limit))

    def indexed(self, partition: int) -> list[tuple[str, str]]:
        """Return the (grain, metric key) pairs of all panes that a partition ever had."""
        key = f"{tag(self._topic, partition)}:indexed"
        return sorted(parsing.indexed(key, member) for member in self._commands.members(key))

    def read_slices(
        self, metric: str, partitions: Sequence[int], read: Callable[[list[str], Ask], T]
    ) -> T:
        """Return what `read` returns for the keys of all chunks of a metric's slice tables.

        `read` is called with the keys that were found before. Its first commands also ask whether
        the sets of names have changed: a set only grows, unless another worker takes the partition
        over. If one has changed, all names are read, and `read` is called again with all keys.
        `metric`: the metric's key; `partitions`: the partitions to look at; `read`: takes the keys,
        and a function that runs its first commands.
        """
        prefixes = [tag(self._topic, number) for number in partitions]
        stamp_commands: list[Command] = [
            command
            for prefix in prefixes
            for command in (
                ("SCARD", f"{prefix}:indexed"),
                ("HMGET", f"{prefix}:owner", "epoch", "token"),
            )
        ]
        pattern = (0, "MATCH", f"*:{metric}~*", "COUNT", MAX_SCANNED_NAMES)
        scans: list[Command] = [("SSCAN", f"{prefix}:indexed", *pattern) for prefix in prefixes]
        while True:
            last_stamps, keys = self._slice_keys.get(metric, (None, []))
            stamps = list[Any]()

            def ask(commands: Sequence[Command], stamps: list[Any] = stamps) -> list[Any]:
                unsent = [] if stamps else stamp_commands
                replies = self._commands.ask([*unsent, *commands])
                stamps += replies[: len(unsent)]
                return replies[len(unsent) :]

            value = read(keys, ask)
            if stamps == last_stamps:
                return value
            scanned = zip(prefixes, self._commands.ask(scans), strict=True)
            names = {
                parsing.indexed(f"{prefix}:indexed", member)[1]
                for prefix, (_, members) in scanned
                for member in members
            }
            self._slice_keys[metric] = stamps, sorted(names)
            if sorted(names) == keys:
                return value

    def find_losses(self, partition: int) -> list[StateUnreadable]:
        """Return an error for each index or set that lacks committed members."""
        prefix = tag(self._topic, partition)
        facts, sizes, names = self._commands.ask(
            [
                ("HMGET", f"{prefix}:owner", *parsing.COMMIT_FIELDS),
                ("HGETALL", f"{prefix}:sizes"),
                ("SMEMBERS", f"{prefix}:indexed"),
            ]
        )
        min_sizes = {f"index:{name.decode(errors='replace')}": 1 for name in names}
        if parsing.are_sizes_current(facts):
            if not sizes:
                return [parsing.loss_error(f"{prefix}:sizes", 0, 1)]
            growing = parsing.counts(f"{prefix}:sizes", sizes)
            min_sizes |= {
                name: size
                for name, size in growing.items()
                if name.startswith("index:") or name in ("indexed", "expiring")
            }
        asks = [
            ("ZCARD" if name.startswith("index:") else "SCARD", f"{prefix}:{name}")
            for name in min_sizes
        ]
        entries = zip(min_sizes.items(), self._commands.ask(asks), strict=True)
        return [
            parsing.loss_error(f"{prefix}:{name}", number, size)
            for (name, size), number in entries
            if number < size
        ]

    def may_expire(self, partition: int, pane: PaneKey, metric: Metric) -> bool:
        """Return whether a pane may have expired: its metric's panes do, or once did.

        `partition`, `pane`: the partition, and the pane's key; `metric`: its metric.
        """
        if retention_ms(pane.grain, metric) is not None:
            return True
        key = f"{tag(self._topic, partition)}:expiring"
        (is_one,) = self._commands.ask([("SISMEMBER", key, pane.metric)])
        return bool(is_one)

    def statistics(self, keys: Sequence[tuple[int, PaneKey]]) -> list[bytes | None]:
        """Return the statistics of panes as bytes, in one round trip; None for a missing pane."""
        return [value for _, value in self.read_statistics(keys)[0]]

    def read_statistics(
        self, keys: Sequence[tuple[int, PaneKey]], later: Sequence[Read] = ()
    ) -> tuple[list[tuple[str, bytes | None]], list[Any]]:
        """Return the Redis keys and statistics of panes, and the results of further reads.

        Parameters
        ----------
        keys : sequence of (int, PaneKey)
            The partition and the key of each pane.
        later : sequence of Read
            Reads that follow those of the panes, in the same round trip.
        """
        names = [f"{tag(self._topic, partition)}:{key}" for partition, key in keys]
        by_partition: defaultdict[int, list[str]] = defaultdict(list)
        for (partition, _), name in zip(keys, names, strict=True):
            by_partition[partition].append(name)
        reads = [Read(("MGET", *group), list) for group in by_partition.values()]
        groups, later_results = ask_each(self._commands.read, [reads, later])
        values: dict[str, bytes | None] = {}
        for group, group_values in zip(by_partition.values(), groups, strict=True):
            values.update(zip(group, readable(group_values), strict=True))
        return [*zip(names, map(values.get, names), strict=True)], later_results

    def totals(self, wanted: Sequence[Total[T]], ask: Ask | None = None) -> list[list[T]]:
        """Return, for each running total, the result of its `fold` in each partition.

        This takes two round trips, and more only if a partition changes meanwhile. Large totals are
        folded reply by reply, for one partition and one caller at a time. `wanted`: the running
        totals; `ask`, optional: runs the commands in place of this object's connection.
        """
        by_partition: defaultdict[int, list[Total[T]]] = defaultdict(list)
        for total in wanted:
            for number in total.partitions:
                by_partition[number].append(total)
        requests = [
            _TotalsRequest(tag(self._topic, number), group)
            for number, group in by_partition.items()
        ]
        folded: dict[str, list[T]] = {total.metric: [] for total in wanted}
        results = consistent_read.read(ask or self._commands.ask, requests, self._stream)
        for totals, values in zip(by_partition.values(), results, strict=True):
            for total, value in zip(totals, values, strict=True):
                folded[total.metric].append(value)
        return [*folded.values()]

    @contextlib.contextmanager
    def _stream(self, groups: Sequence[Sequence[Command]]) -> Iterator[Iterator[Any]]:
        with self._large, self._commands.stream(groups) as replies:
            yield replies

    def _starts(self, metric: str, partitions: Sequence[int], *ranges: Command) -> list[int]:
        """Return the starts of a metric's panes in ranges of its index in each partition.

        `ranges`: commands without their key.
        """
        keys = [f"{tag(self._topic, number)}:index:pane:{metric}" for number in partitions]
        commands = [(name, key, *words) for key in keys for name, *words in ranges]
        replies = zip(commands, self._commands.ask(commands), strict=True)
        return [parsing.start(str(c[1]), member)[0] for c, members in replies for member in members]


def _index_commands(prefix: str, index: str, spans: Sequence[PaneSpan]) -> list[Command]:
    """Return the commands that find panes; first those for their numbers, which only grow."""
    key = f"{prefix}:index:{index}"
    ranges = [
        (
            "-inf" if span.start is None else span.start,
            "+inf" if span.end is None else f"({span.end}",
        )
        for span in spans
    ]
    return [
        ("SISMEMBER", f"{prefix}:indexed", index),
        ("HMGET", f"{prefix}:sizes", parsing.INDEXED_SET, f"index:{index}"),
        ("ZCARD", key),
        *(("ZRANGEBYSCORE", key, low, high) for low, high in ranges),
    ]


class _TotalsRequest:
    """The read of running totals in a partition: closed sums and open panes.

    A metric's open panes are its newest, so the end of its index names them. The first guess is
    that the panes that end after the watermark are open; the set of open panes confirms it.
    """

    def __init__(self, prefix: str, totals: Sequence[Total[Any]]) -> None:
        self.prefix, self._totals = prefix, totals
        self._limits = [total.newest for total in totals]
        self._opened: dict[str, set[bytes]] = {}  # members of the set of open panes, as last read
        self._guesses: list[list[bytes]] = []  # from the head that was last read

    def head(self) -> list[Command]:
        prefix, indexes = self.prefix, [total.index for total in self._totals]
        sizes = (parsing.INDEXED_SET, "open", *(f"index:{index}" for index in indexes))
        questions = [total.metric.partition("~")[0] for total in self._totals]
        commands: list[Command] = [
            ("HMGET", f"{prefix}:sizes", *sizes),
            ("SCARD", f"{prefix}:open"),
            ("HMGET", f"{prefix}:watermarks", *questions),
            ("SMISMEMBER", f"{prefix}:indexed", *indexes),
        ]
        for index, limit in zip(indexes, self._limits, strict=True):
            key = f"{prefix}:index:{index}"
            commands += [("ZCARD", key), ("ZREVRANGE", key, 0, limit - 1)]
        return commands

    def reads(self, head: Sequence[Any]) -> list[Command]:
        membership: list[Command] = []
        values: list[Command] = []
        self._guesses.clear()
        for total, mark, panes in zip(self._totals, head[2], head[5::2], strict=True):
            members = self._members(total, panes)
            closed_member = f"{total.closed_key}:0"
            membership.append(("SMISMEMBER", f"{self.prefix}:open", closed_member, *members))
            self._guesses.append(self._guess(total, mark, members))
            keys = [total.closed_key, *map(_pane_of, self._guesses[-1])]
            values += [("GET", f"{self.prefix}:{key}") for key in keys]
        return membership + values

    def weigh(self, commands: Sequence[Command]) -> list[int]:
        sizes = {total.metric: total.nbytes for total in self._totals}
        names = [str(key).removeprefix(f"{self.prefix}:") for _, key, *_ in commands]
        return [
            sizes[PaneKey.parse(name).metric] if command[0] == "GET" else 0
            for command, name in zip(commands, names, strict=True)
        ]

    def fold(self, stamp: Sequence[Any], head: Sequence[Any], replies: Iterable[Any]) -> list[Any]:
        (indexed_size, open_size, *index_sizes), number, _, indexed, *indexes = head
        sizes = indexed_size, open_size
        consistent_read.require_open_panes(self.prefix, stamp, sizes, number)
        is_current, values = parsing.are_sizes_current(stamp[2:]), iter(replies)
        are_closed_stored: list[bool] = []
        for index, (total, (is_closed_stored, *are_open)) in enumerate(
            zip(self._totals, [next(values) for _ in self._totals], strict=True)
        ):
            size, panes = indexes[2 * index : 2 * index + 2]
            min_size = index_sizes[index] if is_current else None
            parsing.require_index(self.prefix, total.index, indexed[index], min_size, size)
            members = self._members(total, panes)
            are_closed_stored.append(bool(is_closed_stored))
            opened = [name for name, is_open in zip(members, are_open, strict=True) if is_open]
            if len(opened) == self._limits[index] < size:
                self._limits[index] *= NEWEST_GROWTH
            elif opened == self._guesses[index]:
                continue
            self._opened[total.metric] = {*opened}
            raise consistent_read.GuessMissedError
        return [
            total.fold(self._statistics(total, values, guess, is_closed_stored))
            for total, guess, is_closed_stored in zip(
                self._totals, self._guesses, are_closed_stored, strict=True
            )
        ]

    def _statistics(
        self, total: Total[Any], values: Iterator[Any], opened: list[bytes], is_closed_stored: bool
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the key and statistic of each pane of a total; b"" for a missing statistic."""
        closed = next(values)
        if closed is not None or is_closed_stored:
            yield f"{self.prefix}:{total.closed_key}", closed or b""
        for member in opened:
            yield f"{self.prefix}:{_pane_of(member)}", next(values) or b""

    def _members(self, total: Total[Any], panes: Sequence[bytes]) -> list[bytes]:
        """Return panes, given with the newest first, as members of the open set, oldest first."""
        return [f"{total.index}:".encode() + pane for pane in reversed(panes)]

    def _guess(self, total: Total[Any], mark: bytes | None, members: list[bytes]) -> list[bytes]:
        """Return the members that were open at the last read; at first, guess by the watermark."""
        if total.metric in self._opened:
            return [member for member in members if member in self._opened[total.metric]]
        name = total.metric.partition("~")[0]
        marks = {} if mark is None else {name.encode(): mark}
        watermarks = parsing.watermarks(f"{self.prefix}:watermarks", marks)
        closed = watermarks[name].closed if marks else NO_TIME
        index, prefix_size = f"{self.prefix}:index:{total.index}", len(total.index) + 1

        def ends_later(member: bytes) -> bool:
            return parsing.start(index, member[prefix_size:])[0] + total.width_ms > closed

        return [*itertools.takewhile(ends_later, reversed(members))][::-1]


def _pane_of(member: bytes) -> str:
    """Return the key of a pane from a member of the set of open panes."""
    return member.rpartition(b":")[0].decode(errors="replace")
