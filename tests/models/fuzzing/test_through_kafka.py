"""Damaged batches through Apache Kafka, a worker and Redis: counted, or in the dead letters."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from aggregator.dead_letters.writer import CONTEXT
from aggregator.state.partition import Partition
from estimators.durations import milliseconds
from tests.support.reports.messages import LogMessage
from tests.support.reports.mutations import STEP_MS, Fuzzer, arrival, corpus, fuzzed_metrics
from tests.support.running.deployment import Deployment
from tests.support.running.servers import Kafka

Place = tuple[int, int]
"""Partition and offset."""
CHUNK = 5_000


def through_kafka(
    kafka: Kafka, redis_url: str, folder: Path, batches: int, seconds: float
) -> Counter[str]:
    """Count fuzzed batches as in production and once more here; return the reports by outcome."""
    metrics = fuzzed_metrics()
    deployment = Deployment(kafka, redis_url, _written(folder))
    deployment.metrics = metrics
    deployment.settings.aggregate.deadletter_consecutive = 0  # bad ones by the thousand are meant
    future_ms = milliseconds(deployment.settings.aggregate.future)
    here = [Partition(metrics, future_ms) for _ in range(deployment.partitions)]
    refused: dict[Place, str] = {}
    start = time.time_ns() // 1_000_000 - batches * STEP_MS
    fuzzer = Fuzzer(corpus(metrics, 5), 5, start)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "linger.ms": 20}
    )
    ends = [0] * deployment.partitions
    with deployment.store, deployment.worker():
        for first in range(0, batches, CHUNK):
            payloads = list(fuzzer.messages(min(CHUNK, batches - first)))
            for number in range(deployment.partitions):
                mine = list(enumerate(payloads, first))[number :: deployment.partitions]
                messages = [
                    LogMessage(ends[number] + at, payload, arrival(index, start))
                    for at, (index, payload) in enumerate(mine)
                ]
                ends[number] += len(messages)
                for message in messages:
                    _send(producer, deployment.topic, number, message)
                for refusal in here[number].count(messages):
                    refused[number, refusal.message.offset()] = refusal.reason
                here[number].mark_committed()
        assert producer.flush(60) == 0
        deployment.wait_until_counted(seconds)
        counts = Counter[str]()
        for number, partition in enumerate(here):
            assert deployment.store.counts(number) == dict(partition.counts)
            counts.update(partition.counts)
        assert deployment.verify().verified
        found: dict[Place, str] = {}
        for letter in deployment.dead(len(refused), seconds):
            told = letter["headers"]
            place = int(told[CONTEXT + "partition"]), int(told[CONTEXT + "offset"])
            found[place] = told[CONTEXT + "exception.class.name"].decode()
        assert found == refused
    return counts


def _written(folder: Path) -> Path:
    """Return a metrics file, as a deployment wants one; the metrics themselves are handed over."""
    from tests.support.reports.metrics import METRICS

    file = folder / "metrics.toml"
    file.write_text(METRICS)
    return file


def _send(producer: Producer, topic: str, partition: int, message: LogMessage) -> None:
    while True:
        try:
            producer.produce(topic, message.payload, partition=partition, timestamp=message.arrived)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


@pytest.mark.more
def test_fuzzed_batches_are_counted_or_in_the_dead_letters(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    counts = through_kafka(apache_kafka, redis_url, tmp_path, 10_000, 60)
    assert any(name.startswith("accepted:") for name in counts)


@pytest.mark.slow
def test_a_million_fuzzed_batches_are_counted_or_in_the_dead_letters(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    counts = through_kafka(apache_kafka, redis_url, tmp_path, 1_000_000, 1_800)
    assert counts.total() >= 1_000_000
