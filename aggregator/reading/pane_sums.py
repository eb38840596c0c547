"""Statistics summed over partitions: of the panes of a window, of single panes, or of a round."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from aggregator.errors import StateUnreadable
from aggregator.reading.window import Window
from aggregator.state.pane_cover import COARSE_GRAINS, COVER_GRAINS, SLICE_GRAINS, PaneSpan, spans
from aggregator.state.pane_keys import GRAINS_MS, PaneKey, metric_key, round_key, width_ms
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage import parsing
from aggregator.storage.pane_index import Total
from aggregator.storage.parsing import Ask
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from estimators import Metric
from estimators.estimate import Counts
from estimators.interruption import checkpoint

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
PartitionPane = tuple[int, PaneKey]
StoredValue = tuple[str, bytes | None]
"""A key of Redis, and its value; None if it has none."""
ReadPane = tuple[int, PartitionPane, StoredValue]
"""The index of a pane's window, the pane, and its stored value."""
AddPanes = Callable[[Sequence[ReadPane]], None]
MAX_READ_BYTES = 16_000_000
"""The most bytes of sums in a read, to bound the server's memory."""
MAX_PANES_PER_READ = 20_000


class PaneSums:
    """Adds up the panes of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._missing: dict[str, tuple[int, PaneKey, StateUnreadable]] = {}

    def extent(
        self, overview: TopicProgress, key: str, partitions: Collection[int]
    ) -> tuple[int, int] | None:
        """Return the starts of the first and last pane of a metric key, in ms; None without panes.

        `overview`: the progress of counting; `key`: the metric key; `partitions`: the partitions to
        look at.
        """
        if any(overview.partitions[number].extents is None for number in partitions):
            return self.store.panes.extent(key, [*partitions])
        return overview.extent(key, partitions)

    def read_window(self, window: Window) -> Window:
        """Return a window with the sum of its panes, in two round trips.

        If panes of the window have expired, it is expired; if Redis has lost data since the
        window's progress was read, it is not final.

        Raises
        ------
        StateUnreadable
            If a pane is missing that was counted and does not expire.
        ValueError
            If the metric has trusted collection: only its releases may be shown.
        """
        metric = window.metric
        if metric.sends_true_values:
            raise ValueError(f"metric {metric.name!r} has trusted collection: read its releases")
        if window.is_running_total:
            key = metric_key(metric.name, metric.revision)
            return window.with_sums(self._total(metric, key, [*window.watermarks]))
        return self._read_together([window])[0]

    def read_steps(self, windows: Sequence[Window]) -> Iterator[list[Window]]:
        """Yield the results of :meth:`read_window` for steps, in reads of bounded size.

        `windows`: the steps in ascending order, which have the same length.
        """
        yield from map(self._read_together, step_groups(windows))

    def _read_together(self, windows: Sequence[Window]) -> list[Window]:
        metric, zero = windows[0].metric, windows[0].metric.zero()
        sums: list[Counts | None] = [zero] * len(windows)
        max_panes = max(1, MAX_READ_BYTES // zero.nbytes)
        is_same = self.read_each(windows, max_panes, self.adder(metric, sums))
        pairs = zip(windows, sums, strict=True)
        return [window.with_sums(statistic, is_same=is_same) for window, statistic in pairs]

    def adder(self, metric: Metric, sums: list[Counts | None]) -> AddPanes:
        """Return a function that adds a metric's panes to the sums of windows, or None to both.

        Raises StateUnreadable if a stored value is wrong, or is missing although the pane does not
        expire.
        """

        def add(panes: Sequence[ReadPane]) -> None:
            statistics = [
                self._no_statistic(metric, *pane, redis_key)
                if value is None
                else parsing.statistic(redis_key, value, metric)
                for _, pane, (redis_key, value) in panes
            ]
            for (index, *_), statistic in zip(panes, statistics, strict=True):
                total = sums[index]
                sums[index] = None if total is None or statistic is None else total + statistic

        return add

    def read_totals(self, windows: Sequence[Window]) -> dict[str, Counts]:
        """Return the sum of each running total by metric name, in one read.

        Raises StateUnreadable if the sum of a running total cannot be read.
        """
        keys = [metric_key(window.metric.name, window.metric.revision) for window in windows]
        totals = [
            total_request(window.metric, key, [*window.watermarks])
            for window, key in zip(windows, keys, strict=True)
        ]
        sums = zip(windows, self.store.panes.totals(totals), strict=True)
        return {window.metric.name: sum(parts, window.metric.zero()) for window, parts in sums}

    def read_round(self, metric: Metric, number: int, partitions: Sequence[int]) -> Counts:
        """Return the statistic of the answers to a round.

        `metric`: the metric; `number`: the number of the round; `partitions`: the partitions that
        have counted answers.
        """
        key = round_key(metric_key(metric.name, metric.revision), number)
        return self._total(metric, key, partitions)

    def _total(self, metric: Metric, key: str, partitions: Sequence[int]) -> Counts:
        statistic = metric.zero()
        for group in batched(partitions, max_sums_per_read(metric)):
            (parts,) = self.store.panes.totals([total_request(metric, key, group)])
            for part in parts:
                statistic += part
        return statistic

    def read_each(
        self,
        windows: Sequence[Window],
        max_panes: int,
        add: AddPanes,
        chunks: Sequence[str] = (),
        ask: Ask | None = None,
    ) -> bool:
        """Pass each pane of windows to `add`; return whether Redis lost no data.

        `windows`: a window, or ascending steps of the same length; `max_panes`: the most panes in a
        round trip; `add`: takes the panes of the metric and of `chunks`, the keys of chunks of its
        slices; `ask`: finds the panes in place of the store's connection.
        """
        metric, overview = windows[0].metric, windows[0].overview
        starts = [window.start_ms or 0 for window in windows]
        cover = _cover(windows, COVER_GRAINS, [metric_key(metric.name, metric.revision)])
        if chunks:
            cover += _cover(windows, SLICE_GRAINS, chunks)

        def index_of(pane: PaneKey) -> int:
            return bisect.bisect_right(starts, pane.start) - 1

        panes = [
            (number, pane)
            for number, pane in self.store.panes.find(cover, ask)
            if (end_ms := windows[index_of(pane)].end_ms) is None or pane.start < end_ms
        ]
        batches = [*batched(panes, max_panes)] or [[]]
        owners: list[Any] = []
        for batch in batches:
            if batch is not batches[0]:
                checkpoint()
            later = overview.history_reads(self.store.topic) if batch is batches[-1] else []
            values, owners = self.store.panes.read_statistics(batch, later)
            add([(index_of(pane[1]), pane, x) for pane, x in zip(batch, values, strict=True)])
        return overview.is_continued(owners)

    def _no_statistic(
        self, metric: Metric, number: int, key: PaneKey, redis_key: str
    ) -> Counts | None:
        """Return None if a missing pane may have expired; else raise StateUnreadable."""
        if self.store.panes.may_expire(number, key, metric):
            return None
        error = StateUnreadable(redis_key, "nothing", "a pane that was counted")
        self._missing[metric.name] = number, key, error
        raise error

    def missing_panes(self) -> list[str]:
        """Return a message for each metric with panes that are still missing."""
        for name, (number, key, _) in [*self._missing.items()]:
            span = PaneSpan(key.grain, key.start, key.start + 1)
            is_counted = bool(self.store.panes.find([(number, key.metric, span)]))
            if not is_counted or self.store.panes.statistics([(number, key)]) != [None]:
                self._missing.pop(name, None)
        return [str(error) for _, _, error in self._missing.values()]

    def count_reports(self, metric: Metric, key: str, partitions: Sequence[int]) -> int:
        """Return the number of reports ever counted under a key.

        `metric`: the metric; `key`: the key of a metric or of a round; `partitions`: the partitions
        that have counted the key.
        """
        return int(metric.counts(self._total(metric, key, partitions)).sum())


def max_sums_per_read(metric: Metric) -> int:
    """Return the largest number of sums of a metric that are read together."""
    return max(1, MAX_READ_BYTES // metric.zero().nbytes)


def step_groups(
    windows: Sequence[Window], sums: int = 1, keys: int = 1
) -> Iterator[Sequence[Window]]:
    """Yield consecutive steps that are read together.

    `windows`: a window, or ascending steps of the same length; `sums`, `keys`: how many sums a
    window has, and under how many keys their panes are stored.
    """
    if windows:
        metric, step_ms = windows[0].metric, windows[0].length_ms
        grains_ms = [GRAINS_MS[g] for g in COARSE_GRAINS if step_ms % GRAINS_MS[g] == 0]
        panes = keys * max(1, step_ms // min(grains_ms, default=metric.pane_ms))
        max_steps = MAX_PANES_PER_READ // (panes * max(1, len(windows[0].watermarks)))
        yield from batched(windows, max(1, min(max_steps, max_sums_per_read(metric) // sums)))


def _cover(
    windows: Sequence[Window], grains: Sequence[str], keys: Sequence[str]
) -> list[tuple[int, str, PaneSpan]]:
    """Return the coarsest spans of panes that cover windows, each with partition and key.

    `windows`: a window, or ascending steps of the same length; `grains`: the allowed grains, the
    coarsest first; `keys`: the keys of the panes.
    """
    window, widths_ms = windows[0], {grain: width_ms(grain, windows[0].metric) for grain in grains}
    if len(windows) > 1:  # no pane is a part of two steps
        widths_ms = {g: width for g, width in widths_ms.items() if window.length_ms % width == 0}
    return [
        (number, key, span)
        for number, mark in window.watermarks.items()
        for span in spans(mark.closed, window.start_ms, windows[-1].end_ms, widths_ms)
        for key in keys
    ]


def batched(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive parts of a sequence, of at most `size` values."""
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]


def total_request(metric: Metric, key: str, partitions: Sequence[int]) -> Total[Counts]:
    """Return the request that reads a running total, or the sum of a round.

    `metric`: the metric; `key`: the key of a metric or of a round; `partitions`: the partitions
    that have counted the key.
    """

    def add_up(values: Iterable[tuple[str, bytes]]) -> Counts:
        statistic = metric.zero()
        for redis_key, value in values:
            checkpoint()
            statistic += parsing.statistic(redis_key, value, metric)
        return statistic

    size, width = metric.zero().nbytes, metric.pane_ms
    return Total(key, partitions, size, add_up, width, open_panes(width, metric))


def open_panes(width_ms: int, metric: Metric) -> int:
    """Return how many panes of a width can be open at most, unless the metric holds panes open.

    These are the panes at and behind the watermark, and a pane for each batch ahead of it.
    """
    return -(-metric.lateness_ms // width_ms) + 1 + CONFIRMING_BATCHES
