"""The feature of alarms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aggregator.feature import EventType, Feature

if TYPE_CHECKING:
    from aggregator.config.definition_tables import TableKind
    from aggregator.monitoring.samples import Samples
    from aggregator.publishing.due_events import DueEvents, Publication
    from aggregator.web.operations import Operation


class Alarms(Feature):
    """Detects moves of metrics from their baselines."""

    commands: ClassVar = {
        "alarms": ("Ask", "Show whether metrics have moved from their baselines.")
    }

    def tables(self) -> Sequence[TableKind[Any, Any]]:
        """Return the table ``[alarms.NAME]``."""
        from aggregator.features.alarms.definitions import ALARM_TABLES

        return (ALARM_TABLES,)

    def event_types(self) -> Sequence[EventType]:
        """Return the event of a series that has moved."""
        from aggregator.features.alarms.due_events import ALARM_EVENT

        return (ALARM_EVENT,)

    def due_events(self, publication: Publication) -> DueEvents:
        """Return the watch that runs all alarms over final panes."""
        from aggregator.features.alarms.due_events import AlarmWatch

        return AlarmWatch.resumed(publication)

    def samples(self) -> type[Samples]:
        """Return the samples of alarms' states."""
        from aggregator.features.alarms.samples import AlarmSamples

        return AlarmSamples

    def routes(self) -> Sequence[Operation]:
        """Return ``GET /v1/alarms``."""
        from aggregator.features.alarms.routes import alarms

        return (alarms,)
