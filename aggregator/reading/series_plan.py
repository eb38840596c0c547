"""The plan of a series: its windows before they are read."""

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
        The full range, unread.
    windows : list of Window
        One for each step, with its status.
    released : list of Estimate, optional
        With trusted collection: the releases, one for each step.
    """

    query: SeriesQuery
    window: Window
    step_ms: int
    windows: list[Window]
    released: list[Estimate] | None = None

    @property
    def version(self) -> str:
        """A hash that changes whenever the answer may have changed."""
        shown = [(window.start_ms, window.status) for window in self.windows]
        facts = (self.window.version, self.step_ms, shown)
        return hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()

    @property
    def policy(self) -> str:
        """The weights."""
        return self.query.weights or self.window.policy
