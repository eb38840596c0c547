"""Reads the estimates of metrics from Redis."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, overload

from aggregator.config.comparison_definitions import REST
from aggregator.config.live_metrics import watches
from aggregator.config.settings import Settings, load_settings
from aggregator.config.watches import load_definitions
from aggregator.reading.backlog import Backlog, read_backlog
from aggregator.reading.comparisons.arms import compare_arms
from aggregator.reading.comparisons.compared import Compared, CompareQuery
from aggregator.reading.comparisons.living import Living, definition_of, living
from aggregator.reading.discovery.answers import Discovered, discover_strings
from aggregator.reading.frames.estimates import WindowEstimate, with_window
from aggregator.reading.plans import LocalPlan
from aggregator.reading.plans.window_reader import WindowReader
from aggregator.reading.query import (
    Length,
    Progress,
    Query,
    SeriesQuery,
    Start,
    Time,
    length_text,
    unwatched,
)
from aggregator.reading.series import Series, SeriesReader
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.windows import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from estimators import LocalMetric, Metric
from estimators.durations import above_zero


class Reader(WindowReader):
    """Answers questions about metrics from the sums in Redis.

    What is not named is what the settings say that the command line would use: those of the
    settings file, and of ``DITHER_*`` variables. As a context manager, it closes its store's
    connections.

    Wherever a time is taken it may be a datetime with a time zone, text in ISO 8601 (UTC unless it
    names a zone) or seconds since the epoch. A datetime without a time zone is refused. A duration
    is text such as ``"7d"``, or a timedelta.

    Parameters
    ----------
    store : str or Store, optional
        A Redis URL, or a store that is open already; by default ``redis.url`` of the settings.
    metrics : mapping of str to Metric, or path, optional
        The definitions, or their file; by default ``metrics`` of the settings.
    topic : str, optional
        The reports topic, used with a URL; by default ``topics.reports`` of the settings.
    config : path, optional
        The settings file; by default the one in DITHER_CONFIG, else ``dither.toml`` if there is
        one.

    Raises
    ------
    DitherError
        If the settings cannot be used, or there is no file of definitions.
    StoreUnreachable
        If no Redis answers at the URL.
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
        super().__init__(store, metrics)

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings in force; where everything is named, they are not looked at.

        Raises
        ------
        SettingsError
            Naming the source, the key, the value and what was expected.
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
        self, name: str, start: Start = None, end: Time = None, *, by: Sequence[str], **options: Any
    ) -> Slices: ...

    @overload
    def estimate(
        self, name: str, start: Start = None, end: Time = None, **options: Any
    ) -> WindowEstimate: ...

    def estimate(
        self, name: str, start: Start = None, end: Time = None, **options: Any
    ) -> WindowEstimate | Slices:
        """Estimate a metric over a window of event time.

        Parameters
        ----------
        name : str
        start, end : datetime, str, float (seconds since the epoch) or None
            The window [start, end), widened to whole panes; None: unbounded. A start may be a
            duration back from the end: ``reader.estimate("delay", "7d")`` is the last week.
        **options
            The other fields of :class:`aggregator.reading.query.Query`: ``window``, ``beta``,
            ``weights``, ``bound``, ``target``, ``categories`` and so on.

        Returns
        -------
        WindowEstimate or Slices
            An :class:`estimators.Estimate` with its window, that is also a table (``to_frame``) and
            a picture (``plot``). It has a status: ``not_ready``, ``too_few_reports``,
            ``provisional``, ``final`` or ``expired``. Of a metric that is collected in trust, the
            latest release of a pane in the window. With attributes in `by`, an estimate for each of
            their slices.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty, or a release was not drawn as it is asked for.
        """
        query = Query(start, end, **options)
        window = self.window(name, query)
        if query.by:
            return self.answer_slices(window, query)
        return with_window(window, self.answer(window, query))

    @staticmethod
    def answer_slices(window: Window, query: Query, progress: Progress = unwatched) -> Slices:
        """Estimate each slice of a window that was read before.

        Parameters
        ----------
        window : Window
        query : Query
            With attributes in `by`.
        progress : callable
            Is told the share of the work that is done; what it raises ends the work.

        Raises
        ------
        ValueError
            If it cannot be asked so.
        """
        return LocalPlan.answer_slices(window, query, progress)

    @functools.cached_property
    def _history(self) -> SeriesReader:
        return SeriesReader(self)

    def series(
        self,
        name: str,
        start: Start = None,
        end: Time = None,
        *,
        step: Length | None = None,
        **options: Any,
    ) -> Series:
        """Estimate a metric over time: for each step of event time, at most 1,000.

        Parameters
        ----------
        name : str
        start, end : datetime, str, float (seconds since the epoch) or None
            The range, as for :meth:`estimate`; None: where the reports begin, or end.
        step : str or timedelta, optional
            A duration, widened to whole panes; by default one that makes about 200 points.
        **options
            The other fields of :class:`aggregator.reading.query.SeriesQuery`.

        Returns
        -------
        Series
            With ``points``, the oldest first.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the range is empty, or too long for the step; or if a release was not drawn as it is
            asked for.
        """
        width = None if step is None else length_text("step", step)
        return self._history.series(SeriesQuery(start, end, metric=name, step=width, **options))

    def compare(
        self,
        name: str,
        where: Mapping[str, str | None] | None = None,
        against: Mapping[str, str | None] | Literal["rest"] = REST,
        **options: Any,
    ) -> Compared:
        """Compare two slices, a slice with the rest, two windows, or two metrics.

        Parameters
        ----------
        name : str
        where : mapping of str to str, optional
            The slice of the first arm; by default all.
        against : mapping of str to str, or "rest"
            That of the second arm.
        **options
            ``against_start``, ``against_end`` and ``against_window``: the window of the second arm,
            by default that of the first. ``of``, ``split``, ``other``, ``independent`` and ``each``
            as in
            :class:`aggregator.reading.comparisons.arms.CompareQuery`. All others: fields of
            :class:`aggregator.reading.query.Query`.

        Returns
        -------
        Compared
            With ``value``, ``lower``, ``upper``, ``p_value`` and ``law``.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the arms cannot be compared, with the reason.
        """
        query = CompareQuery.of_options(where or {}, against, **options)
        (found,) = self.compare_all(name, query)
        return found

    def compare_all(
        self, name: str, query: CompareQuery, progress: Progress = unwatched
    ) -> list[Compared]:
        """Compare two arms, or each slice of a grouping with the rest.

        Parameters
        ----------
        name : str
        query : CompareQuery
        progress : callable
            Is told the share of the work that is done; what it raises ends the work.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the arms cannot be compared, with the reason.
        """
        if query.other is not None:
            self.metric(query.other)
        return compare_arms(self.window, self.metric(name), query, progress)

    def discover(
        self,
        name: str,
        start: Start = None,
        end: Time = None,
        *,
        window: Length | None = None,
        beta: float = 0.05,
        progress: Progress = unwatched,
    ) -> Discovered:
        """Find the frequent strings of a metric with ``discover = true``.

        Parameters
        ----------
        name : str
        start, end : datetime, str, float (seconds since the epoch) or None
            The window [start, end), widened to whole panes. Without an end: up to the last pane
            that every partition has closed, for good.
        window : str or timedelta, optional
            Instead of start and end: a duration such as ``"1d"``, the last closed one.
        beta : float
            The probability, at most, that a string is shown which nobody holds, or that an interval
            does not hold.
        progress : callable
            Is told the share of the work that is done; what it raises ends the work.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the metric does not discover strings, or the window is empty.
        """
        described, reading = self.describe_discovery(name, start, end, window=window)
        return discover_strings(self.read(described), beta, reading, progress)

    def describe_discovery(
        self, name: str, start: Start = None, end: Time = None, *, window: Length | None = None
    ) -> tuple[Window, int | None]:
        """Return the window of a discovery, not read, and which reading of all panes it is.

        Parameters
        ----------
        name : str
        start, end : datetime, str, float (seconds since the epoch) or None
            As for :meth:`discover`, which also says what is raised.
        window : str or timedelta, optional

        Returns
        -------
        window : Window
        reading : int or None
            The number of panes that were closed since the first one; None where an end was asked
            for.

        Raises
        ------
        ValueError
            If a window stands beside a start or an end.
        """
        metric = LocalMetric.require(self.metric(name))
        metric.require_discovery()
        start, end, length = Query(start, end, window=window).stretch
        overview = self.store.overview()
        reading, closed = None, self.finality_watermarks(overview).get(name)
        if length is not None and (start, end) != (None, None):
            raise ValueError(f"window = {length!r} and a start or an end: expected one of the two")
        if closed is not None:
            closed = metric.pane_start(closed)
        if closed is not None and length is not None:
            end = closed / 1000
            start = (closed - above_zero("window", length)) / 1000
        elif closed is not None and end is None:
            end = closed / 1000
            key = metric_key(metric.name, metric.revision)
            extent = self.store.panes.extent(key, [*overview.partitions])
            first = closed if extent is None else extent[0]
            reading = max(1, (closed - first) // metric.pane_ms)
        return self.describe(overview, name, Query(start, end)), reading

    def comparison(self, name: str, *, each: bool = False) -> Living:
        """Return how a comparison of the definitions stands now.

        Parameters
        ----------
        name : str
        each : bool
            Whether both arms have bounds, too, which share beta.

        Returns
        -------
        Living
            With ``value``, ``lower``, ``upper``, ``p_value``, ``decided`` and ``decided_at``.

        Raises
        ------
        UnknownComparison
            Naming the nearest known one.
        """
        return living(self, definition_of(self.metrics, name), each=each)

    def comparisons(self, *, each: bool = False, progress: Progress = unwatched) -> list[Living]:
        """Return how all comparisons of the definitions stand now.

        Parameters
        ----------
        each : bool
            As for :meth:`comparison`.
        progress : callable
            As for :meth:`discover`.
        """
        known, found = [*watches(self.metrics).comparisons.values()], list[Living]()
        for one in known:
            progress(len(found) / len(known))
            found.append(living(self, one, each=each))
        return found

    def backlog(self) -> Backlog:
        """Return how much of Kafka's log no answer contains yet, and whether somebody counts.

        The brokers are those of the settings.
        """
        return read_backlog(self.settings, self.store.overview())
