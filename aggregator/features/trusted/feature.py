"""Trusted collection: a release of each pane is drawn once, and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggregator.feature import Feature

if TYPE_CHECKING:
    from aggregator.publishing.due_events import DueEvents, Publication
    from aggregator.reading.plans.base import Plan
    from estimators import Metric


class TrustedCollection(Feature):
    """Releases of sums of true values."""

    def plan(self, collected: type[Metric]) -> type[Plan[Any]] | None:
        """Return how releases are read."""
        from estimators import TrustedMetric

        if not issubclass(collected, TrustedMetric):
            return None
        from aggregator.features.trusted.plan import TrustedPlan

        return TrustedPlan

    def due_events(self, publication: Publication) -> DueEvents:
        """Return what draws the releases of closed panes."""
        from aggregator.features.trusted.due_events import ReleaseDrawer

        return ReleaseDrawer(publication)
