"""Consuming and counting, against consuming the same messages and dropping them.

Beside the ratios: the processor time of this process for a message, user and system, of Python and
of the client's threads. It does not depend on what else the machine does, as far as caches allow.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition

from aggregator.config.settings import Settings
from aggregator.kafka import clients, worker_clients
from aggregator.state.partition import Partition
from benchmarks.batches import FUTURE_MS, METRICS, different_payloads
from benchmarks.measure import Benchmark, Figure, Outcome, Side
from benchmarks.places import PARTITIONS, Places
from producers.kafka.connection import DEFAULT_PROPERTIES

BATCHES = {1: 900_000, 1_000: 120_000}
"""A second or less of raw consumption: the first messages of a log are waited for."""
COST_ROUNDS = 5
MICROSECONDS = 1e6
COMPRESSIONS = ("none", str(DEFAULT_PROPERTIES["compression.type"]))
"""Nothing to uncompress; and as reporters send."""
PATIENCE_SECONDS = 0.01
"""A fetch that finds fewer messages than asked for waits so long for more, at the end for none."""


def benchmarks(places: Places) -> Iterator[Outcome]:
    for reports, batches in BATCHES.items():
        for compression in COMPRESSIONS:
            name = f"batches of {reports}" + (f", {compression}" if compression != "none" else "")
            costs = {f"consume/cost, {name}/counted": counting}
            costs[f"consume/cost, {name}/dropped"] = lambda: raw
            if not any(
                places.wanted(figure_name) for figure_name in (f"consume/{name}/raw", *costs)
            ):
                continue
            encoded = different_payloads(places.sized(batches), reports)
            topic, messages = places.log(encoded, compression=compression)
            yield Benchmark(
                f"consume/{name}/raw",
                "reports/s",
                consumption(places, topic, messages, reports, counting),
                consumption(places, topic, messages, reports, lambda: raw),
            )
            if not places.is_real:  # else its broker is part of this process
                continue
            for figure, begin in costs.items():
                if places.wanted(figure):
                    side = consumption(places, topic, messages, 1, begin, time.process_time)
                    rate = statistics.median(side(0) for _ in range(places.sized(COST_ROUNDS)))
                    yield Figure(figure, MICROSECONDS / rate, "us of a core a message")


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Have Python look for garbage as seldom as in a worker, whoever consumes."""
    thresholds = gc.get_threshold()
    worker_clients.collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


Step = Callable[[Consumer], int]
"""Takes what comes from a consumer; returns how many messages that was."""


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
    topic : str
    messages, reports : int
        How many messages the topic has, and reports each of them.
    begin : callable
        Returns what takes the messages.
    clock : callable
        Of the seconds that the rate is by.
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
    """Drop what comes."""
    return len(consumer.consume(worker_clients.CONSUME_MESSAGES, timeout=PATIENCE_SECONDS))


def counting() -> Step:
    """Count what comes, as a worker does, from nothing."""
    partitions: defaultdict[int, Partition] = defaultdict(lambda: Partition(METRICS, FUTURE_MS))

    def count(consumer: Consumer) -> int:
        messages = worker_clients.gather(consumer, PATIENCE_SECONDS)
        for number, batch in worker_clients.sort_events(messages).messages.items():
            partitions[number].count(batch)
        return len(messages)

    return count
