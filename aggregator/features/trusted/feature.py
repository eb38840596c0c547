"""The feature of trusted collection, which draws one release for each pane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggregator.feature import Feature

if TYPE_CHECKING:
    from aggregator.publishing.due_events import DueEvents, Publication
    from aggregator.reading.plans.base import ReadingPlan
    from estimators import Metric


class TrustedCollection(Feature):
    """Draws and reads releases."""

    def plan(self, metric_class: type[Metric]) -> type[ReadingPlan[Any]] | None:
        """Return the plan of releases."""
        from estimators import TrustedMetric

        if not issubclass(metric_class, TrustedMetric):
            return None
        from aggregator.features.trusted.plan import TrustedPlan

        return TrustedPlan

    def due_events(self, publication: Publication) -> DueEvents:
        """Return the drawer of releases."""
        from aggregator.features.trusted.due_events import ReleaseDrawer

        return ReleaseDrawer(publication)
