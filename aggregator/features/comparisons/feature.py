"""The feature of comparisons."""

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
    """Compares two slices, windows or metrics."""

    commands: ClassVar = {
        "compare": ("Ask", "Compare two slices, windows or metrics."),
        "comparisons": ("Ask", "Show how the comparisons of the definitions stand."),
    }

    def tables(self) -> Sequence[TableKind[Any, Any]]:
        """Return the table ``[comparisons.NAME]``."""
        from aggregator.features.comparisons.definitions import COMPARISON_TABLES

        return (COMPARISON_TABLES,)

    def event_types(self) -> Sequence[EventType]:
        """Return the event of a decided comparison."""
        from aggregator.features.comparisons.due_events import DECISION_EVENT

        return (DECISION_EVENT,)

    def due_events(self, publication: Publication) -> DueEvents:
        """Return the watch that runs all comparisons over final panes."""
        from aggregator.features.comparisons.due_events import ComparisonWatch

        return ComparisonWatch.resumed(publication)

    def samples(self) -> type[Samples]:
        """Return the samples of comparisons."""
        from aggregator.features.comparisons.samples import ComparisonSamples

        return ComparisonSamples

    def routes(self) -> Sequence[Operation]:
        """Return the operations of changes and comparisons."""
        from aggregator.features.comparisons import routes

        return (routes.change, routes.compare, routes.comparisons, routes.comparison)
