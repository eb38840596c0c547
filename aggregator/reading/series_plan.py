"""Plans which panes a series reads."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.windows import Window
from estimators import Estimate


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a series before its panes are read.

    Attributes
    ----------
    start_ms, end_ms : int
    status : str
        See :class:`aggregator.reading.windows.Window`.
    """

    start_ms: int
    end_ms: int
    status: str


@dataclasses.dataclass(frozen=True)
class SeriesPlan:
    """The panes to read for a series.

    Attributes
    ----------
    query : SeriesQuery
    window : Window
        The whole range, unread.
    step_ms : int
    steps : list of Step
    released : list of Estimate, optional
        Of a metric that is collected in trust: the releases, one for each step.
    """

    query: SeriesQuery
    window: Window
    step_ms: int
    steps: list[Step]
    released: list[Estimate] | None = None

    @property
    def version(self) -> str:
        """Changes whenever the answer may have changed."""
        shown = [(step.start_ms, step.status) for step in self.steps]
        facts = (self.window.version, self.step_ms, shown)
        return hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()

    @functools.cached_property
    def point_query(self) -> Query:
        """The query of each point, for any stretch of event time."""
        windows = max(1, len(self.steps)) if self.query.all_points else 1
        whole = dataclasses.replace(self.query, start=None, end=None, window=None)
        return dataclasses.replace(whole, windows=windows, step=None, top=None, bins=None)

    @property
    def policy(self) -> str:
        """The weights."""
        return self.query.weights or self.window.policy
