"""Publishing closed panes as events, against answering and encoding the same panes alone.

Ours reads them from all partitions, commits them to Kafka, and notes what was published, besides.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

from aggregator.config.settings import Settings, Topics
from aggregator.features.reader import Reader
from aggregator.kafka import topic_admin
from aggregator.publishing import events
from aggregator.publishing.due_events import Publication
from aggregator.publishing.event_producer import EventProducer
from aggregator.publishing.pane_finalizer import PaneFinalizer
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.unpublished_panes import batch_events
from aggregator.reading.window import Window, WindowStatistic
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.state.partition import Partition
from aggregator.state.watermark import Watermark
from aggregator.storage.connection import connect
from aggregator.storage.lease import Lease
from aggregator.storage.progress import UNSET
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store
from benchmarks.measure import Benchmark
from benchmarks.metrics import reports_of
from benchmarks.places import PARTITIONS, Places
from estimators import define
from estimators.estimate import Counts

PANES = 500
REPORTS = 50
MINUTE_MS = 60_000
METRIC = define(
    name="delay", kind="mean", mechanism="laplace", range=(0, 1), levels=[0.5, 1, 2], pane="1m"
)
LEASE_SECONDS = 600.0


def benchmarks(places: Places) -> Iterator[Benchmark]:
    reports = f"published-{uuid.uuid4().hex[:8]}"
    topics = Topics(reports=reports, estimates=f"{reports}-events", managed=places.is_real)
    settings = Settings(kafka={"bootstrap.servers": places.kafka}, topics=topics)
    topic_admin.ensure_topics(settings)
    with Store(connect(places.redis), reports) as store:
        statistic = _fill(store)
        reader = Reader(store, {METRIC.name: METRIC})
        lease = Lease(store.client, publisher_key(reports), "bench", LEASE_SECONDS)
        lease.acquire()

        def ours(_: float) -> float:
            client, key = store.client, publisher_key(reports)
            client.delete(f"{key}:final:{metric_key(METRIC.name, METRIC.revision)}")
            outlet = EventProducer(
                settings, settings.topics.estimates, f"dither.publisher.{reports}"
            )
            published = PublishedLog(client, lease, key, settings)
            publication = Publication(reader, published, events.source(reports), 0)
            due = PaneFinalizer(publication, 1_000)
            done = 0
            began = time.perf_counter()
            for batch in batch_events(due.final_events(store.overview(), PARTITIONS)):
                published.note_committed(batch, outlet.publish(batch))
                done += len(batch)
            passed = time.perf_counter() - began
            outlet.close()
            assert done == PANES  # noqa: S101
            return PANES / passed

        def baseline(_: float) -> float:
            began = time.perf_counter()
            for pane in range(PANES):
                start = pane * MINUTE_MS
                window = Window(
                    metric=METRIC,
                    start_ms=start,
                    end_ms=start + MINUTE_MS,
                    status="final",
                    content=WindowStatistic(statistic),
                )
                events.final_event(window, 1_000, events.source(reports))
            return PANES / (time.perf_counter() - began)

        yield Benchmark("publish/closed panes/answers alone", "events/s", ours, baseline)


def _fill(store: Store) -> Counts:
    """Write closed panes of which every partition has a share; return the sum of each."""
    level, reports = reports_of(METRIC, REPORTS)
    statistic = METRIC.zero()
    METRIC.accumulate(statistic, level, reports)
    name = metric_key(METRIC.name, METRIC.revision)
    for number in range(PARTITIONS):
        epoch = int(store.partition.acquire(number, "bench").owner["epoch"])
        partition = Partition({METRIC.name: METRIC}, 0)
        for pane in range(PANES):
            key = PaneKey("pane", name, pane * MINUTE_MS)
            partition.panes[key] = partition.changed[key] = Pane(
                METRIC, pane, statistic, closed=True
            )
        end = PANES * MINUTE_MS
        partition.watermarks[name] = Watermark(end, end, end)
        partition.next_offset = PANES
        store.partition.commit(number, epoch, UNSET, partition, {})
    return statistic * PARTITIONS
