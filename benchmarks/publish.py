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
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.storage.connection import connect
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store
from benchmarks.measure import Benchmark
from benchmarks.metrics import reports_of
from benchmarks.places import PARTITIONS, Places
from benchmarks.redis_panes import write_panes
from estimators import define

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
    starts = range(0, PANES * MINUTE_MS, MINUTE_MS)
    statistic, question = METRIC.zero(), metric_key(METRIC.name, METRIC.revision)
    METRIC.accumulate(statistic, *reports_of(METRIC, REPORTS))
    panes = {PaneKey("pane", question, start): (METRIC, statistic) for start in starts}
    key, source = publisher_key(reports), events.source(reports)
    with Store(connect(places.redis), reports) as store:
        for number in range(PARTITIONS):
            write_panes(store, number, panes, {question: PANES * MINUTE_MS})
        reader = Reader(store, {METRIC.name: METRIC})
        lease = Lease(store.client, key, "bench", LEASE_SECONDS)
        lease.acquire()

        def ours(_: float) -> float:
            store.client.delete(f"{key}:final:{question}", f"{key}:position")
            outlet = EventProducer(settings, topics.estimates, f"dither.publisher.{reports}")
            published = PublishedLog(store.client, lease, key, settings)
            due = PaneFinalizer(Publication(reader, published, source, 0), 1_000)
            published_panes, began = 0, time.perf_counter()
            for batch in batch_events(due.final_events(store.overview(), PARTITIONS)):
                published.note_committed(batch, outlet.publish(batch))
                published_panes += len(batch)
            passed = time.perf_counter() - began
            outlet.close()
            assert published_panes == PANES  # noqa: S101
            return PANES / passed

        def baseline(_: float) -> float:
            began, content = time.perf_counter(), WindowStatistic(statistic * PARTITIONS)
            for start in starts:
                end = start + MINUTE_MS
                window = Window(
                    metric=METRIC, start_ms=start, end_ms=end, status="final", content=content
                )
                events.final_event(window, 1_000, source)
            return PANES / (time.perf_counter() - began)

        yield Benchmark("publish/closed panes/answers alone", "events/s", ours, baseline)
