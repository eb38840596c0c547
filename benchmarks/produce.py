"""Reporting values until Kafka has acknowledged them, against producing finished batches.

Ours randomizes, groups by pane and encodes besides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from confluent_kafka import Producer

from benchmarks.batches import METRIC, TIME_MS, payloads
from benchmarks.measure import Benchmark
from benchmarks.metrics import population
from benchmarks.places import Places
from producers import Reporter
from producers.kafka.connection import DEFAULT_PROPERTIES

BATCH_REPORTS = 1_000
BATCHES = 3_000


def benchmarks(places: Places) -> Iterator[Benchmark]:
    topic = places.topic()
    servers = {"bootstrap.servers": places.kafka}
    batches = places.sized(BATCHES)
    values, level = population(METRIC, BATCH_REPORTS)
    epsilons = [METRIC.levels[index] for index in level]
    encoded = payloads(batches, BATCH_REPORTS)
    units = batches * BATCH_REPORTS

    def ours(_: float) -> float:
        with Reporter(METRIC, servers, topic=topic, batch_reports=BATCH_REPORTS) as reporter:
            began = time.perf_counter()
            for _ in range(batches):
                reporter.report(values, epsilons, time=TIME_MS / 1000)
            reporter.flush()
            return units / (time.perf_counter() - began)

    def baseline(_: float) -> float:
        with closing(Producer({**DEFAULT_PROPERTIES, **servers})) as producer:
            began = time.perf_counter()
            for payload in encoded:
                producer.produce(topic, payload)
                producer.poll(0)
            producer.flush()
            return units / (time.perf_counter() - began)

    yield Benchmark(f"produce/batches of {BATCH_REPORTS}/raw", "reports/s", ours, baseline)
