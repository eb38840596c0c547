"""Minimum and maximum metrics, which are searched for in rounds."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Self

from estimators.durations import milliseconds
from estimators.errors import DefinitionError
from estimators.extremes import Search
from estimators.extremes.binary_search import EXPECTED_ROUNDS
from estimators.mechanisms import RandomizedResponse
from estimators.metrics.domains import ValueRange
from estimators.metrics.kinds import KINDS, Way
from estimators.metrics.metric import Metric
from estimators.metrics.validation import check_duration, check_number


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchMetric(Metric):
    """A minimum or maximum; a report is a randomized answer on whether a value reaches a threshold.

    Each round is decided from its answers alone, so a single statistic gives no estimate: see
    :class:`estimators.extremes.Search`.

    Other parameters are those of :class:`estimators.metrics.metric.Metric`.

    Parameters
    ----------
    rounds, split, beta, critical
        See :class:`estimators.extremes.Search`.
    round_reports : int, optional
        The number of answers after which a round closes; by default a round closes only by time.
    round_time : str
        The time after which a round closes, as soon as `minimum_reports` answers are counted.
    """

    way: ClassVar[Way] = Way.SEARCH
    answered: ClassVar[str] = (
        "is searched for in rounds, each decided by itself: use `search.estimate`"
    )

    rounds: int = dataclasses.field(metadata={"expected": EXPECTED_ROUNDS})
    split: str = "users"
    beta: float = 0.05
    critical: str = "law"
    round_reports: int | None = None
    round_time: str = "1h"

    @classmethod
    def require(cls, metric: Metric) -> Self:
        """Return `metric` if it is a search; raise ValueError if not."""
        if not isinstance(metric, cls):
            kinds = " or ".join(repr(name) for name, kind in KINDS.usable() if cls.way in kind.ways)
            raise ValueError(
                f"metric {metric.name!r} of kind {metric.kind!r} has no rounds: expected one of "
                f"kind {kinds}"
            )
        return metric

    def check(self) -> None:
        """Raise DefinitionError if a key, or a parameter of the search, is invalid."""
        super().check()
        if self.mechanism not in ("", RandomizedResponse.name):
            self.refuse("mechanism", f"none, or {RandomizedResponse.name!r}: answers are bits")
        self.require_key(check_duration, "round_time")
        self.require_key(check_number, "round_reports")
        try:
            self.search  # noqa: B018
        except DefinitionError as error:
            self.refuse(error.key, error.expected)

    @property
    def mechanism_class(self) -> type[RandomizedResponse]:
        """The class of the mechanism that randomizes an answer."""
        return RandomizedResponse

    @functools.cached_property
    def randomizer(self) -> RandomizedResponse:
        """The mechanism that randomizes an answer, at the epsilon of one round.

        Raises ValueError if the definition has options, because the mechanism has none.
        """
        if self.options:
            raise ValueError(f"expected none, found {', '.join(self.options)}")
        return self.search.randomizer

    @property
    def meaning(self) -> dict[str, Any]:
        """The parameters of the search."""
        return {
            "rounds": self.rounds,
            "split": self.split,
            "beta": float(self.beta),
            "critical": self.critical,
        }

    @functools.cached_property
    def search(self) -> Search:
        """The search with this metric's parameters."""
        assert isinstance(self.domain, ValueRange)  # noqa: S101
        values = self.domain.range
        return Search(kind=self.kind, range=values, levels=self.levels, **self.meaning)

    @functools.cached_property
    def round_ms(self) -> int:
        """After how many milliseconds a round may close with fewer than `round_reports` answers."""
        return milliseconds(self.round_time)
