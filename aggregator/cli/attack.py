"""The attack of `dither audit --attack`, on the bytes of a real reporter's Kafka messages."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic
from numpy.typing import NDArray

from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.kafka import clients
from aggregator.local.embedded import EmbeddedBroker
from estimators import Metric, ReportError, SearchMetric
from estimators.auditing import Leak, Trials, largest_leak, opposite_values
from estimators.extremes import Progress
from estimators.mechanisms.mechanism import Reports
from producers import Reporter
from producers.device.rounds import Round
from producers.wire.batch import check_batch, parse_batch

BATCH_REPORTS, BATCH_BYTES = 1_000, 500_000
MAX_UNREAD_BATCHES, MAX_UNREAD_BYTES = 200, 1_000_000
"""Batches are read at this point: the in-process broker keeps 5 MB of a partition."""
MAX_LEVEL_BYTES = 200_000_000
"""Of a level's reports: limits the number of wide ones."""
SILENCE_SECONDS = 30.0
NO_LEAK = Leak(0.0, "none", (0, 0), (0, 0))


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of the attack on a level.

    Attributes
    ----------
    epsilon : float
        Claimed for a report; for one answer if a search splits the budget.
    reports : int
        Read from the messages.
    fault : str
        Another fault of the messages, or empty.
    """

    epsilon: float
    reports: int
    leak: Leak
    fault: str = ""

    @property
    def holds(self) -> bool:
        """Whether the claimed epsilon withstood the attack."""
        return not self.fault and self.leak.lower <= self.epsilon


@dataclasses.dataclass(frozen=True)
class ScratchTopic:
    """A topic for the attack alone, and the properties of its clients."""

    properties: dict[str, Any]
    topic: str
    partitions: int


@contextlib.contextmanager
def embedded_topic() -> Iterator[ScratchTopic]:
    """Create a topic in librdkafka's in-process broker."""
    with EmbeddedBroker() as broker:
        topic = _name()
        partitions = broker.create_topic(topic)
        yield ScratchTopic({"bootstrap.servers": broker.bootstrap_servers}, topic, partitions)


@contextlib.contextmanager
def kafka_topic(settings: Settings) -> Iterator[ScratchTopic]:
    """Create a topic in the deployment's Kafka, and delete it at the end.

    Raises
    ------
    DitherError
        If the topic cannot be created.
    """
    if not settings.topics.managed:
        raise DitherError(
            "topics.managed = false: Dither may not create the topic that --attack needs; leave "
            "out --kafka to use the in-process broker"
        )
    admin, topic = clients.admin(settings), _name()
    try:
        creations = admin.create_topics([NewTopic(topic, 1, settings.topics.replication)])
        creations[topic].result(clients.ANSWER_SECONDS)
    except KafkaException as error:
        raise DitherError(
            f"cannot create the topic {topic} to attack in ({error.args[0].str()}): grant the "
            "right, or leave out --kafka to use the in-process broker"
        ) from None
    try:
        yield ScratchTopic(clients.reporter_properties(settings), topic, 1)
    finally:
        admin.delete_topics([topic])[topic].result(clients.ANSWER_SECONDS)


def _name() -> str:
    return f"dither.audit.{uuid.uuid4()}"


def attack(
    metric: Metric, scratch_topic: ScratchTopic, reports: int, confidence: float
) -> Iterator[Finding]:
    """Attack each level of a metric in turn.

    Parameters
    ----------
    metric : Metric
    scratch_topic : ScratchTopic
        Nobody else may write to it.
    reports : int
        Number per level: half of them are attacked, a quarter under each of two values.
    confidence : float
        See :func:`estimators.auditing.largest_leak`.
    """
    # the attack may choose the size of a batch: a report does not depend on it
    metric = dataclasses.replace(metric, max_batch_reports=None)
    rows = BATCH_BYTES // (metric.randomizer.width + 1)
    rows = max(2, min(BATCH_REPORTS, rows) // 2 * 2)
    reports = min(reports, MAX_LEVEL_BYTES // metric.randomizer.width)
    batches = max(4, reports // rows // 4) * 4
    with _Attacker(metric, scratch_topic, rows) as attacker:
        for level in range(len(metric.levels)):
            yield attacker.attack(level, batches, confidence)


class _Attacker:
    """A reporter and a consumer of its messages.

    Each value has pairs of batches: it alternates with the first value in a batch, and the next
    batch swaps the two.
    """

    def __init__(self, metric: Metric, scratch_topic: ScratchTopic, rows: int) -> None:
        self.metric, self.rows = metric, rows
        # answers do not say when: one partition keeps their order
        key = b"in order" if isinstance(metric, SearchMetric) else None
        self.reporter = Reporter(
            metric,
            scratch_topic.properties,
            topic=scratch_topic.topic,
            batch_reports=rows,
            batch_age=1e6,
            key=key,
        )
        self.round = Round.of(metric, Progress(), 0) if isinstance(metric, SearchMetric) else None
        self.consumer = Consumer(
            {
                **clients.CONSUMER_DEFAULTS,
                **_shared(scratch_topic.properties),
                "message.max.bytes": 1_000,  # a producer's: fetch.max.bytes may not be below it
                "group.id": scratch_topic.topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            },
            logger=clients.LIBRDKAFKA_LOG,
        )
        self.consumer.assign(
            [
                TopicPartition(scratch_topic.topic, number, 0)
                for number in range(scratch_topic.partitions)
            ]
        )
        self.sent = 0
        self.epoch_ms = int(time.time() * 1000)
        size = rows * (metric.randomizer.width + 1)
        self.unread = max(1, min(MAX_UNREAD_BATCHES, MAX_UNREAD_BYTES // size))

    def __enter__(self) -> _Attacker:
        return self

    def __exit__(self, *_: object) -> None:
        self.reporter.close()
        self.consumer.close()

    def attack(self, level: int, batches: int, confidence: float) -> Finding:
        """Send batches of a level, read them back, and search for the largest leak."""
        values, epsilon = self._values(), float(self.metric.levels[level])
        claimed = float(self.metric.randomizer.epsilons[level])
        decoded_batches: list[Reports] = []
        fault = ""
        for begin in range(0, batches, self.unread):
            size = min(self.unread, batches - begin)
            try:
                for index in range(begin, begin + size):
                    self._send(values[index // 2 % 2][index % 2], epsilon)
                received, receive_fault = self._receive(size, level)
            except ReportError as error:
                broken = f"a report that its own mechanism refuses: {error.detail}"
                return Finding(claimed, 0, NO_LEAK, broken)
            decoded_batches += received
            fault = fault or receive_fault
        trials = self._trials(np.stack(decoded_batches))
        leak = largest_leak(self.metric, level, *trials, confidence)
        return Finding(claimed, batches * self.rows, leak, fault)

    def _values(self) -> list[list[NDArray[Any]]]:
        """Return the values of the first and the second batch of a pair, for each value."""
        first, second = opposite_values(self.metric)
        batches_by_value = []
        for value in (first, second):
            first_batch, second_batch = [value, first], [first, value]
            batches_by_value.append(
                [np.array(pair * (self.rows // 2)) for pair in (first_batch, second_batch)]
            )
        return batches_by_value

    def _send(self, values: NDArray[Any], epsilon: float) -> None:
        """Report a batch; its event time or its offset identifies it."""
        if self.round is None:
            self.reporter.report(values, epsilon, time=(self.epoch_ms + self.sent) / 1000)
        else:
            self.reporter.answer(self.round, values, epsilon)
        self.sent += 1

    def _receive(self, batches: int, level: int) -> tuple[list[Reports], str]:
        """Return the reports of the last batches in order, and a fault or an empty string."""
        self.reporter.flush()
        reports_by_order: dict[int, Reports] = {}
        fault, deadline = "", time.monotonic() + SILENCE_SECONDS
        while len(reports_by_order) < batches:
            for message in self.consumer.consume(batches, timeout=0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                batch = parse_batch(message.value() or b"")
                check_batch(batch, {self.metric.name: self.metric})
                if wrong_levels := batch.levels.strip(bytes([level])):
                    sent, demanded = (self.metric.levels[i] for i in (wrong_levels[0], level))
                    fault = f"epsilon = {sent:g} on the wire, where {demanded:g} was demanded"
                order = batch.time_ms if self.round is None else len(reports_by_order)
                reports_by_order[order] = self.metric.randomizer.decode(batch.values)
                deadline = time.monotonic() + SILENCE_SECONDS
            if time.monotonic() > deadline:
                raise DitherError(
                    f"{len(reports_by_order)} of {batches} batches came back from Kafka within "
                    f"{SILENCE_SECONDS:g} s"
                )
        return [reports_by_order[order] for order in sorted(reports_by_order)], fault

    def _trials(self, batches: Reports) -> tuple[Trials, Trials]:
        """Return the trials under each value, from batches in the order of :meth:`attack`."""
        shape = self.metric.randomizer.shape
        # axes: pair, value, batch of the pair, row, parity of the row
        pairs = batches.reshape(-1, 2, 2, self.rows // 2, 2, *shape)

        def trials(value: int) -> Trials:
            first_batches, second_batches = pairs[:, value, 0], pairs[:, value, 1]
            attacked = np.concatenate([first_batches[:, :, 0], second_batches[:, :, 1]], axis=1)
            neighbours = np.concatenate([first_batches[:, :, 1], second_batches[:, :, 0]], axis=1)
            across = np.concatenate([second_batches[:, :, 0], first_batches[:, :, 1]], axis=1)
            return Trials(*(x.reshape(-1, *shape) for x in (attacked, neighbours, across)))

        return trials(0), trials(1)


def _shared(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties that a consumer accepts, too."""
    return {k: v for k, v in properties.items() if k not in clients.PRODUCER_ONLY}
