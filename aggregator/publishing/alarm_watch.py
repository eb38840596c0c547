"""Runs all alarms over panes that are final, and makes the events of what they raise."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import msgspec
import structlog

from aggregator.alarms.run import AlarmRun
from aggregator.alarms.stored import state_key
from aggregator.config.watches import AlarmDefinition
from aggregator.errors import StateUnreadable
from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.reading.reader import Reader
from aggregator.storage.lease import Lease
from aggregator.storage.progress import TopicProgress

TURN_SECONDS = 1.0
"""An alarm that has many panes to look at goes on in its next turn."""

log = structlog.get_logger("dither.publisher")


class AlarmWatch:
    """Runs the alarms of a deployment.

    Parameters
    ----------
    reader : Reader
    published : PublishedLog
        Knows which alarms have their event already.
    lease : Lease
        Only its holder stores how alarms stand.
    source : str
        The CloudEvents attribute `source` of the events.
    alarms : mapping of str to AlarmDefinition
    """

    def __init__(
        self,
        reader: Reader,
        published: PublishedLog,
        lease: Lease,
        source: str,
        alarms: Mapping[str, AlarmDefinition],
    ) -> None:
        self._reader, self._published, self._lease = reader, published, lease
        self._source = source
        self._runs = [AlarmRun.resumed(reader, definition) for definition in alarms.values()]

    def turns(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield the events of one alarm after another, some panes of each.

        Every list is to be published before the next one is asked for: only then is it stored how
        far the alarm has looked.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.

        Raises
        ------
        StateUnreadable
            Where panes cannot be read: after the other alarms.
        """
        closed = self._reader.finality_watermarks(overview, partitions)
        unreadable: StateUnreadable | None = None
        for run in self._runs:
            before = (run.next_ms, run.is_learning, run.reason)
            found: list[Event] = []
            deadline = time.monotonic() + TURN_SECONDS
            try:
                for taken in run.advance(overview, closed.get(run.metric.name, 0)):
                    made = (events.alarm(one, run.name, self._source) for one in taken.raised)
                    found += [e for e in made if not self._published.is_alarm_published(e)]
                    if time.monotonic() > deadline:
                        break
            except StateUnreadable as error:
                unreadable = error
            self._published.check()
            yield found
            if (run.next_ms, run.is_learning, run.reason) != before:
                state = msgspec.msgpack.encode(run.stored())
                key = state_key(self._reader.store.topic, run.name)
                self._lease.write([["SET", key, state]])
            for event in found:
                log.warning("alarm raised", alarm=event.subject, id=event.id)
        if unreadable is not None:
            raise unreadable
