"""The base class of plans, by which the metrics of one way of collection are read."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import msgspec

from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import PaneSums
from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.serialization import definition
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from estimators import Estimate, Metric

UNSHARED_BOUNDS = "its bounds cannot be shared among windows"
M = TypeVar("M", bound=Metric)


class ReadingPlan(ABC, Generic[M]):
    """Reads windows of a metric, and answers queries; each way of collection has a subclass."""

    def __init__(self, sums: PaneSums, metric: M) -> None:
        self.sums, self.store, self.metric = sums, sums.store, metric
        self.key = metric_key(metric.name, metric.revision)

    @functools.cached_property
    def definition_hash(self) -> str:
        """A hash of the definition, which determines an answer together with the sums."""
        return hashlib.sha256(msgspec.json.encode(definition(self.metric))).hexdigest()

    @abstractmethod
    def describe(self, overview: TopicProgress, query: Query, grouping: Grouping | None) -> Window:
        """Return a window without its content; raise ValueError if the metric has no such window.

        `overview`, `query`, `grouping`: the progress of counting, the query, and how it groups
        reports into slices.
        """

    @abstractmethod
    def read(self, window: Window) -> Window:
        """Return a window with its content."""

    @staticmethod
    @abstractmethod
    def answer(window: Window, query: Query) -> Estimate:
        """Return the estimate from a window; raise ValueError if the query does not fit it."""

    @abstractmethod
    def series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the plan of a series; raise ValueError if the query does not fit the metric."""


@dataclasses.dataclass(frozen=True)
class SeriesPlan:
    """The windows of a series.

    Attributes
    ----------
    reading : ReadingPlan
        Reads the windows.
    window : Window
        The full range, without its content.
    step_ms : int
        The length of a step.
    windows : list of Window
        The window of each step, with its status.
    released : list of Estimate, optional
        With trusted collection: the release of each step.
    """

    reading: ReadingPlan[Any]
    query: SeriesQuery
    window: Window
    step_ms: int
    windows: list[Window]
    released: list[Estimate] | None = None

    @property
    def version(self) -> str:
        """A hash that changes whenever the answer may change."""
        shown = [(window.start_ms, window.status) for window in self.windows]
        facts = (self.window.version, self.step_ms, shown)
        return hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()
