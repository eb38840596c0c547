"""The plan of a series: the windows to read for it."""

from __future__ import annotations

import dataclasses
import hashlib

from aggregator.reading.query import SeriesQuery
from aggregator.reading.window import Window
from estimators import Estimate


@dataclasses.dataclass(frozen=True)
class SeriesPlan:
    """The windows of a series.

    Attributes
    ----------
    window : Window
        The full range, without its content.
    windows : list of Window
        The window of each step, with its status.
    released : list of Estimate, optional
        With trusted collection: the release of each step.
    """

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

    @property
    def policy(self) -> str:
        """The weight policy of the series."""
        return self.query.weights or self.window.policy
