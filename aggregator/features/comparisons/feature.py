"""Comparisons of slices, windows and metrics, and those that the definitions keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aggregator.feature import EventType, Feature

if TYPE_CHECKING:
    from aggregator.config.definition_tables import TableKind
    from aggregator.monitoring.samples import Samples
    from aggregator.publishing.due_events import DueEvents, Publication
    from aggregator.web.operations import Operation


class Comparisons(Feature):
    """Which of two slices, windows or metrics is larger, and by how much."""

    commands: ClassVar = {
        "compare": ("Ask", "Compare two slices, windows or metrics."),
        "comparisons": ("Ask", "Show how the comparisons of the definitions stand."),
    }

    def tables(self) -> Sequence[TableKind[Any, Any]]:
        """Return the table ``[comparisons.NAME]``."""
        from aggregator.features.comparisons.definitions import COMPARISONS

        return (COMPARISONS,)

    def event_types(self) -> Sequence[EventType]:
        """Return the event of a comparison that is decided."""
        from aggregator.features.comparisons.due_events import DECISION

        return (DECISION,)

    def due_events(self, publication: Publication) -> DueEvents:
        """Return what takes all comparisons through final panes."""
        from aggregator.features.comparisons.due_events import ComparisonWatch

        return ComparisonWatch.resumed(publication)

    def samples(self) -> type[Samples]:
        """Return what exports how comparisons stand."""
        from aggregator.features.comparisons.samples import ComparisonSamples

        return ComparisonSamples

    def routes(self) -> Sequence[Operation]:
        """Return ``GET /v1/compare``, ``/v1/comparisons`` and ``/v1/comparisons/{comparison}``."""
        from aggregator.features.comparisons import routes

        return (routes.compare, routes.comparisons, routes.comparison)
