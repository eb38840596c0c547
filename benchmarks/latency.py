"""From a report on the device to an estimate that has it, at a steady rate.

A report's time runs from before it is randomized to the end of the first read of an estimate that
counts it: from Kafka's offset of its batch, and the offsets that were committed before the read.
The first seconds are left out: Kafka's broker has just started, and compiles what it runs.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
from confluent_kafka import Producer

from aggregator.features.reader import Reader
from benchmarks.batches import METRIC, METRICS
from benchmarks.measure import Figure, NotRun, Outcome
from benchmarks.metrics import population
from benchmarks.places import PARTITIONS, Places
from benchmarks.workers import Workers, wait, workers
from estimators.estimate import Floats
from producers.kafka.connection import DEFAULT_PROPERTIES
from producers.wire.batch import encode_batch

REPORTS_PER_SECOND = 100_000
BATCH_REPORTS = 100
WARM_UP_SECONDS, SECONDS = 5.0, 20.0
INTERVALS = ("1s", "100ms")
READ_GAP_SECONDS = 0.005
QUANTILES = {"p50": 0.5, "p99": 0.99}
Reported = list[tuple[int, int, float]]
"""Partition and offset of each batch, and when it was reported."""
Reads = list[tuple[float, list[int]]]
"""When each read ended, and the next offsets that it had."""


def benchmarks(places: Places) -> Iterator[Outcome]:
    if not places.is_real:
        yield NotRun("latency", "needs Apache Kafka: dither kafka --fetch")
        return
    batches_per_second = REPORTS_PER_SECOND / BATCH_REPORTS
    warm_up = places.sized(int(WARM_UP_SECONDS * batches_per_second))
    batches = warm_up + places.sized(int(SECONDS * batches_per_second))
    for interval in INTERVALS:
        more = {"aggregate.commit_interval": interval}
        with workers(places, places.topic(), [METRIC], more=more) as running:
            delays, rate = _measured(running, batches)
        name = f"latency/commits every {interval}"
        yield Figure(f"{name}/rate", rate, "reports/s")
        for label, quantile in QUANTILES.items():
            yield Figure(f"{name}/{label}", float(np.quantile(delays[warm_up:], quantile)), "s")


def _measured(running: Workers, batches: int) -> tuple[Floats, float]:
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
