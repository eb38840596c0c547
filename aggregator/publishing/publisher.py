"""The publisher: publishes the due events of panes and features, each final event exactly once.

Several processes may run a publisher; a lease in Redis lets one of them work at a time. Kafka
ensures that no event is published twice: a new producer fences all earlier ones, so that whoever
then reads the whole topic knows every event. docs/decisions/0010 has the reasons.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence

import structlog

from aggregator.config.live_metrics import current
from aggregator.config.setting_checks import parse_groupings, publish_since_ms
from aggregator.config.settings import Settings
from aggregator.counting.continuity import is_another
from aggregator.counting.rival_deployments import CLUSTER_FIELD
from aggregator.errors import OtherCluster
from aggregator.feature import features
from aggregator.kafka import topic_admin
from aggregator.kafka.log_ends import KafkaLog
from aggregator.publishing import events
from aggregator.publishing.due_events import Publication, batch_events
from aggregator.publishing.event_producer import EventProducer
from aggregator.publishing.events import Event
from aggregator.publishing.heartbeats import Heartbeats
from aggregator.publishing.leader import TURN_INTERVAL_SECONDS, Leader
from aggregator.publishing.pane_finalizer import PaneFinalizer
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.quiet_partitions import HeartbeatSchedule
from aggregator.reading.reader import MetricReader
from aggregator.state.pane_keys import metric_key
from aggregator.storage.redis_keys import publisher_key
from aggregator.tracing import Attributes, Tracer
from estimators.durations import milliseconds

log = structlog.get_logger("dither.publisher")


class Publisher(Leader):
    """Publishes final and provisional events, in its own thread.

    Parameters
    ----------
    tracer : Tracer, optional
        Records a span of each publish.
    """

    work, log = "publish", log

    def __init__(
        self, settings: Settings, reader: MetricReader, tracer: Tracer | None = None
    ) -> None:
        key = publisher_key(settings.topics.reports)
        super().__init__(settings, reader, key, settings.publish.lease, tracer)
        self.published = PublishedLog(reader.store.client, self.lease, key, settings)
        self._since_ms = publish_since_ms(settings.publish.since)
        self._source = events.source(settings.topics.reports)
        self._interval = milliseconds(settings.publish.interval) / 1000
        self.ends = KafkaLog(settings)
        self._heartbeats: Heartbeats | None = None

    def obstacles(self) -> list[str]:
        """Return the obstacles to publishing, as sentences without confidential parts."""
        trouble = self.trouble()
        stopped = [f"nothing is published: the publisher stands still, {trouble}"] * bool(trouble)
        if self.failing:
            return [*stopped, f"nothing is published: {self.failing}; see the server's log"]
        waits = self._heartbeats.obstacle() if self._heartbeats and self.lease.held else ""
        return [*stopped, *([waits] if waits else [])]

    def _lead(self) -> None:
        """Publish as the leader, until a failure or a change of the definitions."""
        defined = current(self.reader.metrics)
        self.published.keep_ms = {
            metric_key(name, metric.revision): metric.retention_ms
            for name, metric in defined.items()
            if metric.retention_ms is not None
        }
        topic_admin.ensure_topics(self.settings, self.settings.topics.estimates)
        topics = self.settings.topics
        identity = f"dither.publisher.{topics.reports}"
        with contextlib.ExitStack() as closing:
            self._producer = EventProducer(self.settings, topics.estimates, identity)
            closing.enter_context(contextlib.closing(self._producer))
            self._refuse_other_cluster()
            self.published.catch_up()
            publication = Publication(self.reader, self.published, self._source, self._since_ms)
            groupings = parse_groupings(self.settings.publish.slices)
            top = self.settings.publish.top_categories
            unsearched = self.settings.publish.unsearched
            self._finalizer = PaneFinalizer(publication, top, groupings, unsearched)
            closing.enter_context(contextlib.closing(self._finalizer))
            of_features = (feature.due_events(publication) for feature in features())
            self._of_features = [due for due in of_features if due is not None]
            idle_ms = milliseconds(self.settings.aggregate.idle)
            schedule = HeartbeatSchedule(self.reader.store, self.reader.metrics, idle_ms)
            self._heartbeats = heartbeats = Heartbeats(self.settings, schedule, self.ends)
            closing.enter_context(contextlib.closing(heartbeats))
            self._log_start("publisher started", topics.estimates)
            self._next_totals = time.monotonic()
            while self._still_leads(defined):
                for batch in self._due_batches():
                    self._publish(batch)
                    self._publish_totals()
                    if self._stopping.is_set():
                        return
                self._publish_totals()
                if self._finalizer.unreadable_total is not None:
                    raise self._finalizer.unreadable_total
                self._verify_lease()
                self._stopping.wait(0 if self._finalizer.is_behind else TURN_INTERVAL_SECONDS)

    def _refuse_other_cluster(self) -> None:
        """Raise OtherCluster if Redis has the sums of another Kafka cluster's log."""
        cluster = self._producer.cluster()
        store = self.reader.store
        for number in store.partitions():
            if is_another(stored := store.owner(number).get(CLUSTER_FIELD, ""), cluster):
                raise OtherCluster(number, stored, cluster)

    def _due_batches(self) -> Iterator[list[Event]]:
        """Send the due heartbeats; yield batches of due final events and events of features."""
        partitions = self._producer.partitions(self.settings.topics.reports)
        overview = self.reader.store.overview()
        self._verify_lease()
        assert self._heartbeats is not None  # noqa: S101
        self._heartbeats.send_due(overview, partitions)
        finalizer, features = self._finalizer, self._of_features
        first = [due.due_events(overview, partitions) for due in features if due.comes_first]
        later = [due.due_events(overview, partitions) for due in features if not due.comes_first]
        finals = batch_events(finalizer.final_events(overview, partitions))
        searched = batch_events(finalizer.searched_events(overview, partitions))
        yield from _in_turn([*first, finals, *later, searched])

    def _publish_totals(self) -> None:
        """Publish the changed running totals, once in every `publish.interval`."""
        if time.monotonic() >= self._next_totals:
            self._publish(self._finalizer.provisional_events(self.reader.store.overview()))
            self._next_totals = time.monotonic() + self._interval

    def _publish(self, batch: Sequence[Event]) -> None:
        if not batch:
            return
        self._verify_lease()
        attributes: Attributes = {
            "messaging.destination.name": self.settings.topics.estimates,
            "messaging.batch.message_count": len(batch),
        }
        with self._tracer.span("publish", attributes) as span:
            positions = self._producer.publish(batch)
            span.note("committed")
            self.published.note_committed(batch, positions)
        log.debug("published", events=len(batch))


def _in_turn(turns: Iterable[Iterator[list[Event]]]) -> Iterator[list[Event]]:
    """Yield the batches of several iterators, even if some fail; then raise the first failure."""
    first_error: Exception | None = None
    for batches in turns:
        try:
            yield from batches
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
