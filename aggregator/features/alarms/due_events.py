"""Runs all alarms over final panes, and makes their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import structlog

from aggregator.feature import EventType
from aggregator.features.alarms.definitions import alarms_of
from aggregator.features.alarms.run import AlarmRaised, AlarmRun
from aggregator.publishing.due_events import Publication, RunWatch
from aggregator.publishing.events import Event
from aggregator.storage.progress import TopicProgress

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
log = structlog.get_logger("dither.publisher")


class AlarmWatch(RunWatch[AlarmRun]):
    """Runs the alarms of a deployment."""

    def events(
        self, run: AlarmRun, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[list[Event]]:
        """Yield the events of an alarm, pane by pane."""
        for pane in run.advance(overview, closed.get(run.metric.name, 0)):
            yield [
                alarm_event(raised_alarm, run.name, self.publication.source)
                for raised_alarm in pane.raised
            ]

    def note_published(self, event: Event) -> None:
        """Log a published alarm."""
        log.warning("alarm raised", alarm=event.subject, id=event.id)


def alarm_event(raised_alarm: AlarmRaised, identity: str, source: str) -> Event:
    """Return the event of an alarm.

    `raised_alarm`: the data of the event; `identity`: the name of the alarm's run; `source`: the
    CloudEvents attribute `source`.
    """
    key = f"{identity}/{','.join(raised_alarm.names)}/{raised_alarm.at}"
    encoded = msgspec.json.encode(raised_alarm)
    return Event(key, ALARM_EVENT.name, source, raised_alarm.alarm, raised_alarm.at, key, encoded)


def find_due_events(publication: Publication) -> AlarmWatch:
    """Return the watch of all alarms, each resumed from its state in Redis."""
    reader = publication.reader
    alarms = alarms_of(reader.metrics).values()
    return AlarmWatch(publication, [AlarmRun.resumed(reader, alarm) for alarm in alarms])
