"""Reads estimates of metrics by their plans, from the sums in Redis."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, Unpack, overload

from aggregator.config.definitions import load_definitions
from aggregator.config.settings import Settings, load_settings
from aggregator.errors import StateUnreadable, UnknownMetric
from aggregator.reading.backlog import Backlog, read_backlog
from aggregator.reading.frames.estimates import WindowEstimate, with_window
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import PaneSums
from aggregator.reading.plans import LocalPlan, ReadingPlan, plan_for
from aggregator.reading.plans.base import SeriesPlan
from aggregator.reading.plans.local import EstimateCache
from aggregator.reading.query import (
    RUNNING_TOTAL,
    EstimateOptions,
    Length,
    Progress,
    Query,
    SeriesOptions,
    SeriesQuery,
    Start,
    Time,
    ignore_progress,
    length_text,
)
from aggregator.reading.series import Series, merged_bins, read_series
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.window import Window, WindowStatistic
from aggregator.size_pieces import pieces
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME
from aggregator.storage.connection import connect
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from estimators import Estimate, LocalMetric, Metric, SearchMetric
from estimators.durations import above_zero
from estimators.errors import meant
from estimators.estimate import Counts

MAX_TOTALS_PER_READ, MAX_TOTALS_BYTES = 100, 32_000_000
"""The most running totals in a read, and the most bytes of their sums."""


class MetricReader:
    """Answers queries about a single metric, from the sums in Redis.

    :class:`aggregator.features.reader.Reader` describes its parameters and errors.
    """

    def __init__(
        self,
        store: str | Store | None = None,
        metrics: Mapping[str, Metric] | str | os.PathLike[str] | None = None,
        topic: str | None = None,
        *,
        config: str | os.PathLike[str] | None = None,
    ) -> None:
        self.config = config
        if metrics is None or isinstance(metrics, str | os.PathLike):
            metrics = load_definitions(self.settings.metrics if metrics is None else metrics)
        if not isinstance(store, Store):
            url = self.settings.redis.url if store is None else store
            topic = self.settings.topics.reports if topic is None else topic
            store = Store(connect(url), topic)
        self.store, self.metrics = store, metrics
        self.sums, self.estimates = PaneSums(store), EstimateCache()
        self._plans: dict[str, ReadingPlan[Any]] = {}

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings in force, which are loaded if an argument is missing.

        Raises SettingsError if a setting is invalid; it names the source, the key and what was
        expected.
        """
        return load_settings(None if self.config is None else os.fspath(self.config))

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store's connections."""
        self.store.client.close()

    @overload
    def estimate(
        self,
        name: str,
        start: Start = None,
        end: Time = None,
        *,
        by: str | Sequence[str],
        **options: Unpack[EstimateOptions],
    ) -> Slices: ...

    @overload
    def estimate(
        self, name: str, start: Start = None, end: Time = None, **options: Unpack[EstimateOptions]
    ) -> WindowEstimate: ...

    def estimate(
        self,
        name: str,
        start: Start = None,
        end: Time = None,
        *,
        by: str | Sequence[str] = (),
        **options: Unpack[EstimateOptions],
    ) -> WindowEstimate | Slices:
        """Estimate a metric over a window of event time.

        Parameters
        ----------
        name : str
            The metric's name.
        start, end : datetime, str, float (seconds since the epoch) or None
            The window [start, end), widened to whole panes; None for no limit. A start may be a
            duration before the end: ``reader.estimate("delay", "7d")`` is about the last week.
        by : str or sequence of str
            Attributes of devices; there is an estimate for each combination of their values.
        **options
            The other fields of :class:`aggregator.reading.query.Query`.

        Returns
        -------
        WindowEstimate or Slices
            An :class:`estimators.Estimate` with its window, a table (``to_frame``) and a picture
            (``plot``). Its status is ``not_ready``, ``too_few_reports``, ``provisional``,
            ``final`` or ``expired``. For a metric with trusted collection it is the latest release
            in the window. With attributes in `by`, there is an estimate for each slice.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty, or a release was drawn with other parameters.
        """
        query = Query(start, end, by=by, **options)
        window = self.window(name, query)
        if query.by:
            return LocalPlan.answer_slices([window], query)[0]
        return with_window(window, self.cached_answer(window, query))

    def series(
        self,
        name: str,
        start: Start = None,
        end: Time = None,
        *,
        step: Length | None = None,
        **options: Unpack[SeriesOptions],
    ) -> Series:
        """Estimate a metric over time: for each step of event time, at most 1,000.

        Parameters
        ----------
        name : str
            The metric's name.
        start, end : datetime, str, float (seconds since the epoch) or None
            The range, as for :meth:`estimate`; None for the first pane in Redis, or the last.
        step : str or timedelta, optional
            The duration of a step, widened to whole panes; by default there are about 200 steps.
        **options
            The other fields of :class:`aggregator.reading.query.SeriesQuery`.

        Returns
        -------
        Series
            The series; its ``points`` are in ascending order of time.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the range is empty, or too long for the step, or a release was drawn with other
            parameters.
        """
        width = None if step is None else length_text("step", step)
        query = SeriesQuery(start, end, metric=name, step=width, **options)
        return self.read_series(self.plan_series(query))

    def plan_series(self, query: SeriesQuery) -> SeriesPlan:
        """Return the plan of a series, for :meth:`read_series`; no panes are read."""
        window = self.describe(self.progress(query.metric), query.metric, query)
        if query.bins is not None:
            merged_bins(window.metric, query.bins)
        return self._plan(window.metric).series(window, query)

    def read_series(self, plan: SeriesPlan, progress: Progress = ignore_progress) -> Series:
        """Read and estimate a series; `progress` is called with the share of finished points."""
        return read_series(plan, self.estimates, progress)

    def backlog(self) -> Backlog:
        """Return how many messages in Kafka are not counted, and whether workers count."""
        return read_backlog(self.settings, self.store.overview())

    def metric(self, name: str) -> Metric:
        """Return a metric by name.

        Raises UnknownMetric if there is no such metric; the error suggests the nearest name.
        """
        if name not in self.metrics:
            raise UnknownMetric(name, meant(name, self.metrics))
        return self.metrics[name]

    def definition_hash(self, metric: Metric) -> str:
        """Return a hash of a definition, which determines an answer together with the sums."""
        return self._plan(metric).definition_hash

    def window(self, name: str, query: Query = RUNNING_TOTAL) -> Window:
        """Return a window with its content; the errors are those of :meth:`describe`."""
        return self.read(self.describe(self.progress(name), name, query))

    def windows(
        self,
        questions: Sequence[tuple[str, Query]],
        overview: TopicProgress | None = None,
        *,
        are_final: bool = False,
    ) -> list[Window]:
        """Return windows with their contents, in the round trips of one window.

        `questions`: the metric and the query of each window; `overview`: the progress of counting;
        it is read if it is not given; `are_final`: whether the windows are known to be final, as in
        :meth:`read_final`.
        """
        if overview is None:
            overview = self.progress(*dict.fromkeys(name for name, _ in questions))
        windows = [self.describe(overview, *question) for question in questions]
        if are_final:
            windows = [*map(_as_final, windows)]
        return self.store.together(*(functools.partial(self.read, window) for window in windows))

    def progress(self, *names: str) -> TopicProgress:
        """Return the progress of metrics by name; raise UnknownMetric if one is not defined."""
        return self.store.progress(*map(self.metric, names))

    def describe(self, overview: TopicProgress, name: str, query: Query = RUNNING_TOTAL) -> Window:
        """Return a window without its content.

        `overview`: the progress of counting; `name`: the metric's name; `query`: the parameters of
        the query.

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

    def describe_closed(self, name: str, query: Query = RUNNING_TOTAL) -> tuple[Window, int | None]:
        """Return a window of closed panes, for a search for strings, and how many panes it has.

        `name`: the metric's name; `query`: the query, of which only the window is used. The errors
        are those of :meth:`describe`.

        Returns
        -------
        window : Window
            The window, without its sums.
        reading : int or None
            The number of closed panes if the window is all panes so far; None if its end is fixed.

        Raises
        ------
        ValueError
            If the metric has no search for strings, or both a length and an edge are given.
        """
        metric = LocalMetric.require(self.metric(name))
        metric.require_discovery()
        start, end, length = query.stretch
        overview = self.progress(name)
        reading, closed_ms = None, self.finality_watermarks(overview).get(name)
        if length is not None and (start, end) != (None, None):
            raise ValueError(f"window = {length!r} and a start or an end: expected one of the two")
        if closed_ms is not None:
            closed_ms = metric.pane_start(closed_ms)
        if closed_ms is not None and length is not None:
            end = closed_ms / 1000
            start = (closed_ms - above_zero("window", length)) / 1000
        elif closed_ms is not None and end is None:
            end = closed_ms / 1000
            key = metric_key(metric.name, metric.revision)
            extent = overview.extent(key, overview.partitions)
            first = closed_ms if extent is None else extent[0]
            reading = max(1, (closed_ms - first) // metric.pane_ms)
        return self.describe(overview, name, Query(start, end)), reading

    def read(self, window: Window) -> Window:
        """Return a window with its content: its sums, its release, or a search's progress."""
        return self._plan(window.metric).read(window)

    def read_final(self, overview: TopicProgress, name: str, query: Query) -> Window:
        """Return a window that is known to be final; "provisional" if Redis lost data meanwhile.

        `overview`, `name`, `query`: as for :meth:`describe`.
        """
        return self.read(_as_final(self.describe(overview, name, query)))

    @staticmethod
    def answer(window: Window, query: Query = RUNNING_TOTAL) -> Estimate:
        """Return the estimate from a window and its content; the query's times are not used."""
        return plan_for(type(window.metric)).answer(window, query)

    def cached_answer(self, window: Window, query: Query = RUNNING_TOTAL) -> Estimate:
        """Return :meth:`answer`, from the cache if the window's sums were estimated before."""
        plan = self._plan(window.metric)
        if isinstance(plan, LocalPlan) and isinstance(window.content, WindowStatistic):
            return plan.cached_answer(window, query, self.estimates)
        return plan.answer(window, query)

    def read_totals(self, windows: Iterable[Window]) -> Iterator[Window | None]:
        """Yield running totals with their sums, many of which are read together.

        For a window of another kind, and for windows read together with an unreadable one, it
        yields None: the caller has to use :meth:`read`.
        """
        for batch in pieces(windows, _total_bytes, MAX_TOTALS_BYTES, MAX_TOTALS_PER_READ):
            totals = [
                window
                for window in batch
                if window.is_running_total and isinstance(self._plan(window.metric), LocalPlan)
            ]
            sums: dict[str, Counts] = {}
            with contextlib.suppress(StateUnreadable):
                sums = self.sums.read_totals(totals)
            for window in batch:
                statistic = sums.get(window.metric.name)
                yield None if statistic is None else window.with_sums(statistic)

    def _plan(self, metric: Metric) -> ReadingPlan[Any]:
        plan = self._plans.get(metric.name)
        if plan is None or plan.metric is not metric:  # new, or redefined
            plan = self._plans[metric.name] = plan_for(type(metric))(self.sums, metric)
        return plan

    def finality_watermarks(
        self, overview: TopicProgress, partitions: int | None = None
    ) -> dict[str, int]:
        """Return the event time in ms before which every window is final, by metric.

        Metrics with rounds, and metrics without a final window, are omitted. `partitions` is the
        topic's number of partitions in Kafka; by default the last number that workers stored.
        """
        overview.require_readable()
        watermarks = {
            name: overview.closed(metric_key(name, metric.revision), partitions)
            for name, metric in self.metrics.items()
            if not isinstance(metric, SearchMetric)
        }
        return {name: closed_ms for name, closed_ms in watermarks.items() if closed_ms != NO_TIME}


def _total_bytes(window: Window) -> int:
    """Return the largest size of the sums that are read for a running total."""
    return window.metric.zero().nbytes * len(window.watermarks)


def _as_final(window: Window) -> Window:
    return dataclasses.replace(window, status="final", arrived_ms=NO_TIME)
