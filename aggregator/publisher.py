"""The publisher: estimates as events on the estimates topic, each final one exactly once.

Several processes may run one; a lease in Redis lets one at a time work. What makes it exact is
Kafka: an outlet, once made, is the only one that can commit, and whoever then reads the topic to
its end knows every event there is. docs/decisions/0010 says why.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from aggregator import events, kafka
from aggregator.due import Due
from aggregator.events import Event
from aggregator.keys import publisher_key
from aggregator.leader import LOOK_SECONDS, Leader
from aggregator.outlet import Outlet
from aggregator.published import Published
from aggregator.reader import Reader
from aggregator.settings import Settings, publish_since_ms
from estimators.durations import milliseconds

log = structlog.get_logger("dither.publisher")


class Publisher(Leader):
    """Publishes final and provisional events, in a thread of its own.

    Parameters
    ----------
    settings : Settings
    reader : Reader
    """

    work, log = "publish", log

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self.settings, self.reader = settings, reader
        key, client = publisher_key(settings.topics.reports), reader.store.client
        super().__init__(client, key, milliseconds(settings.publish.lease) / 1000)
        self.published = Published(client, self.lease, key, settings)
        self._interval = milliseconds(settings.publish.interval) / 1000

    def _lead(self) -> None:
        """Publish as the only one, until something fails."""
        kafka.ensure_topics(self.settings, self.settings.topics.estimates)
        topics = self.settings.topics
        outlet = Outlet(self.settings, topics.estimates, f"dither.publisher.{topics.reports}")
        try:
            self.published.catch_up()
            due = self._due()
            log.info("publishing", topic=self.settings.topics.estimates, epoch=self.lease.epoch)
            next_totals = time.monotonic()
            while not self._stopping.is_set():
                for batch in due.finals(self.reader.store.overview()):
                    self._publish(outlet, batch)
                    next_totals = self._publish_totals(outlet, due, next_totals)
                    if self._stopping.is_set():
                        return
                next_totals = self._publish_totals(outlet, due, next_totals)
                self._check()
                self._stopping.wait(LOOK_SECONDS)
        finally:
            outlet.close()

    def _publish_totals(self, outlet: Outlet, due: Due, at: float) -> float:
        """Publish running totals, if it is time to; return when it is the next time."""
        if time.monotonic() < at:
            return at
        self._publish(outlet, due.provisionals(self.reader.store.overview()))
        return time.monotonic() + self._interval

    def _due(self) -> Due:
        publish = self.settings.publish
        since = publish_since_ms(publish.since)
        source = events.source(self.settings.topics.reports)
        return Due(self.reader, self.published, source, since, publish.top_categories)

    def _publish(self, outlet: Outlet, batch: Sequence[Event]) -> None:
        if not batch:
            return
        self._check()
        positions = outlet.publish(batch)
        self.published.note(batch, positions)
        log.debug("published", events=len(batch))
