"""From a report on the device to an estimate that has it, at a steady rate.

A report's time runs from before it is randomized to the end of the first read of an estimate that
counts it: from Kafka's offset of its batch, and the offsets that were committed before the read.
The first seconds are left out: Kafka's broker has just started, and compiles what it runs.
"""

from __future__ import annotations

import operator
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from aggregator.config.settings import Settings
from aggregator.features.reader import Reader
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.batches import METRIC, METRICS
from benchmarks.end_to_end import settings_of
from benchmarks.measure import Figure, NotRun, Outcome
from benchmarks.metrics import population
from benchmarks.places import PARTITIONS, Places
from benchmarks.workers import joined, wait, workers
from producers.kafka.connection import DEFAULT_PROPERTIES
from producers.wire.batch import encode_batch

REPORTS_PER_SECOND = 100_000
BATCH_REPORTS = 100
WARM_UP_SECONDS, SECONDS = 5.0, 20.0
INTERVALS = ("1s", "100ms")
READ_GAP_SECONDS = 0.005
QUANTILES = {"p50": 0.5, "p99": 0.99}


def benchmarks(places: Places) -> Iterator[Outcome]:
    if not places.is_real:
        yield NotRun("latency", "needs Apache Kafka: dither kafka --fetch")
        return
    for interval in INTERVALS:
        with tempfile.TemporaryDirectory() as folder:
            settings = settings_of(places, places.topic(), Path(folder))
            settings.aggregate.commit_interval = interval
            with (
                workers(1, settings, Path(folder) / "log"),
                Store(connect(places.redis), settings.topics.reports) as store,
            ):
                wait(lambda store=store: joined(store, PARTITIONS, 1), "the worker's joining")  # type: ignore[misc]
                batches_per_second = REPORTS_PER_SECOND / BATCH_REPORTS
                warm_up = places.sized(int(WARM_UP_SECONDS * batches_per_second))
                batches = places.sized(int(SECONDS * batches_per_second))
                delays, rate = Feed(settings, store).run(warm_up + batches)
        name = f"latency/commits every {interval}"
        yield Figure(f"{name}/rate", rate, "reports/s")
        for told, quantile in QUANTILES.items():
            yield Figure(f"{name}/{told}", float(np.quantile(delays[warm_up:], quantile)), "s")


class Feed:
    """Reports at a steady rate, and looks at the estimate all the while."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings, self.store = settings, store
        self.reported: list[tuple[int, int, float]] = []  # partition, offset, when
        self.reads: list[tuple[float, list[int]]] = []  # when it ended, next offsets it had

    def run(self, batches: int) -> tuple[np.ndarray[Any, np.dtype[np.float64]], float]:
        """Return the seconds that each batch took to be seen, and the reports produced a second.

        The first batch comes first.
        """
        over = threading.Event()
        looking = threading.Thread(target=self._look, args=(over,))
        looking.start()
        try:
            rate = self._report(batches)
            wait(lambda: bool(self.reads) and sum(self.reads[-1][1]) >= batches, "counting")
        finally:
            over.set()
            looking.join()
        ends = np.array([end for end, _ in self.reads])
        counted = np.array([following for _, following in self.reads])
        delays = []
        for number, offset, when in sorted(self.reported, key=operator.itemgetter(2)):
            first = int(np.searchsorted(counted[:, number], offset, side="right"))
            delays.append(ends[first] - when)
        return np.array(delays), rate

    def _report(self, batches: int) -> float:
        values, level = population(METRIC, BATCH_REPORTS)
        gap = BATCH_REPORTS / REPORTS_PER_SECOND
        kafka = {"bootstrap.servers": self.settings.kafka["bootstrap.servers"]}
        with closing(Producer({**DEFAULT_PROPERTIES, **kafka})) as producer:
            began = time.perf_counter()
            for number in range(batches):
                while (early := began + number * gap - time.perf_counter()) > 0:
                    producer.poll(early)
                self._send(producer, values, level, number % PARTITIONS)
            rate = batches * BATCH_REPORTS / (time.perf_counter() - began)
            producer.flush()
        return rate

    def _send(self, producer: Producer, values: Any, level: Any, partition: int) -> None:
        when = time.perf_counter()
        reports = METRIC.randomize(values, level)
        payload = encode_batch(METRIC, level, reports, time.time_ns() // 1_000_000)

        def delivered(error: object, message: Any) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            self.reported.append((message.partition(), message.offset(), when))

        producer.produce(
            self.settings.topics.reports, payload, partition=partition, on_delivery=delivered
        )
        producer.poll(0)

    def _look(self, over: threading.Event) -> None:
        with Reader(self.settings.redis.url, METRICS, self.settings.topics.reports) as reader:
            while not over.wait(READ_GAP_SECONDS):
                overview = reader.store.overview()
                following = [
                    max(0, int(overview.partitions[number].owner.get("next", 0)))
                    for number in range(PARTITIONS)
                ]
                reader.answer(reader.read(reader.describe(overview, METRIC.name)))
                self.reads.append((time.perf_counter(), following))
