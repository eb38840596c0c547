"""Reads windows of metrics: their sums, releases or searches, and what is final."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from aggregator.errors import StateUnreadable, UnknownMetric
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import PaneSums
from aggregator.reading.plans import LocalPlan, Plan, plan_for
from aggregator.reading.query import EVERYTHING, Query, SeriesQuery
from aggregator.reading.serialization import definition
from aggregator.reading.series_plan import SeriesPlan
from aggregator.reading.windows import Window
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from estimators import Estimate, Metric, SearchMetric
from estimators.errors import meant

TOGETHER, TOGETHER_BYTES = 100, 32_000_000
"""Running totals that are read together at most, and of what size."""


class WindowReader:
    """Reads windows in the two steps that a service needs: what is asked, then its content.

    Parameters
    ----------
    store : Store
    metrics : mapping of str to Metric
    """

    def __init__(self, store: Store, metrics: Mapping[str, Metric]) -> None:
        self.store, self.metrics = store, metrics
        self.sums = PaneSums(store)
        self._plans: dict[str, Plan[Any]] = {}
        self._meanings: dict[str, tuple[Metric, str]] = {}

    def metric(self, name: str) -> Metric:
        """Return a metric by name.

        Raises
        ------
        UnknownMetric
            Naming the nearest known one.
        """
        if name not in self.metrics:
            raise UnknownMetric(name, meant(name, self.metrics))
        return self.metrics[name]

    def meaning(self, metric: Metric) -> str:
        """Return a hash of a definition: what an answer depends on besides the sums."""
        known = self._meanings.get(metric.name)
        if known is None or known[0] is not metric:
            digest = hashlib.sha256(msgspec.json.encode(definition(metric))).hexdigest()
            known = self._meanings[metric.name] = metric, digest
        return known[1]

    @staticmethod
    def answer(window: Window, query: Query = EVERYTHING) -> Estimate:
        """Estimate from a window that was read before.

        Of a metric that is asked in rounds the definition says all that can be asked: where the
        search stands, and what is certain with its beta.

        Parameters
        ----------
        window : Window
        query : Query
            How it is estimated; its stretch of event time is not looked at.

        Raises
        ------
        ValueError
            If it cannot be asked so.
        """
        return plan_for(type(window.metric)).answer(window, query)

    def window(self, name: str, query: Query = EVERYTHING) -> Window:
        """Read a window: the sum of a metric's panes over all partitions.

        Parameters
        ----------
        name : str
        query : Query
            Its stretch of event time.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty.
        """
        return self.read(self.describe(self.store.overview(), name, query))

    def describe(self, overview: TopicProgress, name: str, query: Query = EVERYTHING) -> Window:
        """Return a window that is not read: what is asked, and how far it is counted.

        Parameters
        ----------
        overview : TopicProgress
        name : str
        query : Query
            Its stretch of event time.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty.
        StateUnreadable
            If it cannot be said how far a partition is counted.
        """
        plan = self._plan(self.metric(name))
        Grouping.of(plan.metric, query)  # of a metric without slices none are asked for
        overview.require_readable()
        return plan.describe(overview, query)

    def read(self, window: Window) -> Window:
        """Return a window with its content: its sums, its release, or where a search stands."""
        return self._plan(window.metric).read(window)

    def read_totals(self, windows: Iterable[Window]) -> Iterator[Window | None]:
        """Yield windows that are running totals with their sums, many of them read together.

        None in place of any other, and of those that were read together where one cannot be read:
        :meth:`read` says of each by itself what there is.
        """
        together: list[Window] = []
        size = 0
        for window in windows:
            together.append(window)
            size += window.metric.zero().nbytes * len(window.watermarks)
            if len(together) == TOGETHER or size > TOGETHER_BYTES:
                yield from self._read_together(together)
                together, size = [], 0
        yield from self._read_together(together)

    def _read_together(self, windows: Sequence[Window]) -> list[Window | None]:
        wanted = [
            window
            for window in windows
            if window.is_running_total and isinstance(self._plan(window.metric), LocalPlan)
        ]
        try:
            found = self.sums.of_totals(wanted)
        except StateUnreadable:
            found = {}
        return [
            window.with_sums(found[window.metric.name]) if window.metric.name in found else None
            for window in windows
        ]

    def _plan(self, metric: Metric) -> Plan[Any]:
        known = self._plans.get(metric.name)
        if known is None or known.metric is not metric:  # it was redefined
            known = self._plans[metric.name] = plan_for(type(metric))(self.sums, metric)
        return known

    def plan_series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the steps of a series over a window that is not read.

        Parameters
        ----------
        window : Window
        query : SeriesQuery

        Raises
        ------
        ValueError
            If there can be no such series.
        """
        return self._plan(window.metric).series(window, query)

    def policy(self, overview: TopicProgress, name: str) -> str:
        """Return the weights in force of a metric.

        Raises
        ------
        StateUnreadable
            If they are none that the metric can have.
        """
        return self._plan(self.metric(name)).policy(overview)

    def first_waiting(self, overview: TopicProgress, metric: Metric, start_ms: int) -> int | None:
        """Return where the first pane begins, from `start_ms` on, that is over in some partition.

        None: there is none. Whether every partition has closed it is for
        :meth:`finality_watermarks` to say.

        Parameters
        ----------
        overview : TopicProgress
        metric : Metric
        start_ms : int
            Milliseconds since the epoch.
        """
        overview.require_readable()
        key, numbers = metric_key(metric.name, metric.revision), [*overview.partitions]
        marks = [one.watermarks.get(key, Watermark()) for one in overview.partitions.values()]
        last = max((mark.closed for mark in marks), default=NO_TIME) - metric.pane_ms
        return min(self.store.panes.first_starts(key, numbers, start_ms, last, 1), default=None)

    def finality_watermarks(
        self, overview: TopicProgress, partitions: int | None = None
    ) -> dict[str, int]:
        """Return, by metric, the event time in ms before which every window is final.

        Metrics that are asked in rounds are left out, and those of which nothing is final.

        Parameters
        ----------
        overview : TopicProgress
        partitions : int, optional
            How many the topic has, for a caller that asked Kafka; else what the workers said last.
        """
        overview.require_readable()
        found = {
            name: overview.closed(metric_key(name, metric.revision), partitions)
            for name, metric in self.metrics.items()
            if not isinstance(metric, SearchMetric)
        }
        return {name: closed for name, closed in found.items() if closed != NO_TIME}
