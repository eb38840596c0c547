"""Minimum and maximum, searched for in rounds that devices answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aggregator.feature import Feature

if TYPE_CHECKING:
    from aggregator.reading.plans.base import Plan
    from aggregator.web.operations import Operation
    from estimators import Metric


class Rounds(Feature):
    """Metrics that are asked in rounds."""

    commands: ClassVar = {"coordinate": ("Run", "Run the rounds of minimum and maximum metrics.")}

    def plan(self, collected: type[Metric]) -> type[Plan[Any]] | None:
        """Return how the state of a search is read."""
        from estimators import SearchMetric

        if not issubclass(collected, SearchMetric):
            return None
        from aggregator.features.rounds.plan import SearchPlan

        return SearchPlan

    def routes(self) -> Sequence[Operation]:
        """Return ``GET /v1/metrics/{name}/round``."""
        from aggregator.features.rounds.routes import show_round

        return (show_round,)
