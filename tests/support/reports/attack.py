"""The attack of docs/privacy.md: tells two values apart in a real reporter's Kafka messages."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from aggregator.local.embedded_servers import EmbeddedBroker
from estimators import Metric, ReportError, SearchMetric
from estimators.auditing import Leak, Trials, largest_leak, opposite_values
from estimators.extremes import Progress
from estimators.mechanisms.mechanism import Reports
from producers import Reporter
from producers.device.rounds import Round
from producers.wire.batch import check_batch, parse_batch
from tests.support.running.deployment import wait_until

ROWS = 1_000
"""The rows of a batch: an even number."""
TOPIC = "attacked"
NO_LEAK = Leak(0.0, "none", (0, 0), (0, 0))


@dataclasses.dataclass(frozen=True)
class Finding:
    """The attack's finding for a level: its epsilon is that of one answer; or another fault."""

    epsilon: float
    leak: Leak
    fault: str = ""

    @property
    def holds(self) -> bool:
        return not self.fault and self.leak.lower <= self.epsilon


def attack(metric: Metric, reports: int, confidence: float) -> Iterator[Finding]:
    """Attack each level in turn with this many reports, a quarter under each of two values.

    The in-process broker keeps 5 MB of a partition, so a level's reports have to take less.
    """
    metric = dataclasses.replace(metric, max_batch_reports=None)  # no report depends on it
    batches = reports // ROWS // 4 * 4
    # answers have no time: one partition keeps their order
    key = b"in order" if isinstance(metric, SearchMetric) else None
    with EmbeddedBroker() as broker:
        partitions = broker.create_topic(TOPIC)
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        own = {"group.id": TOPIC, "enable.auto.commit": False}
        with (
            Reporter(metric, kafka, topic=TOPIC, batch_reports=ROWS, batch_age=1e6, key=key) as by,
            contextlib.closing(Consumer({**kafka, **own})) as consumer,
        ):
            consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(partitions)])
            for level in range(len(metric.levels)):
                yield _attack_level(metric, by, consumer, level, batches, confidence)


def _attack_level(
    metric: Metric, reporter: Reporter, consumer: Consumer, level: int, count: int, certainty: float
) -> Finding:
    """Attack one level, and return the finding.

    Pairs of batches are sent for each of the two values. In a pair's first batch the value and the
    first value alternate, row by row; in the second batch they have changed places.
    """
    first, second = opposite_values(metric)
    sent = [
        [np.array(pair * (ROWS // 2)) for pair in ([value, first], [first, value])]
        for value in (first, second)
    ]
    epsilon, claimed = float(metric.levels[level]), float(metric.randomizer.epsilons[level])
    asked = Round.of(metric, Progress(), 0) if isinstance(metric, SearchMetric) else None
    try:
        for number in range(count):
            values = sent[number // 2 % 2][number % 2]
            if asked is None:
                reporter.report(values, epsilon, time=1e9 + number / 1000)
            else:
                reporter.answer(asked, values, epsilon)
        reporter.flush()
        received = _received(metric, consumer, count, by_time=asked is None)
    except ReportError as error:
        return Finding(claimed, NO_LEAK, f"a report that its mechanism refuses: {error.detail}")
    if any(levels.strip(bytes([level])) for levels, _ in received):
        return Finding(claimed, NO_LEAK, "another level on the wire")
    decoded = np.stack([reports for _, reports in received])
    trials = _trials(decoded.reshape(-1, 2, 2, ROWS // 2, 2, *metric.randomizer.shape))
    return Finding(claimed, largest_leak(metric, level, *trials, certainty))


def _received(
    metric: Metric, consumer: Consumer, count: int, *, by_time: bool
) -> list[tuple[bytes, Reports]]:
    """Return levels and reports of the next batches, in the order in which they were sent."""
    found: list[tuple[int, bytes, Reports]] = []

    def read() -> bool:
        for message in consumer.consume(count, timeout=0.1):
            assert message.error() is None
            batch = parse_batch(message.value() or b"")
            check_batch(batch, {metric.name: metric})
            place = batch.time_ms if by_time else len(found)
            found.append((place, batch.levels, metric.randomizer.decode(batch.values)))
        return len(found) == count

    wait_until(read, "all batches came back", pause=0)
    return [(levels, reports) for _, levels, reports in sorted(found, key=lambda one: one[0])]


def _trials(pairs: Any) -> tuple[Trials, Trials]:
    """Return each value's trials; axes: pair, value, batch of the pair, row, parity of the row."""

    def trials(value: int) -> Trials:
        one, other = pairs[:, value, 0], pairs[:, value, 1]
        parts = [
            np.concatenate(both, axis=1)
            for both in (
                (one[:, :, 0], other[:, :, 1]),
                (one[:, :, 1], other[:, :, 0]),
                (other[:, :, 0], one[:, :, 1]),
            )
        ]
        return Trials(*(part.reshape(-1, *pairs.shape[5:]) for part in parts))

    return trials(0), trials(1)
