"""Reads windows of metrics, and the event time up to which they are final."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from aggregator.errors import StateUnreadable, UnknownMetric
from aggregator.reading.estimate_cache import EstimateCache
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import PaneSums
from aggregator.reading.plans import LocalPlan, ReadingPlan, plan_for
from aggregator.reading.plans.local import with_shares
from aggregator.reading.query import RUNNING_TOTAL, Query, SeriesQuery, statement_of
from aggregator.reading.serialization import definition
from aggregator.reading.series_plan import SeriesPlan
from aggregator.reading.window import Window, WindowStatistic
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from estimators import Estimate, Metric, SearchMetric
from estimators.errors import meant

MAX_TOTALS_PER_READ, MAX_TOTALS_BYTES = 100, 32_000_000
"""The most running totals in a read, and the most bytes of their sums."""


class WindowReader:
    """Reads windows in two steps: a description from the progress of counting, then the content."""

    def __init__(self, store: Store, metrics: Mapping[str, Metric]) -> None:
        self.store, self.metrics = store, metrics
        self.sums = PaneSums(store)
        self.estimates = EstimateCache()
        self._plans: dict[str, ReadingPlan[Any]] = {}
        self._definition_hashes: dict[str, tuple[Metric, str]] = {}

    def metric(self, name: str) -> Metric:
        """Return a metric by name.

        Raises
        ------
        UnknownMetric
            If there is no such metric; the error suggests the nearest name.
        """
        if name not in self.metrics:
            raise UnknownMetric(name, meant(name, self.metrics))
        return self.metrics[name]

    def definition_hash(self, metric: Metric) -> str:
        """Return a hash of a definition, which determines an answer together with the sums."""
        metric_and_digest = self._definition_hashes.get(metric.name)
        if metric_and_digest is None or metric_and_digest[0] is not metric:
            digest = hashlib.sha256(msgspec.json.encode(definition(metric))).hexdigest()
            metric_and_digest = self._definition_hashes[metric.name] = metric, digest
        return metric_and_digest[1]

    @staticmethod
    def answer(window: Window, query: Query = RUNNING_TOTAL) -> Estimate:
        """Return the estimate from a window and its content; the times of the query are ignored."""
        return plan_for(type(window.metric)).answer(window, query)

    def cached_answer(self, window: Window, query: Query = RUNNING_TOTAL) -> Estimate:
        """Return :meth:`answer`, from the cache if the window's sums were estimated before."""
        if not isinstance(window.content, WindowStatistic):
            return self.answer(window, query)
        return with_shares(window, query, lambda asked: self.cached_answers([window], asked)[0])

    def cached_answers(self, windows: Sequence[Window], query: Query) -> list[Estimate]:
        """Return :meth:`cached_answer` for several windows of a metric, without shares among."""
        definition, statement = self.definition_hash(windows[0].metric), statement_of(query)
        keys = [(definition, statement, *sums_key(window)) for window in windows]
        cached = ((key, self.estimates.get(key)) for key in keys)
        estimates = {key: estimate for key, estimate in cached if estimate is not None}
        missing = {key: w for key, w in zip(keys, windows, strict=True) if key not in estimates}
        if missing:
            computed = LocalPlan.answer_each([*missing.values()], query)
            for key, estimate in zip(missing, computed, strict=True):
                self.estimates.put(key, estimate)
                estimates[key] = estimate
        return [estimates[key] for key in keys]

    def window(self, name: str, query: Query = RUNNING_TOTAL) -> Window:
        """Return a window with its content; the errors are those of :meth:`describe`."""
        return self.read(self.describe(self.progress(name), name, query))

    def progress(self, *names: str) -> TopicProgress:
        """Return the progress of metrics by name; raise UnknownMetric if one is not defined."""
        return self.store.progress(*map(self.metric, names))

    def describe(self, overview: TopicProgress, name: str, query: Query = RUNNING_TOTAL) -> Window:
        """Return a window without its content.

        Parameters
        ----------
        overview : TopicProgress
        name : str
        query : Query

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty.
        StateUnreadable
            If the progress of a partition cannot be read.
        """
        plan = self._plan(self.metric(name))
        grouping = Grouping.of(plan.metric, query) if query.by or query.where else None
        overview.require_readable()
        return plan.describe(overview, query, grouping)

    def read(self, window: Window) -> Window:
        """Return a window with its content: its sums, its release, or a search's progress."""
        return self._plan(window.metric).read(window)

    def read_totals(self, windows: Iterable[Window]) -> Iterator[Window | None]:
        """Yield running totals with their sums, many of which are read together.

        For a window of another kind, and for windows read together with an unreadable one, it
        yields None: the caller has to use :meth:`read`.
        """
        batch: list[Window] = []
        size = 0
        for window in windows:
            batch.append(window)
            size += window.metric.zero().nbytes * len(window.watermarks)
            if len(batch) == MAX_TOTALS_PER_READ or size > MAX_TOTALS_BYTES:
                yield from self._read_batch(batch)
                batch, size = [], 0
        yield from self._read_batch(batch)

    def _read_batch(self, windows: Sequence[Window]) -> list[Window | None]:
        totals = [
            window
            for window in windows
            if window.is_running_total and isinstance(self._plan(window.metric), LocalPlan)
        ]
        try:
            sums = self.sums.read_totals(totals)
        except StateUnreadable:
            sums = {}
        return [
            window.with_sums(sums[window.metric.name]) if window.metric.name in sums else None
            for window in windows
        ]

    def _plan(self, metric: Metric) -> ReadingPlan[Any]:
        plan = self._plans.get(metric.name)
        if plan is None or plan.metric is not metric:  # new, or redefined
            plan = self._plans[metric.name] = plan_for(type(metric))(self.sums, metric)
        return plan

    def plan_series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the plan of a series over a window."""
        return self._plan(window.metric).series(window, query)

    def policy(self, overview: TopicProgress, name: str) -> str:
        """Return the weight policy that is in force for a metric."""
        return self._plan(self.metric(name)).policy(overview)

    def first_closed_pane(
        self, overview: TopicProgress, metric: Metric, start_ms: int
    ) -> int | None:
        """Return the start of the first pane that a partition has closed; None if there is none.

        Parameters
        ----------
        overview : TopicProgress
        metric : Metric
        start_ms : int
            The earliest start, in ms since the epoch.
        """
        overview.require_readable()
        key, partitions = metric_key(metric.name, metric.revision), overview.partitions
        marks = (progress.watermarks.get(key, Watermark()) for progress in partitions.values())
        last = max((mark.closed for mark in marks), default=NO_TIME) - metric.pane_ms
        return min(
            self.store.panes.first_starts(key, [*partitions], start_ms, last, 1), default=None
        )

    def finality_watermarks(
        self, overview: TopicProgress, partitions: int | None = None
    ) -> dict[str, int]:
        """Return the event time in ms before which every window is final, by metric.

        Metrics with rounds, and metrics without a final window, are left out. `partitions` is the
        topic's number of partitions in Kafka; by default the last number that workers stored.
        """
        overview.require_readable()
        watermarks = {
            name: overview.closed(metric_key(name, metric.revision), partitions)
            for name, metric in self.metrics.items()
            if not isinstance(metric, SearchMetric)
        }
        return {name: closed for name, closed in watermarks.items() if closed != NO_TIME}


def sums_key(window: Window) -> tuple[Hashable, ...]:
    """Return a key made of a window's sums and all else on which its estimate depends."""
    start, changed, panes = window.start_ms, window.changed_ms, window.panes
    was_changed = changed is not None and (start is None or start < changed)
    width = (start, window.end_ms) if panes is None else panes
    digest = hashlib.blake2b(window.sums.tobytes(), digest_size=16).digest()
    return window.status, window.policy, window.slides, was_changed, width, digest
