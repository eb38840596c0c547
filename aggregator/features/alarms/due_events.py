"""Runs all alarms over final panes, and makes their events."""

from __future__ import annotations

from aggregator.feature import EventType
from aggregator.features.alarms.definitions import alarms_of
from aggregator.features.alarms.run import AlarmRaised, AlarmRun
from aggregator.publishing.due_events import Publication, RunWatch

ALARM_EVENT = EventType(
    "dither.alarm",
    AlarmRaised,
    ids_key_name="alarms",
    message="alarm",
    summary="A series of an alarm has moved from its baseline: once for each id.",
    key="The alarm and the hash of its definition, the series and the end of the pane, as in "
    "late_moved@0000001f/country=DE/2026-11-22T00:00:00Z.",
)
EVENT_TYPES = (ALARM_EVENT,)


def find_due_events(publication: Publication) -> RunWatch:
    """Return the watch of all alarms, each resumed from its state in Redis."""
    reader = publication.reader
    definitions = alarms_of(reader.metrics).values()
    runs = [AlarmRun.resumed(reader, definition) for definition in definitions]
    return RunWatch(publication, ALARM_EVENT, runs)
