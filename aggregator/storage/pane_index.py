"""Lists a metric's panes, and reads their sums."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from aggregator.errors import StateUnreadable
from aggregator.state.pane_cover import PaneSpan
from aggregator.state.pane_keys import SLICES, SLICES_TOTAL, PaneKey
from aggregator.storage import consistent_read, parsing
from aggregator.storage.commands import Command, Commands, ask_each
from aggregator.storage.redis_keys import tag

T = TypeVar("T")


class Total(NamedTuple, Generic[T]):
    """A running total to read."""

    metric: str  # name and revision, as in keys
    partitions: Sequence[int]
    nbytes: int  # maximum size of a statistic
    # Makes one value of all (key, statistic) pairs of a partition.
    fold: Callable[[Iterable[tuple[str, bytes]]], T]


class PaneIndex:
    """Finds and reads the panes of a topic's partitions."""

    def __init__(self, commands: Commands, topic: str) -> None:
        self._commands, self._topic = commands, topic
        self._large = threading.Lock()

    def starts(self, partition: int, grain: str, metric: str) -> dict[int, int]:
        """Return the starts of a metric's panes, in ms since the epoch, with their first offsets.

        Parameters
        ----------
        partition : int
        grain : {"pane", "hour", "day"}
        metric : str
            Name and revision, as in keys.

        Raises
        ------
        StateUnreadable
            If a pane's score in the index is not its start, so that windows miss it.
        """
        key = self._index(partition, grain, metric)
        (members,) = self._commands.ask([("ZRANGEBYSCORE", key, "-inf", "+inf", "WITHSCORES")])
        panes = {}
        is_paired = all(isinstance(member, list | tuple) for member in members)  # RESP3
        for member, score in (
            members if is_paired else zip(members[::2], members[1::2], strict=True)
        ):
            start, panes[start] = parsing.start(key, member)
            if float(score) != start:
                raise StateUnreadable(
                    key, f"the pane {start} with score {float(score):.17g}", "its start as score"
                )
        return panes

    def find(self, metric: str, spans: Sequence[tuple[int, PaneSpan]]) -> list[tuple[int, PaneKey]]:
        """Return a metric's panes in spans of partitions, in their order, in one round trip.

        Raises
        ------
        StateUnreadable
            If an index has lost panes, or all of them.
        """
        numbers = [*dict.fromkeys(number for number, _ in spans)]
        prefixes = {number: tag(self._topic, number) for number in numbers}
        owners: list[Command] = [
            ("HMGET", f"{prefixes[number]}:owner", *consistent_read.COMMIT_FIELDS)
            for number in numbers
        ]
        parts: list[list[Command]] = []
        for partition, span in spans:
            low = "-inf" if span.start is None else span.start
            high = "+inf" if span.end is None else f"({span.end}"
            key, prefix = self._index(partition, span.grain, metric), prefixes[partition]
            parts.append(
                [  # the numbers first: they only grow
                    ("SISMEMBER", f"{prefix}:indexed", f"{span.grain}:{metric}"),
                    (
                        "HMGET",
                        f"{prefix}:sizes",
                        consistent_read.INDEXED_SET,
                        key.removeprefix(f"{prefix}:"),
                    ),
                    ("ZCARD", key),
                    ("ZRANGEBYSCORE", key, low, high),
                ]
            )
        facts, *replies = ask_each(self._commands.ask, [owners, *parts])
        are_sizes_current = dict(
            zip(numbers, map(consistent_read.are_sizes_current, facts), strict=True)
        )
        pane_keys: list[tuple[int, PaneKey]] = []
        for (partition, span), reply in zip(spans, replies, strict=True):
            key = self._index(partition, span.grain, metric)
            is_indexed, (always, size), panes, members = reply
            if are_sizes_current[partition] and always is None:
                raise consistent_read.loss_error(f"{prefixes[partition]}:sizes", 0, 1)
            if is_indexed and not panes:
                raise StateUnreadable(key, "nothing", "an index of panes that were counted")
            min_panes = parsing.integer(f"{prefixes[partition]}:sizes", size or b"0", 0)
            if are_sizes_current[partition] and panes < min_panes:
                raise consistent_read.loss_error(key, panes, size)
            starts = [parsing.start(key, member)[0] for member in members]
            if len(starts) > len(set(starts)):
                raise StateUnreadable(key, "a pane twice", "every pane once")
            if any(not span.has(start) for start in starts):
                raise StateUnreadable(key, "a pane with another score", "its start as score")
            pane_keys += [(partition, PaneKey(span.grain, metric, start)) for start in starts]
        return pane_keys

    def extent(self, metric: str, partitions: Sequence[int]) -> tuple[int, int] | None:
        """Return the starts of a metric's first and last pane, in ms since the epoch, or None."""
        keys = [self._index(partition, "pane", metric) for partition in partitions]
        starts_by_key = self._starts([("ZRANGE", key, end, end) for key in keys for end in (0, -1)])
        starts = [start for starts in starts_by_key for start in starts]
        return (min(starts), max(starts)) if starts else None

    def latest_start(
        self, metric: str, partitions: Sequence[int], last: int | None = None
    ) -> int | None:
        """Return the start of a metric's newest pane; None if there is none.

        Parameters
        ----------
        metric : str
        partitions : sequence of int
        last : int, optional
            The latest start to consider, in ms since the epoch.
        """
        keys = [self._index(partition, "pane", metric) for partition in partitions]
        highest = "+inf" if last is None else last
        newest = (highest, "-inf", "BYSCORE", "REV", "LIMIT", 0, 1)
        starts_by_key = self._starts([("ZRANGE", key, *newest) for key in keys])
        return max((start for starts in starts_by_key for start in starts), default=None)

    def first_starts(
        self, metric: str, partitions: Sequence[int], first: int, last: int, limit: int
    ) -> list[int]:
        """Return the starts of a metric's first panes in [first, last], partition by partition.

        Parameters
        ----------
        metric : str
        partitions : sequence of int
        first, last : int
            In ms since the epoch.
        limit : int
            Panes per partition.
        """
        keys = [self._index(partition, "pane", metric) for partition in partitions]
        limits = ("LIMIT", 0, limit)
        starts_by_key = self._starts([("ZRANGEBYSCORE", key, first, last, *limits) for key in keys])
        return [start for starts in starts_by_key for start in starts]

    def indexed(self, partition: int) -> list[tuple[str, str]]:
        """Return the (grain, metric key) pairs of all panes that a partition ever had."""
        key = f"{tag(self._topic, partition)}:indexed"
        return sorted(parsing.indexed(key, member) for member in self._commands.members(key))

    def slice_keys(self, metric: str, partitions: Sequence[int]) -> list[str]:
        """Return the keys of the chunks of a metric's slice tables in any of the partitions."""
        set_keys = [f"{tag(self._topic, number)}:indexed" for number in partitions]
        members_by_key = self._commands.ask([("SMEMBERS", set_key) for set_key in set_keys])
        start = f":{metric}~".encode()
        return sorted(
            {
                parsing.indexed(set_key, member)[1]
                for set_key, members in zip(set_keys, members_by_key, strict=True)
                for member in members
                if start in member
            }
        )

    def find_losses(self, partition: int) -> list[StateUnreadable]:
        """Return an error for each index or set that lacks committed members."""
        prefix = tag(self._topic, partition)
        facts, sizes, names = self._commands.ask(
            [
                ("HMGET", f"{prefix}:owner", *consistent_read.COMMIT_FIELDS),
                ("HGETALL", f"{prefix}:sizes"),
                ("SMEMBERS", f"{prefix}:indexed"),
            ]
        )
        min_sizes = {f"index:{name.decode(errors='replace')}": 1 for name in names}
        if consistent_read.are_sizes_current(facts):
            if not sizes:
                return [consistent_read.loss_error(f"{prefix}:sizes", 0, 1)]
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
            consistent_read.loss_error(f"{prefix}:{name}", number, size)
            for (name, size), number in entries
            if number < size
        ]

    def has_expiring(self, partition: int, metric: str) -> bool:
        """Return whether a partition ever had a pane of a metric with a retention."""
        key = f"{tag(self._topic, partition)}:expiring"
        (is_one,) = self._commands.ask([("SISMEMBER", key, metric)])
        return bool(is_one)

    def statistics(self, keys: Sequence[tuple[int, PaneKey]]) -> list[bytes | None]:
        """Return the statistics of panes as bytes, in one round trip; None for a missing pane."""
        by_partition: defaultdict[int, list[str]] = defaultdict(list)
        for partition, key in keys:
            by_partition[partition].append(f"{tag(self._topic, partition)}:{key}")
        replies = self._commands.ask([("MGET", *group) for group in by_partition.values()])
        values = dict(zip(by_partition, map(iter, replies), strict=True))
        return [next(values[partition]) for partition, _ in keys]

    def running_total(self, partitions: Sequence[int], metric: str) -> list[tuple[str, bytes]]:
        """Return the statistics that add up to a metric's running total, with their keys."""
        (parts,) = self.totals([Total(metric, partitions, 0, list[tuple[str, bytes]])])
        return [statistic for part in parts for statistic in part]

    def totals(self, wanted: Sequence[Total[T]]) -> list[list[T]]:
        """Return the running totals of different metrics, folded, one for each partition.

        This takes few round trips, and asks each partition for its open panes once. Large totals
        are folded reply by reply, for one partition and one caller at a time.
        """
        by_partition: defaultdict[int, list[Total[T]]] = defaultdict(list)
        for total in wanted:
            for number in total.partitions:
                by_partition[number].append(total)
        plans = [
            _running(tag(self._topic, number), group) for number, group in by_partition.items()
        ]
        folded: dict[str, list[T]] = {total.metric: [] for total in wanted}
        pieces = consistent_read.read(self._commands.ask, plans, self._stream)
        for totals, piece in zip(by_partition.values(), pieces, strict=True):
            for total, value in zip(totals, piece.replies, strict=True):
                folded[total.metric].append(value)
        return [*folded.values()]

    @contextlib.contextmanager
    def _stream(self, groups: Sequence[Sequence[Command]]) -> Iterator[Iterator[Any]]:
        with self._large, self._commands.stream(groups) as replies:
            yield replies

    def _index(self, partition: int, grain: str, metric: str) -> str:
        return f"{tag(self._topic, partition)}:index:{grain}:{metric}"

    def _starts(self, commands: Sequence[Command]) -> list[list[int]]:
        """Return the starts of the panes that each command finds in an index."""
        replies = zip(commands, self._commands.ask(commands), strict=True)
        return [
            [parsing.start(str(c[1]), member)[0] for member in members] for c, members in replies
        ]


def _running(prefix: str, totals: Sequence[Total[Any]]) -> consistent_read.ReadPlan:
    """Return the plan to read the closed and open panes of running totals."""

    def keys(opened: Collection[bytes]) -> list[list[str]]:
        """Return the keys of each total."""
        grains = [
            (SLICES, SLICES_TOTAL) if "~" in total.metric else ("pane", "total") for total in totals
        ]
        panes: dict[bytes, list[str]] = {}
        for total, (grain, total_grain) in zip(totals, grains, strict=True):
            panes[f"{grain}:{total.metric}".encode()] = [f"{total_grain}:{total.metric}:0"]
        for member in sorted(opened):
            if (total_keys := panes.get(b":".join(member.split(b":", 2)[:2]))) is not None:
                total_keys.append(str(parsing.opened(f"{prefix}:open", member)[0]))
        return [*panes.values()]

    def reads(opened: Collection[bytes]) -> list[Command]:
        return [("GET", f"{prefix}:{key}") for part in keys(opened) for key in part]

    def fold(opened: Collection[bytes], replies: Iterable[bytes | None]) -> list[Any]:
        values = iter(replies)
        names = {member.rpartition(b":")[0].decode(errors="replace") for member in opened}
        return [
            total.fold(
                (f"{prefix}:{key}", value or b"")
                for key, value in zip(part, values, strict=False)
                if value is not None or key in names
            )
            for total, part in zip(totals, keys(opened), strict=True)
        ]

    def weigh(commands: Sequence[Command]) -> list[int]:
        sizes = {total.metric: total.nbytes for total in totals}
        names = (str(key).removeprefix(f"{prefix}:") for _, key in commands)
        return [sizes[PaneKey.parse(name).metric] for name in names]

    return consistent_read.ReadPlan(prefix, reads, fold, weigh)
