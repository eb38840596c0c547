"""Stages through Kafka: producing, consuming, counting by worker processes, publishing."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import operator
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from aggregator.config.settings import Settings, Topics
from aggregator.features.reader import Reader
from aggregator.kafka import clients, topic_admin, worker_clients
from aggregator.publishing import events
from aggregator.publishing.due_events import Publication
from aggregator.publishing.event_producer import EventProducer
from aggregator.publishing.pane_finalizer import PaneFinalizer
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.unpublished_panes import batch_events
from aggregator.reading.plans import LocalPlan
from aggregator.reading.window import Window, WindowStatistic
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, METRIC, METRICS, TIME_MS, different_payloads, payloads
from benchmarks.measure import Benchmark, Figure, NotRun, Outcome, Side, stage
from benchmarks.metrics import population, sums_of
from benchmarks.places import FILLING, PARTITIONS, Places
from benchmarks.redis_panes import commit_ids, delete_partition, write_panes
from benchmarks.steady import memory_of, processor_seconds
from benchmarks.workers import Workers, wait, workers
from estimators import LocalMetric, define
from estimators.estimate import Floats
from producers import Reporter
from producers.kafka.connection import DEFAULT_PROPERTIES
from producers.wire.batch import encode_batch

MICROSECONDS, MEBIBYTE = 1e6, 2**20
NEEDS_KAFKA = "needs Apache Kafka, on Linux: dither kafka --fetch"


def timed(units: int, action: Callable[[], object]) -> float:
    """Return the units a second of an action that waits for servers."""
    began = time.perf_counter()
    action()
    return units / (time.perf_counter() - began)


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

    def ours(_: float) -> float:
        with Reporter(METRIC, servers, topic=topic, batch_reports=PRODUCED_REPORTS) as reporter:

            def report() -> None:
                for _ in range(batches):
                    reporter.report(values, epsilons, time=TIME_MS / 1000)
                reporter.flush()

            return timed(units, report)

    def baseline(_: float) -> float:
        with closing(Producer({**DEFAULT_PROPERTIES, **servers})) as producer:

            def produce_batches() -> None:
                for payload in encoded:
                    producer.produce(topic, payload)
                    producer.poll(0)
                producer.flush()

            return timed(units, produce_batches)

    yield Benchmark(f"produce/batches of {PRODUCED_REPORTS}/raw", "reports/s", ours, baseline)


CONSUMED_BATCHES = {1: 900_000, 1_000: 120_000}
"""A second or less of raw consumption: the first messages of a log are waited for."""
CONSUME_ROUNDS = 5
COMPRESSIONS = ("none", str(DEFAULT_PROPERTIES["compression.type"]))
"""No compression, and the compression that reporters use."""
PATIENCE_SECONDS = 0.01
"""A fetch that finds too few messages waits this long for more; at the end of a log none come."""


@stage("consume")
def consume(places: Places) -> Iterator[Outcome]:
    """Consuming and counting, against consuming the same messages and dropping them.

    Beside the ratios: the processor time of this process for a message, user and system, of Python
    and of the client's threads. It does not depend on what else the machine does, as far as caches
    allow.
    """
    for (reports, batches), compression in itertools.product(
        CONSUMED_BATCHES.items(), COMPRESSIONS
    ):
        name = f"batches of {reports}" + (f", {compression}" if compression != "none" else "")
        costs: dict[str, Callable[[], Step]] = {
            f"consume/cost, {name}/counted": counting,
            f"consume/cost, {name}/dropped": lambda: raw,
        }
        if not places.wants(f"consume/{name}/raw", *costs):
            continue
        encoded = different_payloads(places.sized(batches), reports)
        topic, messages = places.log(encoded, compression=compression)
        ours = consumption(places, topic, messages, reports, counting)
        baseline = consumption(places, topic, messages, reports, lambda: raw)
        yield Benchmark(f"consume/{name}/raw", "reports/s", ours, baseline)
        for figure, begin in costs.items():
            if places.is_real and places.wants(figure):  # else its broker is part of this process
                side = consumption(places, topic, messages, 1, begin, time.process_time)
                rate = statistics.median(side(0) for _ in range(places.sized(CONSUME_ROUNDS)))
                yield Figure(figure, MICROSECONDS / rate, "us of a core a message")


Step = Callable[[Consumer], int]
"""Takes messages from a consumer, and returns their number."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Let Python collect garbage as seldom as in a worker, on both sides of a benchmark."""
    thresholds = gc.get_threshold()
    worker_clients.collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def consumption(
    places: Places,
    topic: str,
    messages: int,
    reports: int,
    begin: Callable[[], Step],
    clock: Callable[[], float] = time.perf_counter,
) -> Side:
    """Return a side that reads a whole log with the worker's fetch settings.

    Parameters
    ----------
    places : Places
        The servers.
    topic : str
        The topic to read.
    messages, reports : int
        The number of messages in the topic, and of reports in each.
    begin : callable
        Returns the step that takes the messages.
    clock : callable
        Measures the seconds of the rate.
    """

    def rate(_: float) -> float:
        with collecting_seldom():
            step = begin()
            settings = Settings(kafka={"bootstrap.servers": places.kafka})
            consumer: Consumer = clients.consumer(settings, "bench")
            consumer.list_topics(topic, timeout=30)
            began, left = clock(), messages
            consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            while left > 0:
                left -= step(consumer)
            passed = clock() - began
            consumer.close()
            return messages * reports / passed

    return rate


def raw(consumer: Consumer) -> int:
    """Consume messages and drop them; return their number."""
    return len(consumer.consume(worker_clients.CONSUME_MESSAGES, timeout=PATIENCE_SECONDS))


def counting() -> Step:
    """Return a step that counts messages as a worker does, beginning with an empty state."""
    partitions: defaultdict[int, Partition] = defaultdict(lambda: Partition(METRICS, FUTURE_MS))

    def count(consumer: Consumer) -> int:
        messages = worker_clients.gather(consumer, PATIENCE_SECONDS)
        for number, batch in worker_clients.sort_events(messages).messages.items():
            partitions[number].count(batch)
        return len(messages)

    return count


WORKERS = (1, 2)
COUNTED_BATCHES = {1: 300_000, 1_000: 60_000}
COSTED_BATCHES = {1: 900_000, 1_000: 90_000}
"""Batches, by the reports in each: a worker needs seconds for them, and commits every second."""
COST_ROUNDS = 3
GROWTH_BATCHES, GROWTH_REPORTS = 600_000, 100
GROWTHS = {
    "partitions 1 to 64": [(1, number) for number in (1, 4, 16, 64)],
    "workers 1 to 16": [(number, 64) for number in (1, 2, 4, 8, 16)],
}
"""The numbers of workers and partitions of each run."""
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
    if not places.has_workers:
        yield NotRun("end to end", NEEDS_KAFKA)
        return
    for reports, max_batches in COUNTED_BATCHES.items():
        names = {f"end to end/batches of {reports}, workers {n}/raw": n for n in WORKERS}
        if places.wants(*names):
            encoded = payloads(places.sized(max_batches), reports)
            baseline = consumption(places, *places.log(encoded), reports, lambda: raw)
            for name, number in names.items():
                ours = functools.partial(_counted, places, encoded, reports, number)
                yield Benchmark(name, "reports/s", ours, baseline)
    for reports, max_batches in COSTED_BATCHES.items():
        name = f"end to end/cost, batches of {reports}"
        units = {"a message": 1} | ({"a report": reports} if reports > 1 else {})
        if places.wants(*(f"{name}/{unit}" for unit in units)):
            encoded = payloads(places.sized(max_batches), reports)
            costs = [_spent(places, encoded) for _ in range(places.sized(COST_ROUNDS))]
            cost = MICROSECONDS * statistics.median(costs) / len(encoded)
            for unit, number in units.items():
                yield Figure(f"{name}/{unit}", cost / number, "us of a core")
    for growth, runs in GROWTHS.items():
        name = f"end to end/growth, {growth}"
        if places.wants(f"{name}/last over first"):
            encoded = payloads(places.sized(GROWTH_BATCHES), GROWTH_REPORTS)
            costs = [_spent(places, encoded, number, partitions) for number, partitions in runs]
            yield Figure(f"{name}/last over first", costs[-1] / costs[0], "x")
            yield Figure(f"{name}/highest over lowest", max(costs) / min(costs), "x")


def _counted(places: Places, encoded: list[bytes], reports: int, number: int, _: float) -> float:
    """Return the reports a second of workers that read, sum and commit a whole log."""
    with (
        places.held_log(encoded) as (topic, release),
        workers(places, topic, [METRIC], number, more=SHORT_INTERVAL) as running,
    ):

        def released() -> None:
            release()
            running.wait_for(len(encoded))

        return timed(len(encoded) * reports, released)


def _spent(
    places: Places, encoded: list[bytes], number: int = 1, partitions: int = PARTITIONS
) -> float:
    """Return the processor seconds in which workers count a whole log: from fetch to commit."""
    with (
        places.held_log(encoded, partitions) as (topic, release),
        workers(places, topic, [METRIC], number, partitions) as running,
    ):
        time.sleep(SETTLING_SECONDS)
        began = processor_seconds(running.pids)
        release()
        running.wait_for(len(encoded))
        return processor_seconds(running.pids) - began


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
            windows = [
                Window(
                    metric=metric, start_ms=start, end_ms=start + MINUTE_MS, status="final",
                    content=content,
                )
                for start in starts
            ]  # fmt: skip
            for window, estimate in zip(windows, LocalPlan.answers(windows), strict=True):
                events.final_event(window, estimate, 1_000, source)

        baseline = functools.partial(timed, PUBLISHED_PANES, answers)
        name = "publish/closed panes/answers alone"
        yield Benchmark(name, "events/s", ours, lambda _: baseline())


REPORTS_PER_SECOND, BATCH_REPORTS = 100_000, 100
WARM_UP_SECONDS, LATENCY_SECONDS = 5.0, 20.0
READ_GAP_SECONDS = 0.005
Reported = list[tuple[int, int, float]]
"""Partition and offset of each batch, and when it was reported."""
Reads = list[tuple[float, list[int]]]
"""When each read ended, and the next offsets that it had."""


@stage("latency")
def latency(places: Places) -> Iterator[Outcome]:
    """From a report on the device to an estimate that has it, at a steady rate.

    A report's time runs from before it is randomized to the end of the first read of an estimate
    that counts it: from Kafka's offset of its batch, and the offsets that were committed before the
    read. The first seconds are left out: Kafka's broker has just started, and compiles what it
    runs.
    """
    if not places.is_real:
        yield NotRun("latency", NEEDS_KAFKA)
        return
    warm_up, measured = (
        places.sized(int(seconds * REPORTS_PER_SECOND / BATCH_REPORTS))
        for seconds in (WARM_UP_SECONDS, LATENCY_SECONDS)
    )
    for interval in ("1s", "100ms"):
        more = {"aggregate.commit_interval": interval}
        with workers(places, places.topic(), [METRIC], more=more) as running:
            delays, rate = _delays(running, warm_up + measured)
        name = f"latency/commits every {interval}"
        yield Figure(f"{name}/rate", rate, "reports/s")
        for percent in (50, 99):
            seconds = float(np.percentile(delays[warm_up:], percent))
            yield Figure(f"{name}/p{percent}", seconds, "s")


def _delays(running: Workers, batches: int) -> tuple[Floats, float]:
    """Return the seconds that each batch took to be seen, in order, and the reports a second."""
    reads: Reads = []
    reported: Reported = []
    is_over = threading.Event()
    looking = threading.Thread(target=_read_estimates, args=(running, is_over, reads))
    looking.start()
    try:
        rate = _report(running, batches, reported)
        wait(lambda: bool(reads) and sum(reads[-1][1]) >= batches, "counting")
    finally:
        is_over.set()
        looking.join()
    ends = np.array([end for end, _ in reads])
    counted = np.array([following for _, following in reads])
    delays = []
    for number, offset, report_time in sorted(reported, key=operator.itemgetter(2)):
        first = int(np.searchsorted(counted[:, number], offset, side="right"))
        delays.append(ends[first] - report_time)
    return np.array(delays), rate


def _report(running: Workers, batches: int, reported: Reported) -> float:
    """Report at a steady rate, and note when; return the reports a second."""
    values, level = population(METRIC, BATCH_REPORTS)
    topic, gap = running.settings.topics.reports, BATCH_REPORTS / REPORTS_PER_SECOND
    with closing(Producer({**DEFAULT_PROPERTIES, **running.settings.kafka})) as producer:
        began = time.perf_counter()
        for number in range(batches):
            while (early := began + number * gap - time.perf_counter()) > 0:
                producer.poll(early)
            report_time = time.perf_counter()
            reports = METRIC.randomize(values, level)
            payload = encode_batch(METRIC, level, reports, time.time_ns() // 1_000_000)

            def note(error: object, message: Any, when: float = report_time) -> None:
                if error is not None:
                    raise RuntimeError(str(error))
                reported.append((message.partition(), message.offset(), when))

            producer.produce(topic, payload, partition=number % PARTITIONS, on_delivery=note)
            producer.poll(0)
        rate = batches * BATCH_REPORTS / (time.perf_counter() - began)
        producer.flush()
    return rate


def _read_estimates(running: Workers, is_over: threading.Event, reads: Reads) -> None:
    """Read the estimate again and again, and note when and up to which offsets."""
    settings = running.settings
    with Reader(settings.redis.url, METRICS, settings.topics.reports) as reader:
        while not is_over.wait(READ_GAP_SECONDS):
            overview = reader.store.overview()
            owners = [overview.partitions[number].owner for number in range(PARTITIONS)]
            following = [max(0, int(owner.get("next", 0))) for owner in owners]
            reader.answer(reader.read(reader.describe(overview, METRIC.name)))
            reads.append((time.perf_counter(), following))


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
def memory(places: Places) -> Iterator[Outcome]:
    """The resident memory of a worker, after it has counted every metric in every partition."""
    yield Figure("memory/Redis, id of a batch", _id_bytes(places), "B")
    if sys.platform.startswith("linux"):
        numbers = str(places.sized(HELD_IDS)), str(IDS_AT_ONCE)
        command = [sys.executable, "-c", HOLDING_PROGRAM, *numbers]
        held_bytes = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        yield Figure("memory/worker, id of a batch", float(held_bytes), "B")
    if not places.has_workers:
        yield NotRun("memory/workers", NEEDS_KAFKA)
        return
    small = define(
        name="small", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[0.5, 1, 2]
    )
    wide = define(
        name="wide", kind="frequency", mechanism="rappor", categories=max(2, places.sized(1024)),
        levels=[0.25 * step for step in range(1, 17)],
    )  # fmt: skip
    for metric, copies, name in (
        (small, 10, "10 small metrics"),
        (wide, max(2, places.sized(100)), "100 metrics of 1,024 categories and 16 levels"),
    ):
        metrics = [dataclasses.replace(metric, name=f"m{number}") for number in range(copies)]
        topic = places.topic()
        with workers(places, topic, metrics) as running:
            running.wait_for(_remembered(places.kafka, topic, metrics))
            time.sleep(SETTLING_SECONDS)
            sizes = memory_of(running.pids[0])
        yield Figure(f"memory/{name}", sizes["VmRSS"] / MEBIBYTE, "MB")
        yield Figure(f"memory/{name}/highest", sizes["VmHWM"] / MEBIBYTE, "MB")


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


def _remembered(servers: str, topic: str, metrics: Sequence[LocalMetric]) -> int:
    """Send reports of each metric, at all levels, to each partition; return how many messages."""
    level = np.arange(REMEMBERED_REPORTS) % len(metrics[0].levels)
    reports = metrics[0].randomize(np.zeros(REMEMBERED_REPORTS, dtype=np.int64), level)
    now = time.time_ns() // 1_000_000
    with closing(Producer({"bootstrap.servers": servers, **FILLING})) as producer:
        for back in range(ROUNDS, 0, -1):
            for metric, partition in itertools.product(metrics, range(PARTITIONS)):
                payload = encode_batch(metric, level, reports, now - back * metric.pane_ms)
                producer.produce(topic, payload, partition=partition)
            producer.flush()
    return ROUNDS * len(metrics) * PARTITIONS
