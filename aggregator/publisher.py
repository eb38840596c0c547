"""The publisher: estimates as events on the estimates topic, each final one exactly once.

Several processes may run one; a lease in Redis lets one at a time work. What makes it exact is
Kafka: an outlet, once made, is the only one that can commit, and whoever then reads the topic to
its end knows every event there is. docs/decisions/0010 says why.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence

import redis
import structlog
from confluent_kafka import KafkaException

from aggregator import events, kafka
from aggregator.conditions import explained
from aggregator.due import Due
from aggregator.errors import DitherError
from aggregator.events import Event
from aggregator.keys import metric_key, publisher_key
from aggregator.lease import Lease, LeaseLost
from aggregator.outlet import Outlet
from aggregator.published import CopyLost, Published, TopicUnreadable
from aggregator.reader import Reader
from aggregator.releasing import Heartbeats, Releasing
from aggregator.settings import Settings, publish_since_ms
from estimators.durations import milliseconds
from producers import kafka_errors

LOOK_SECONDS = 0.5
"""Between two looks at what has become final, and at a lease that another holds."""
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
STOP_SECONDS = 3.0

log = structlog.get_logger("dither.publisher")


class Publisher:
    """Publishes final and provisional events, in a thread of its own.

    Parameters
    ----------
    settings : Settings
    reader : Reader
    """

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self.settings, self.reader = settings, reader
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        key, client = publisher_key(settings.topics.reports), reader.store.client
        self.lease = Lease(client, key, self.name, milliseconds(settings.publish.lease) / 1000)
        keep_ms = {
            metric_key(name, metric.revision): metric.retention_ms
            for name, metric in reader.metrics.items()
            if metric.retention_ms is not None
        }
        self.published = Published(client, self.lease, key, settings, keep_ms)
        self._since_ms = publish_since_ms(settings.publish.since)
        self._source = events.source(settings.topics.reports)
        self._interval = milliseconds(settings.publish.interval) / 1000
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to publish, whenever the lease is free and Kafka and Redis are there."""
        self._thread = threading.Thread(target=self.run, name="dither-publisher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and leave the lease to another."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def run(self) -> None:
        """Publish until :meth:`stop`; whatever fails is tried again."""
        delay = FIRST_RETRY_SECONDS
        while not self._stopping.is_set():
            try:
                if self.lease.acquire():
                    with self.lease.renewals():
                        self._lead()
                delay = FIRST_RETRY_SECONDS
                self._stopping.wait(LOOK_SECONDS)
                continue
            except LeaseLost as lost:
                log.warning("lease lost", detail=str(lost))
            except CopyLost as lost:
                log.warning("read again", detail=str(lost))
            except (redis.RedisError, KafkaException, DitherError, TopicUnreadable) as error:
                told = (
                    kafka_errors.explained(error.args[0])
                    if isinstance(error, KafkaException)
                    else explained(error)
                )
                log.warning("cannot publish", error=told, again_in=delay)
            except Exception:
                log.exception("cannot publish: a defect of Dither", again_in=delay)
            self._stopping.wait(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    def _lead(self) -> None:
        """Publish as the only one, until something fails."""
        kafka.ensure_topics(self.settings, self.settings.topics.estimates)
        with contextlib.ExitStack() as closing:
            outlet = closing.enter_context(contextlib.closing(Outlet(self.settings)))
            heartbeats = None
            self.published.catch_up()
            due, releasing = self._due(), self._releasing()
            if releasing.metrics:
                heartbeats = closing.enter_context(contextlib.closing(Heartbeats(self.settings)))
            log.info("publishing", topic=self.settings.topics.estimates, epoch=self.lease.epoch)
            next_totals = time.monotonic()
            while not self._stopping.is_set():
                for batch in self._finals(outlet, due, releasing, heartbeats):
                    self._publish(outlet, batch)
                    next_totals = self._publish_totals(outlet, due, next_totals)
                    if self._stopping.is_set():
                        return
                next_totals = self._publish_totals(outlet, due, next_totals)
                self._check()
                self._stopping.wait(LOOK_SECONDS)

    def _finals(
        self, outlet: Outlet, due: Due, releasing: Releasing, heartbeats: Heartbeats | None
    ) -> Iterator[list[Event]]:
        """Yield the final events that are due, releases before each batch of the others."""
        yield from self._releases(outlet, releasing, heartbeats)
        for batch in due.finals(self.reader.store.overview()):
            yield batch
            yield from self._releases(outlet, releasing, heartbeats)

    def _releases(
        self, outlet: Outlet, releasing: Releasing, heartbeats: Heartbeats | None
    ) -> Iterator[list[Event]]:
        """Yield the events of releases that are due; close what is due to be closed for one."""
        if heartbeats is None:
            return
        overview = self.reader.store.overview()
        partitions = outlet.partitions(self.settings.topics.reports)
        heartbeats.send(releasing.heartbeats(overview, partitions))
        yield from releasing.finals(overview, partitions)

    def _publish_totals(self, outlet: Outlet, due: Due, at: float) -> float:
        """Publish running totals, if it is time to; return when it is the next time."""
        if time.monotonic() < at:
            return at
        self._publish(outlet, due.provisionals(self.reader.store.overview()))
        return time.monotonic() + self._interval

    def _due(self) -> Due:
        since, top = self._since_ms, self.settings.publish.top_categories
        return Due(self.reader, self.published, self._source, since, top)

    def _releasing(self) -> Releasing:
        return Releasing(self.reader, self.published, self._source, self._since_ms)

    def _publish(self, outlet: Outlet, batch: Sequence[Event]) -> None:
        if not batch:
            return
        self._check()
        positions = outlet.publish(batch)
        self.published.note(batch, positions)
        log.debug("published", events=len(batch))

    def _check(self) -> None:
        if not self.lease.held:
            raise LeaseLost(f"the lease of epoch {self.lease.epoch} has run out")
