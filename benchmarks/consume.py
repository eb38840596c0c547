"""Consuming and counting, against consuming the same messages and dropping them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from aggregator import kafka
from aggregator.partition import Partition
from aggregator.settings import Settings
from aggregator.worker import CONSUME_MESSAGES
from benchmarks.batches import FUTURE_MS, METRICS, payloads
from benchmarks.measure import Benchmark, Side
from benchmarks.places import PARTITIONS, Places

BATCHES = {1: 150_000, 1_000: 30_000}


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for reports, batches in BATCHES.items():
        topic, messages = places.log(payloads(places.sized(batches), reports))
        yield Benchmark(
            f"consume/batches of {reports}/raw",
            "reports/s",
            consumption(places, topic, messages, reports, _counter),
            consumption(places, topic, messages, reports, lambda: _drop),
        )


def consumption(
    places: Places,
    topic: str,
    messages: int,
    reports: int,
    handler: Callable[[], Callable[[list[Any]], object]],
) -> Side:
    """Return a side that reads a whole log with the worker's fetch settings."""

    def rate(_: float) -> float:
        handle = handler()
        consumer: Consumer = kafka.consumer(
            Settings(kafka={"bootstrap.servers": places.kafka}), "bench"
        )
        consumer.list_topics(topic, timeout=30)
        began, left = time.perf_counter(), messages
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while left > 0:
            found = consumer.consume(min(left, CONSUME_MESSAGES), timeout=1.0)
            left -= len(found)
            handle(found)
        passed = time.perf_counter() - began
        consumer.close()
        return messages * reports / passed

    return rate


def _drop(messages: list[Any]) -> None:
    """Look at nothing."""


def _counter() -> Callable[[list[Any]], None]:
    partitions: defaultdict[int, Partition] = defaultdict(lambda: Partition(METRICS, FUTURE_MS))

    def count(messages: list[Any]) -> None:
        grouped: defaultdict[int, list[Any]] = defaultdict(list)
        for message in messages:
            grouped[message.partition()].append(message)
        for number, batch in grouped.items():
            partitions[number].count(batch)

    return count
