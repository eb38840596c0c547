"""The plan of a series: its steps before they are read."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.window import Window
from estimators import Estimate


@dataclasses.dataclass(frozen=True)
class SeriesStep:
    """A step of a series, with the status of its window."""

    start_ms: int
    end_ms: int
    status: str


@dataclasses.dataclass(frozen=True)
class SeriesPlan:
    """The steps of a series over a window.

    Attributes
    ----------
    window : Window
        The full range, unread.
    released : list of Estimate, optional
        With trusted collection: the releases, one for each step.
    """

    query: SeriesQuery
    window: Window
    step_ms: int
    steps: list[SeriesStep]
    released: list[Estimate] | None = None

    @property
    def version(self) -> str:
        """A hash that changes whenever the answer may have changed."""
        shown = [(step.start_ms, step.status) for step in self.steps]
        facts = (self.window.version, self.step_ms, shown)
        return hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()

    @functools.cached_property
    def point_query(self) -> Query:
        """The query of each point, without start and end."""
        windows = max(1, len(self.steps)) if self.query.all_points else 1
        unbounded_query = dataclasses.replace(self.query, start=None, end=None, window=None)
        return dataclasses.replace(unbounded_query, windows=windows, step=None, top=None, bins=None)

    @property
    def policy(self) -> str:
        """The weights."""
        return self.query.weights or self.window.policy
