"""Sums over partitions, of a window, of single panes, or of a round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from aggregator.errors import PaneExpired, StateUnreadable
from aggregator.reading.window import Window
from aggregator.state.pane_cover import COVER_GRAINS, PaneSpan, spans
from aggregator.state.pane_keys import PaneKey, metric_key, round_key
from aggregator.storage import parsing
from aggregator.storage.pane_index import Total
from aggregator.storage.progress import TopicProgress
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from estimators import Metric
from estimators.estimate import Counts
from estimators.interruption import checkpoint

T = TypeVar("T")
PartitionPane = tuple[int, PaneKey]
MAX_READ_BYTES = 16_000_000
"""Of sums in one read, which bounds the server's memory."""


class PaneSums:
    """Adds up the panes of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._missing: dict[str, tuple[int, PaneKey, StateUnreadable]] = {}

    def read_window(self, window: Window) -> Counts:
        """Return the sum of a window's panes, from a few round trips.

        Raises
        ------
        PaneExpired
            If some panes have expired.
        StateUnreadable
            If a counted pane is missing that does not expire.
        ValueError
            If the metric has trusted collection: only its releases may be shown.
        """
        metric, key = window.metric, metric_key(window.metric.name, window.metric.revision)
        if metric.sends_true_values:
            raise ValueError(f"metric {metric.name!r} has trusted collection: read its releases")
        if window.is_running_total:
            return self._total(metric, key, [*window.watermarks])
        statistic = metric.zero()
        for pane_key, pane in self.read_statistics(metric, self.find_panes(window)):
            if pane is None:
                raise PaneExpired(metric.name, pane_key.start)
            statistic += pane
        return statistic

    def find_panes(
        self, window: Window, grains: tuple[str, ...] = COVER_GRAINS, key: str | None = None
    ) -> list[PartitionPane]:
        """Return the panes that cover a window, as coarse as possible.

        Parameters
        ----------
        window : Window
        grains : tuple of str
            The allowed grains, the coarsest first.
        key : str, optional
            Of a chunk of the metric's slices; by default of the metric.
        """
        key = key or metric_key(window.metric.name, window.metric.revision)
        partition_spans = [
            (number, span)
            for number, mark in window.watermarks.items()
            for span in spans(window.metric, mark.closed, window.start_ms, window.end_ms, grains)
        ]
        return self.store.panes.find(key, partition_spans)

    def read_totals(self, windows: Sequence[Window]) -> dict[str, Counts]:
        """Return the sums of running totals by metric name, from one read.

        Raises
        ------
        StateUnreadable
            If one of them cannot be read.
        """
        windows_by_name = {window.metric.name: window for window in windows}
        totals = [
            total_request(
                window.metric, metric_key(name, window.metric.revision), [*window.watermarks]
            )
            for name, window in windows_by_name.items()
        ]
        sums = zip(windows_by_name.items(), self.store.panes.totals(totals), strict=True)
        return {name: sum(parts, window.metric.zero()) for (name, window), parts in sums}

    def read_round(self, metric: Metric, number: int, partitions: Sequence[int]) -> Counts:
        """Return the statistic of the answers to a round.

        Parameters
        ----------
        metric : Metric
        number : int
            Of the round.
        partitions : sequence of int
            Those that counted answers.
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

    def read_panes(
        self,
        overview: TopicProgress,
        metric: Metric,
        partitions: Sequence[int],
        starts: Sequence[int],
    ) -> dict[int, Counts | None] | None:
        """Return the sums of single panes over partitions, by start.

        The sum of a partly expired pane is None. The answer is None if Redis lost data during the
        read.

        Parameters
        ----------
        overview : TopicProgress
            From before the read.
        metric : Metric
        partitions : sequence of int
            All partitions.
        starts : sequence of int
            Ascending, in ms since the epoch.

        Raises
        ------
        StateUnreadable
            If a counted pane is missing that does not expire.
        """
        span = PaneSpan("pane", starts[0], starts[-1] + 1)
        sums: dict[int, Counts | None] = {start: metric.zero() for start in starts}
        failure: StateUnreadable | None = None
        try:
            name = metric_key(metric.name, metric.revision)
            indexed = self.store.panes.find(name, [(number, span) for number in partitions])
            panes = [(number, key) for number, key in indexed if key.start in sums]
            for key, statistic in self.read_statistics(metric, panes):
                total = sums[key.start]
                sums[key.start] = None if total is None or statistic is None else total + statistic
        except StateUnreadable as error:
            failure = error
        if not self.store.is_same_history(overview):
            return None
        if failure is not None:
            raise failure
        return sums

    def read_statistics(
        self, metric: Metric, panes: Sequence[PartitionPane]
    ) -> Iterator[tuple[PaneKey, Counts | None]]:
        """Yield the statistics of indexed panes; None for an expired one.

        Raises
        ------
        StateUnreadable
            If a pane is missing that does not expire: it was deleted, or evicted.
        """
        for group in batched(panes, max_sums_per_read(metric)):
            checkpoint()
            values = self.store.panes.statistics(group)
            for (number, key), value in zip(group, values, strict=True):
                redis_key = f"{tag(self.store.topic, number)}:{key}"
                if value is not None:
                    yield key, parsing.statistic(redis_key, value, metric)
                elif metric.retention_ms is not None or self.store.panes.has_expiring(
                    number, key.metric
                ):
                    yield key, None
                else:
                    error = StateUnreadable(redis_key, "nothing", "a pane that was counted")
                    self._missing[metric.name] = number, key, error
                    raise error

    def missing_panes(self) -> list[str]:
        """Return messages about panes that are still missing, one per metric."""
        for name, (number, key, _) in [*self._missing.items()]:
            spans_of_pane = [(number, PaneSpan(key.grain, key.start, key.start + 1))]
            is_counted = bool(self.store.panes.find(key.metric, spans_of_pane))
            if not is_counted or self.store.panes.statistics([(number, key)]) != [None]:
                self._missing.pop(name, None)
        return [str(error) for _, _, error in self._missing.values()]

    def count_reports(self, metric: Metric, key: str, partitions: Sequence[int]) -> int:
        """Return the number of reports that were ever counted under a key.

        Parameters
        ----------
        metric : Metric
        key : str
            Of a metric or a round.
        partitions : sequence of int
        """
        return int(metric.counts(self._total(metric, key, partitions)).sum())


def max_sums_per_read(metric: Metric) -> int:
    """Return the maximum number of a metric's sums in one read."""
    return max(1, MAX_READ_BYTES // metric.zero().nbytes)


def batched(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield slices of at most `size` values."""
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]


def total_request(metric: Metric, key: str, partitions: Sequence[int]) -> Total[Counts]:
    """Return the read of a running total or a round.

    Parameters
    ----------
    metric : Metric
    key : str
        Of a metric or a round.
    partitions : sequence of int
    """

    def add_up(values: Iterable[tuple[str, bytes]]) -> Counts:
        statistic = metric.zero()
        for redis_key, value in values:
            checkpoint()
            statistic += parsing.statistic(redis_key, value, metric)
        return statistic

    return Total(key, partitions, metric.zero().nbytes, add_up)
