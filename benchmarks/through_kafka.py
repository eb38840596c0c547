"""Stages through Kafka: producing, consuming, counting by worker processes, publishing."""

from __future__ import annotations

import dataclasses
import functools
import gc
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing

import numpy as np
from confluent_kafka import Producer, TopicPartition

from aggregator.config.settings import Settings, Topics
from aggregator.features.reader import Reader
from aggregator.kafka import clients, topic_admin, worker_clients
from aggregator.publishing import events
from aggregator.publishing.due_events import Publication, batch_events
from aggregator.publishing.event_producer import EventProducer
from aggregator.publishing.pane_finalizer import PaneFinalizer
from aggregator.publishing.published_log import PublishedLog
from aggregator.reading.plans import LocalPlan
from aggregator.reading.window import Window, WindowStatistic
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.storage.connection import connect
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store
from benchmarks.batches import METRIC, TIME_MS, payloads
from benchmarks.measure import Benchmark, Figure, Outcome, Side, compared, repeated, stage
from benchmarks.metrics import population, reports_of, sums_of
from benchmarks.places import PARTITIONS, Places
from benchmarks.redis_panes import commit_ids, delete_partition, write_panes
from benchmarks.steady import memory_of, processor_seconds
from benchmarks.workers import meanwhile, wait, workers
from estimators import define
from producers import Reporter
from producers.kafka.connection import DEFAULT_PROPERTIES
from producers.wire.batch import encode_batch

MICROSECONDS, MEBIBYTE = 1e6, 2**20


PRODUCED_REPORTS, PRODUCED_BATCHES = 1_000, 3_000


@stage("produce")
def produce(places: Places) -> Iterator[Benchmark]:
    """Reporting values until Kafka has acknowledged them, against producing finished batches.

    Ours randomizes, groups by pane and encodes besides.
    """
    topic, batches = places.topic(), places.sized(PRODUCED_BATCHES)
    servers, units = {"bootstrap.servers": places.kafka}, batches * PRODUCED_REPORTS
    values, level = population(METRIC, PRODUCED_REPORTS)
    epsilons = [METRIC.levels[index] for index in level]
    encoded = payloads(batches, PRODUCED_REPORTS)

    with (
        Reporter(METRIC, servers, topic=topic, batch_reports=PRODUCED_REPORTS) as reporter,
        closing(Producer({**DEFAULT_PROPERTIES, **servers})) as producer,
    ):

        def ours() -> None:
            for _ in range(batches):
                reporter.report(values, epsilons, time=TIME_MS / 1000)
            reporter.flush()

        def baseline() -> None:
            for payload in encoded:
                producer.produce(topic, payload)
                producer.poll(0)
            producer.flush()

        name = f"produce/batches of {PRODUCED_REPORTS}/raw"
        yield compared(name, "reports/s", units, ours, baseline, time.perf_counter)


PATIENCE_SECONDS = 0.01
"""A fetch that finds too few messages waits this long for more; at the end of a log none come."""


def consumption(places: Places, topic: str, messages: int, reports: int) -> Side:
    """Return a side that fetches a log of batches as a worker does, and drops the messages."""

    def consume() -> None:
        settings = Settings(kafka={"bootstrap.servers": places.kafka})
        thresholds = gc.get_threshold()
        worker_clients.collect_seldom()
        try:
            with closing(clients.consumer(settings, "bench")) as consumer:
                consumer.list_topics(topic, timeout=30)
                consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
                left = messages
                while left > 0:
                    left -= len(consumer.consume(worker_clients.CONSUME_MESSAGES, PATIENCE_SECONDS))
        finally:
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    return repeated(messages * reports, consume, time.perf_counter)


WORKERS = (1, 2)
COUNTED_BATCHES = {1: 300_000, 1_000: 60_000}
COSTED_BATCHES = {1: 900_000, 1_000: 90_000}
"""Batches, by the reports in each: a worker needs seconds for them, and commits every second."""
COST_ROUNDS = 3
GROWTH_BATCHES, GROWTH_REPORTS = 600_000, 100
GROWTHS = {"partitions 1 to 64": [(1, 1), (1, 64)], "workers 1 to 16": [(1, 64), (16, 64)]}
"""The numbers of workers and partitions of the first and of the last run."""
SETTLING_SECONDS = 4.0
"""The time after workers have joined until their start has no effect any more."""
SHORT_INTERVAL = {"aggregate.commit_interval": "100ms"}
"""A short interval, so that the wait for the last commit is not measured."""


@stage("end to end")
def end_to_end(places: Places) -> Iterator[Outcome]:
    """Worker processes from Apache Kafka to Redis, against consuming the same log and no more.

    The log is there, in a transaction that is not committed, when the workers have joined their
    group; the time runs from its commit to the workers' own commit of the last message. The cost is
    the processor time of the worker processes alone in that time, user and system, of all threads.
    """
    places.need_workers()
    for reports, max_batches in COUNTED_BATCHES.items():
        names = {f"end to end/batches of {reports}, workers {n}/raw": n for n in WORKERS}
        if places.wants(*names):
            encoded = payloads(places.sized(max_batches), reports)
            topic = places.topic()
            baseline = consumption(places, topic, places.fill(topic, encoded), reports)
            for name, number in names.items():
                ours = functools.partial(_rate, places, encoded, reports, number)
                yield Benchmark(name, "reports/s", ours, baseline)
    for reports, max_batches in COSTED_BATCHES.items():
        name = f"end to end/cost, batches of {reports}/a message"
        if places.wants(name):
            encoded = payloads(places.sized(max_batches), reports)
            costs = [_spent(places, encoded)[1] for _ in range(places.sized(COST_ROUNDS))]
            cost = MICROSECONDS * statistics.median(costs) / len(encoded)
            yield Figure(name, cost, "us of a core")
    for growth, runs in GROWTHS.items():
        name = f"end to end/growth, {growth}/last over first"
        if places.wants(name):
            encoded = payloads(places.sized(GROWTH_BATCHES), GROWTH_REPORTS)
            first, last = (_spent(places, encoded, *run)[1] for run in runs)
            yield Figure(name, last / first, "x")


def _rate(places: Places, encoded: list[bytes], reports: int, number: int, _: float) -> float:
    """Return the reports a second of workers that read, sum and commit a whole log."""
    seconds, _ = _spent(places, encoded, number, more=SHORT_INTERVAL)
    return len(encoded) * reports / seconds


def _spent(
    places: Places,
    encoded: list[bytes],
    number: int = 1,
    partitions: int = PARTITIONS,
    more: Mapping[str, object] | None = None,
) -> tuple[float, float]:
    """Return the seconds, of the clock and of processors, in which workers count a whole log."""
    with (
        places.held_log(encoded, partitions) as (topic, release),
        workers(places, topic, [METRIC], number, partitions, more) as running,
    ):
        time.sleep(SETTLING_SECONDS)
        began, used = time.perf_counter(), processor_seconds(running.pids)
        release()
        running.wait_for(len(encoded))
        return time.perf_counter() - began, processor_seconds(running.pids) - used


PUBLISHED_PANES = 500
MINUTE_MS = 60_000
PUBLISHED_METRIC = define(
    name="delay", kind="mean", mechanism="laplace", range=(0, 1), levels=[0.5, 1, 2], pane="1m"
)
LEASE_SECONDS = 600.0


@stage("publish")
def publish(places: Places) -> Iterator[Benchmark]:
    """Publishing closed panes as events, against answering and encoding the same panes alone.

    Ours reads them from all partitions, commits them to Kafka, and notes what was published.
    """
    reports, metric = f"published-{uuid.uuid4().hex[:8]}", PUBLISHED_METRIC
    topics = Topics(reports=reports, estimates=f"{reports}-events", managed=places.is_real)
    settings = Settings(kafka={"bootstrap.servers": places.kafka}, topics=topics)
    topic_admin.ensure_topics(settings)
    starts = range(0, PUBLISHED_PANES * MINUTE_MS, MINUTE_MS)
    statistic, question = sums_of(metric, 50), metric_key(metric.name, metric.revision)
    panes = {PaneKey("pane", question, start): (metric, statistic) for start in starts}
    key, source = publisher_key(reports), events.source(reports)
    with Store(connect(places.redis), reports) as store:
        write_panes(store, range(PARTITIONS), panes, {question: starts.stop})
        reader = Reader(store, {metric.name: metric})
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
            assert published_panes == PUBLISHED_PANES  # noqa: S101
            return PUBLISHED_PANES / passed

        def answers() -> None:
            content = WindowStatistic(statistic * PARTITIONS)
            final = functools.partial(Window, metric=metric, status="final", content=content)
            windows = [final(start_ms=start, end_ms=start + MINUTE_MS) for start in starts]
            for window, estimate in zip(windows, LocalPlan.answers(windows), strict=True):
                events.final_event(window, estimate, 1_000, source)

        baseline = repeated(PUBLISHED_PANES, answers, time.perf_counter)
        yield Benchmark("publish/closed panes/answers alone", "events/s", ours, baseline)


LOAD_BATCHES, BATCH_REPORTS, LOAD_GAP_SECONDS = 100, 100, 0.1
"""100,000 reports a second: so many batches, of so many reports, at such a distance."""
PROBE = dataclasses.replace(METRIC, name="probe")
WARM_UP_PROBES, PROBES = 10, 100
MAX_PAUSE_SECONDS = 0.5


@stage("latency")
def latency(places: Places) -> Iterator[Figure]:
    """From a report on the device to an estimate that has it, while others report steadily.

    The first reports are left out: Kafka's broker has just started, and compiles what it runs.
    """
    places.need_workers()
    rng, (level, answers) = np.random.default_rng(7), reports_of(METRIC, BATCH_REPORTS)

    def batches(time_ms: int) -> Iterator[bytes]:
        for _ in range(LOAD_BATCHES):
            yield encode_batch(METRIC, level, answers, time_ms)

    for interval in ("1s", "100ms"):
        topic, more = places.topic(), {"aggregate.commit_interval": interval}
        with (
            workers(places, topic, [METRIC, PROBE], more=more) as running,
            meanwhile(places, topic, batches, LOAD_GAP_SECONDS),
            Reporter(PROBE, running.settings.kafka, topic=topic) as reporter,
            Reader(places.redis, {PROBE.name: PROBE}, topic) as reader,
        ):
            delays = []
            for number in range(1, WARM_UP_PROBES + places.sized(PROBES) + 1):
                time.sleep(rng.uniform(0, MAX_PAUSE_SECONDS))
                began = time.perf_counter()
                reporter.report(0.5, PROBE.levels[0])
                reporter.flush()

                def is_seen(reported: int = number) -> bool:
                    return reader.estimate(PROBE.name).reports >= reported

                wait(is_seen, "counting")
                delays.append(time.perf_counter() - began)
        for percent in (50, 99):
            seconds = float(np.percentile(delays[WARM_UP_PROBES:], percent))
            yield Figure(f"latency/commits every {interval}/p{percent}", seconds, "s")


REMEMBERED_REPORTS = 200
ROUNDS = 10
"""Batches of each metric in each partition, all in different panes, so that most panes close."""
STORED_IDS, IDS_AT_ONCE = 200_000, 1_000
HELD_IDS = 3_000_000
HOLDING_PROGRAM = """
import os, sys
import numpy as np
from aggregator.state.batch_ids import BatchIds, as_ids
from benchmarks.steady import memory_of

ids, at_once = map(int, sys.argv[1:])
draw = np.random.default_rng(1).bytes
warm, held, worst = BatchIds(), BatchIds(), 0.0
for _ in range(100):
    warm.add(as_ids(draw(16 * at_once)))
del warm
before = memory_of(os.getpid())["VmRSS"]
while len(held) < ids:
    new = as_ids(draw(16 * at_once))
    held.add(new[~held.find_repeats(new)])
    if len(held) > ids / 3:
        worst = max(worst, (memory_of(os.getpid())["VmHWM"] - before) / len(held))
print(worst)
"""
"""Prints the memory that a process takes for the id of a batch in an open pane: the most that it
ever took from a third of the ids on, by the kernel's account, also while the table grew."""


@stage("memory")
def memory(places: Places) -> Iterator[Figure]:
    """The resident memory of a worker, after it has counted every metric in every partition."""
    yield Figure("memory/Redis, id of a batch", _id_bytes(places), "B")
    places.need_workers()
    numbers = str(places.sized(HELD_IDS)), str(IDS_AT_ONCE)
    command = [sys.executable, "-c", HOLDING_PROGRAM, *numbers]
    held_bytes = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    yield Figure("memory/worker, id of a batch", float(held_bytes), "B")
    metrics = [dataclasses.replace(METRIC, name=f"m{number}") for number in range(10)]
    topic, (level, answers) = places.topic(), reports_of(METRIC, REMEMBERED_REPORTS)
    now = time.time_ns() // 1_000_000
    messages = [
        encode_batch(metric, level, answers, now - back * metric.pane_ms)
        for back in range(ROUNDS, 0, -1)
        for metric in metrics
        for _ in range(PARTITIONS)
    ]
    with workers(places, topic, metrics) as running:
        running.wait_for(places.fill(topic, messages))
        time.sleep(SETTLING_SECONDS)
        size = memory_of(running.pids[0])["VmRSS"]
    yield Figure("memory/10 small metrics", size / MEBIBYTE, "MB")


def _id_bytes(places: Places) -> float:
    """Return the memory that Redis takes for the id of a batch in an open pane."""
    with Store(connect(places.redis), "ids") as store:
        sizes = [
            (ids, float(store.client.info("memory")["used_memory"]))
            for ids in commit_ids(store, max(2, places.sized(STORED_IDS)), IDS_AT_ONCE)
        ]
        delete_partition(store, "ids")
    (first_ids, first_bytes), (last_ids, last_bytes) = sizes[0], sizes[-1]
    return (last_bytes - first_bytes) / (last_ids - first_ids)
