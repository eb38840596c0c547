"""The feature of rounds, which find a minimum or maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aggregator.feature import Feature

if TYPE_CHECKING:
    from aggregator.reading.plans.base import ReadingPlan
    from aggregator.web.operations import Operation
    from estimators import Metric


class SearchRounds(Feature):
    """Searches for a minimum or maximum in rounds."""

    commands: ClassVar = {"coordinate": ("Run", "Run the rounds of minimum and maximum metrics.")}

    def plan(self, metric_class: type[Metric]) -> type[ReadingPlan[Any]] | None:
        """Return the plan of a search."""
        from estimators import SearchMetric

        if not issubclass(metric_class, SearchMetric):
            return None
        from aggregator.features.rounds.plan import SearchPlan

        return SearchPlan

    def routes(self) -> Sequence[Operation]:
        """Return ``GET /v1/metrics/{name}/round``."""
        from aggregator.features.rounds.routes import show_round

        return (show_round,)
