"""Runs all alarms over panes that are final, and makes the events of what they raise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import structlog

from aggregator.alarms.run import AlarmRun
from aggregator.alarms.stored import state_key
from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.run_watch import RunWatch
from aggregator.storage.progress import TopicProgress

log = structlog.get_logger("dither.publisher")


class AlarmWatch(RunWatch[AlarmRun]):
    """Runs the alarms of a deployment."""

    def found(
        self, run: AlarmRun, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[list[Event]]:
        """Yield the events of one pane after another."""
        for taken in run.advance(overview, closed.get(run.metric.name, 0)):
            yield [events.alarm(one, run.name, self._source) for one in taken.raised]

    def key(self, run: AlarmRun) -> str:
        """Return the key of its state in Redis."""
        return state_key(self._reader.store.topic, run.name)

    def committed(self, event: Event) -> None:
        """Log an alarm that was published."""
        log.warning("alarm raised", alarm=event.subject, id=event.id)
