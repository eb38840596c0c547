"""Consuming and counting, against consuming the same messages and dropping them."""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition

from aggregator.config.settings import Settings
from aggregator.kafka import clients, worker_clients
from aggregator.state.partition import Partition
from benchmarks.batches import FUTURE_MS, METRICS, different_payloads
from benchmarks.measure import Benchmark, Side
from benchmarks.places import PARTITIONS, Places
from producers.kafka.connection import DEFAULTS

BATCHES = {1: 900_000, 1_000: 120_000}
"""A second or less of raw consumption: the first messages of a log are waited for."""
COMPRESSIONS = ("none", str(DEFAULTS["compression.type"]))
"""Nothing to uncompress; and as reporters send."""
PATIENCE_SECONDS = 0.01
"""A fetch that finds fewer messages than asked for waits so long for more, at the end for none."""


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for reports, batches in BATCHES.items():
        for compression in COMPRESSIONS:
            encoded = different_payloads(places.sized(batches), reports)
            topic, messages = places.log(encoded, compression=compression)
            name = f"batches of {reports}" + (f", {compression}" if compression != "none" else "")
            yield Benchmark(
                f"consume/{name}/raw",
                "reports/s",
                consumption(places, topic, messages, reports, counting),
                consumption(places, topic, messages, reports, lambda: raw),
            )


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Have Python look for garbage as seldom as in a worker, whoever consumes."""
    before = gc.get_threshold()
    worker_clients.collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


Step = Callable[[Consumer], int]
"""Takes what comes from a consumer; returns how many messages that was."""


def consumption(
    places: Places, topic: str, messages: int, reports: int, begin: Callable[[], Step]
) -> Side:
    """Return a side that reads a whole log with the worker's fetch settings."""

    def rate(_: float) -> float:
        with collecting_seldom():
            return consumed()

    def consumed() -> float:
        step = begin()
        consumer: Consumer = clients.consumer(
            Settings(kafka={"bootstrap.servers": places.kafka}), "bench"
        )
        consumer.list_topics(topic, timeout=30)
        began, left = time.perf_counter(), messages
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while left > 0:
            left -= step(consumer)
        passed = time.perf_counter() - began
        consumer.close()
        return messages * reports / passed

    return rate


def raw(consumer: Consumer) -> int:
    """Drop what comes."""
    return len(consumer.consume(worker_clients.CONSUME_MESSAGES, timeout=PATIENCE_SECONDS))


def counting() -> Step:
    """Count what comes, as a worker does, from nothing."""
    partitions: defaultdict[int, Partition] = defaultdict(lambda: Partition(METRICS, FUTURE_MS))

    def count(consumer: Consumer) -> int:
        messages = worker_clients.gather(consumer, PATIENCE_SECONDS)
        for number, batch in worker_clients.by_partition(messages).items():
            partitions[number].count(batch)
        return len(messages)

    return count
