"""What is asked of a series, and what is to be read for it."""

from __future__ import annotations

import dataclasses
import hashlib

from aggregator.reading.coverage import Looks
from aggregator.reading.windows import Time, TimeRange, Window
from estimators import Estimate


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesQuery:
    """What is asked of a series.

    Parameters
    ----------
    metric : str
    start, end, window
        As of :meth:`aggregator.reading.reader.Reader.window`; by default everything that was
        counted.
    step : str, optional
        A duration, widened to whole panes; by default one that makes about 200 points.
    top : int, optional
        Keep so many categories or coordinates: those that are largest over the whole range.
    beta, weights, categories, simultaneous
        As of :meth:`aggregator.reading.reader.Reader.answer`.
    all_points : bool
        Whether the bounds cover all points of the answer together.
    weights_fixed : bool
        See :class:`aggregator.reading.coverage.Looks`.
    """

    metric: str
    start: Time = None
    end: Time = None
    window: str | None = None
    step: str | None = None
    beta: float = 0.05
    weights: str | None = None
    categories: tuple[str, ...] | None = None
    top: int | None = None
    simultaneous: bool = True
    all_points: bool = False
    weights_fixed: bool = False

    @property
    def range(self) -> TimeRange:
        """The stretch of event time."""
        return TimeRange(self.start, self.end, self.window)


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
    """What is to be read for a series.

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

    @property
    def looks(self) -> Looks:
        """What the bounds of a point cover."""
        windows = max(1, len(self.steps)) if self.query.all_points else 1
        return Looks(windows=windows, weights_fixed=self.query.weights_fixed)

    @property
    def policy(self) -> str:
        """The weights."""
        return self.query.weights or self.window.policy
