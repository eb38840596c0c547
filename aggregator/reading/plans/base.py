"""The base class of plans, by which the metrics of one way of collection are read."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, Generic, TypeVar

from aggregator.errors import StateUnreadable
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import PaneSums
from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.series_plan import SeriesPlan
from aggregator.reading.window import Window, edges, last_edges
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage.progress import TopicProgress
from aggregator.storage.redis_keys import policies_key
from estimators import Estimate, Metric
from estimators.durations import above_zero

UNSHARED_BOUNDS = "its bounds cannot be shared among windows"
M = TypeVar("M", bound=Metric)


class ReadingPlan(ABC, Generic[M]):
    """Reads windows of a metric, and answers queries; each way of collection has a subclass."""

    def __init__(self, sums: PaneSums, metric: M) -> None:
        self.sums, self.store, self.metric = sums, sums.store, metric
        self.key = metric_key(metric.name, metric.revision)

    @abstractmethod
    def describe(self, overview: TopicProgress, query: Query, grouping: Grouping | None) -> Window:
        """Return a window without its content; raise ValueError if the metric has no such window.

        Parameters
        ----------
        overview, query, grouping
        """

    @abstractmethod
    def read(self, window: Window) -> Window:
        """Return a window with its content."""

    @staticmethod
    @abstractmethod
    def answer(window: Window, query: Query) -> Estimate:
        """Return the estimate from a window; raise ValueError for a query that the metric lacks."""

    @abstractmethod
    def series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the plan of a series; raise ValueError if the query does not fit the metric."""

    def policy(self, overview: TopicProgress) -> str:
        """Return the weight policy in force.

        Raises
        ------
        StateUnreadable
            If the stored policy does not fit the metric.
        """
        policies = self.metric.policies
        policy = overview.policies.get(self.metric.name, policies[0])
        if policy not in policies:
            location = f"{policies_key(self.store.topic)}, field {self.metric.name}"
            raise StateUnreadable(location, repr(policy), f"one of {', '.join(policies)}")
        return policy

    def watermarks(self, overview: TopicProgress) -> dict[int, Watermark]:
        """Return the watermark in each partition that has counted the metric."""
        return {
            number: progress.watermarks[self.key]
            for number, progress in overview.partitions.items()
            if self.key in progress.watermarks
        }

    def edges(
        self, overview: TopicProgress, query: Query, watermarks: dict[int, Watermark]
    ) -> tuple[int | None, int | None]:
        """Return the start and end of a query's window, widened to whole panes.

        Parameters
        ----------
        overview, query, watermarks

        Raises
        ------
        ValueError
            If the query has a length and a start or an end, or the window is empty.
        """
        start, end, length = query.stretch
        if length is None:
            return edges(self.metric, start, end)
        if start is not None or end is not None:
            raise ValueError(
                f"window = {length!r} and a start or an end: expected only one of the two"
            )
        above_zero("window", length)
        extent = self.extent(overview, watermarks)
        return (None, None) if extent is None else last_edges(self.metric, length, extent[1])

    def extent(
        self, overview: TopicProgress, partitions: Collection[int]
    ) -> tuple[int, int] | None:
        """Return the starts of the first and last pane in partitions, in ms; None without panes."""
        if any(overview.partitions[number].extents is None for number in partitions):
            return self.store.panes.extent(self.key, [*partitions])
        return overview.extent(self.key, partitions)

    def window(
        self,
        overview: TopicProgress,
        query: Query,
        watermarks: dict[int, Watermark],
        facts: tuple[object, ...],
        **fields: Any,
    ) -> Window:
        """Return a window without its content.

        Parameters
        ----------
        overview, query, watermarks
        facts : tuple
            All values on which the content depends; the window's version is their hash.
        **fields
            The other fields of the window.
        """
        arrived_ms = max((mark.arrived for mark in watermarks.values()), default=NO_TIME)
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()
        changed = overview.policy_changed_ms(self.metric.name)
        return Window(
            metric=self.metric,
            arrived_ms=arrived_ms,
            watermarks=watermarks,
            version=digest if changed is None else f"{digest}-{changed}",
            overview=overview,
            slides=query.window is not None,
            changed_ms=changed,
            **fields,
        )

    def count_version(self, overview: TopicProgress) -> list[tuple[object, ...]]:
        """Return a value that changes whenever reports of the metric are counted."""
        name = f"accepted:{self.metric.name}"
        return [
            (number, progress.owner.get("token"), progress.counts.get(name))
            for number, progress in overview.partitions.items()
        ]
