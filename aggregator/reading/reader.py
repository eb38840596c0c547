"""Reads estimates of metrics, from the sums in Redis."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Self, Unpack, overload

from aggregator.config.definitions import load_definitions
from aggregator.config.settings import Settings, load_settings
from aggregator.reading.backlog import Backlog, read_backlog
from aggregator.reading.frames.estimates import WindowEstimate, with_window
from aggregator.reading.plans import LocalPlan
from aggregator.reading.plans.window_reader import WindowReader
from aggregator.reading.query import (
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
from aggregator.reading.series import Series, SeriesReader
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.window import Window
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from estimators import Metric


class MetricReader(WindowReader):
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
        super().__init__(store, metrics)

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings in force, which are loaded if an argument is missing.

        Raises
        ------
        SettingsError
            If a setting is invalid; it names the source, the key and what was expected.
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
            return self.answer_slices(window, query)
        return with_window(window, self.cached_answer(window, query))

    @staticmethod
    def answer_slices(window: Window, query: Query, progress: Progress = ignore_progress) -> Slices:
        """Return the estimates of the slices of a window, whose content was read before.

        Parameters
        ----------
        window, query, progress
            As for :meth:`aggregator.reading.plans.local.LocalPlan.answer_slices`.
        """
        return LocalPlan.answer_slices(window, query, progress)

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
        start, end : datetime, str, float (seconds since the epoch) or None
            The range, as for :meth:`estimate`; None for its first report, or its last.
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
        return SeriesReader(self).series(query)

    def backlog(self) -> Backlog:
        """Return how many messages in Kafka are not counted, and whether workers count."""
        return read_backlog(self.settings, self.store.overview())
