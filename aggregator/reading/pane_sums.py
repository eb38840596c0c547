"""Sums over partitions: of a window, of single panes, or of a round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from aggregator.errors import PaneExpired, StateUnreadable
from aggregator.reading.windows import Window
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
Place = tuple[int, PaneKey]
"""A partition and a pane in it."""
BYTES_AT_ONCE = 16_000_000
"""Of sums that are read together: the server's memory must do for any window."""


class PaneSums:
    """Adds up the panes of a store.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._missing: dict[str, tuple[int, PaneKey, StateUnreadable]] = {}

    def of_window(self, window: Window) -> Counts:
        """Read a window's panes and add them up, in a few round trips.

        Raises
        ------
        PaneExpired
            If some of them have expired: what is left is a part of the window.
        StateUnreadable
            If something that was counted is not there, and does not expire.
        ValueError
            If the metric is collected in trust: only its releases may be shown.
        """
        metric, key = window.metric, metric_key(window.metric.name, window.metric.revision)
        if metric.sends_true_values:
            raise ValueError(f"metric {metric.name!r} has trusted collection: read its releases")
        if window.is_running_total:
            return self._total(metric, key, [*window.watermarks])
        statistic = metric.zero()
        for found, pane in self.each(metric, self.find(window)):
            if pane is None:
                raise PaneExpired(metric.name, found.start)
            statistic += pane
        return statistic

    def find(
        self, window: Window, grains: tuple[str, ...] = COVER_GRAINS, key: str | None = None
    ) -> list[Place]:
        """Return the panes that cover a window, the coarsest where they fit.

        Parameters
        ----------
        window : Window
        grains : tuple of str
            Those that may be used, the coarsest first.
        key : str, optional
            Of a chunk of the metric's slices; by default the metric's own panes.
        """
        key = key or metric_key(window.metric.name, window.metric.revision)
        cut = [
            (number, span)
            for number, mark in window.watermarks.items()
            for span in spans(window.metric, mark.closed, window.start_ms, window.end_ms, grains)
        ]
        return self.store.panes.find(key, cut)

    def of_totals(self, windows: Sequence[Window]) -> dict[str, Counts]:
        """Return the sums of windows that are running totals, read together, by metric's name.

        Raises
        ------
        StateUnreadable
            If one of them cannot be read.
        """
        wanted = {one.metric.name: one for one in windows}
        totals = [
            total_of(one.metric, metric_key(name, one.metric.revision), [*one.watermarks])
            for name, one in wanted.items()
        ]
        found = zip(wanted.items(), self.store.panes.totals(totals), strict=True)
        return {name: sum(parts, one.metric.zero()) for (name, one), parts in found}

    def of_round(self, metric: Metric, number: int, partitions: Sequence[int]) -> Counts:
        """Return the statistic of the answers to a round.

        Parameters
        ----------
        metric : Metric
        number : int
            The round's.
        partitions : sequence of int
            Those that counted answers.
        """
        key = round_key(metric_key(metric.name, metric.revision), number)
        return self._total(metric, key, partitions)

    def _total(self, metric: Metric, key: str, partitions: Sequence[int]) -> Counts:
        statistic = metric.zero()
        for group in batched(partitions, at_once(metric)):
            (parts,) = self.store.panes.totals([total_of(metric, key, group)])
            for part in parts:
                statistic += part
        return statistic

    def of_panes(
        self,
        overview: TopicProgress,
        metric: Metric,
        partitions: Sequence[int],
        starts: Sequence[int],
    ) -> dict[int, Counts | None] | None:
        """Return single panes, summed over partitions, by where they begin.

        None in place of a sum: some of the pane has expired. None in place of all: they were read
        while Redis went back, or was emptied.

        Parameters
        ----------
        overview : TopicProgress
            From before.
        metric : Metric
        partitions : sequence of int
            All that there are.
        starts : sequence of int
            Ascending, in ms since the epoch.

        Raises
        ------
        StateUnreadable
            If something that was counted is not there, and does not expire.
        """
        wanted = PaneSpan("pane", starts[0], starts[-1] + 1)
        sums: dict[int, Counts | None] = {start: metric.zero() for start in starts}
        failure: StateUnreadable | None = None
        try:
            name = metric_key(metric.name, metric.revision)
            found = self.store.panes.find(name, [(number, wanted) for number in partitions])
            places = [place for place in found if place[1].start in sums]
            for key, statistic in self.each(metric, places):
                known = sums[key.start]
                sums[key.start] = None if known is None or statistic is None else known + statistic
        except StateUnreadable as error:
            failure = error
        if not self.store.is_same_history(overview):
            return None
        if failure is not None:
            raise failure
        return sums

    def each(
        self, metric: Metric, places: Sequence[Place]
    ) -> Iterator[tuple[PaneKey, Counts | None]]:
        """Yield the statistics of panes that are indexed; None for one that has expired.

        Raises
        ------
        StateUnreadable
            If one is not there that does not expire: it was deleted, or evicted.
        """
        for group in batched(places, at_once(metric)):
            checkpoint()
            values = self.store.panes.statistics(group)
            for (number, key), value in zip(group, values, strict=True):
                place = f"{tag(self.store.topic, number)}:{key}"
                if value is not None:
                    yield key, parsing.statistic(place, value, metric)
                elif metric.retention_ms is not None or self.store.panes.has_expiring(
                    number, key.metric
                ):
                    yield key, None
                else:
                    error = StateUnreadable(place, "nothing", "a pane that was counted")
                    self._missing[metric.name] = number, key, error
                    raise error

    def missing(self) -> list[str]:
        """Return which panes were found missing, of each metric one, and still are, in words."""
        for name, (number, key, _) in [*self._missing.items()]:
            here = [(number, PaneSpan(key.grain, key.start, key.start + 1))]
            is_counted = bool(self.store.panes.find(key.metric, here))
            if not is_counted or self.store.panes.statistics([(number, key)]) != [None]:
                self._missing.pop(name, None)
        return [str(error) for _, _, error in self._missing.values()]

    def reports(self, metric: Metric, key: str, partitions: Sequence[int]) -> int:
        """Return how many reports were ever counted under a key, whatever may be shown of them.

        Parameters
        ----------
        metric : Metric
        key : str
            A metric's, or a round's.
        partitions : sequence of int
        """
        return int(metric.counts(self._total(metric, key, partitions)).sum())


def at_once(metric: Metric) -> int:
    """Return how many sums of a metric may be read together: a window may have thousands."""
    return max(1, BYTES_AT_ONCE // metric.zero().nbytes)


def batched(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield so many values at a time."""
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]


def total_of(metric: Metric, key: str, partitions: Sequence[int]) -> Total[Counts]:
    """Return what is read of a metric's running total, or of a round's: sums of partitions.

    Parameters
    ----------
    metric : Metric
    key : str
        The metric's, or the round's.
    partitions : sequence of int
    """

    def add_up(values: Iterable[tuple[str, bytes]]) -> Counts:
        statistic = metric.zero()
        for place, value in values:
            checkpoint()
            statistic += parsing.statistic(place, value, metric)
        return statistic

    return Total(key, partitions, metric.zero().nbytes, add_up)
