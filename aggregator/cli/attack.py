"""The attack of `dither audit --attack`: from a reporter to the bytes of its Kafka messages.

It assumes nothing about the code in between: values go into a real reporter, with the operating
system's randomness, and the attacker reads the messages that a broker delivers.
"""

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
BATCHES_UNREAD, BYTES_UNREAD = 200, 1_000_000
"""Read before more are sent: the in-process broker keeps 5 MB of a partition."""
MOST_BYTES = 200_000_000
"""Of a level's reports: of wide ones there are fewer."""
SILENCE_SECONDS = 30.0
NO_LEAK = Leak(0.0, "none", (0, 0), (0, 0))


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of the attack on a level.

    Attributes
    ----------
    epsilon : float
        Of a report as it was demanded: where a search splits the budget, of one answer of many.
    reports : int
        Read from the messages.
    leak : Leak
    fault : str
        What else is wrong with the messages; empty where nothing is.
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
class Scratch:
    """A topic for the attack alone, and how to reach it."""

    properties: dict[str, Any]
    topic: str
    partitions: int


@contextlib.contextmanager
def embedded_topic() -> Iterator[Scratch]:
    """Make a topic in librdkafka's in-process broker."""
    with EmbeddedBroker() as broker:
        topic = _name()
        partitions = broker.create_topic(topic)
        yield Scratch({"bootstrap.servers": broker.bootstrap_servers}, topic, partitions)


@contextlib.contextmanager
def kafka_topic(settings: Settings) -> Iterator[Scratch]:
    """Make a topic in the deployment's Kafka, and delete it at the end.

    Raises
    ------
    DitherError
        If the topic may not be made.
    """
    if not settings.topics.managed:
        raise DitherError(
            "topics.managed = false: Dither may not create the topic that --attack needs; leave "
            "out --kafka to use the in-process broker"
        )
    admin, topic = clients.admin(settings), _name()
    try:
        made = admin.create_topics([NewTopic(topic, 1, settings.topics.replication)])
        made[topic].result(clients.ANSWER_SECONDS)
    except KafkaException as error:
        raise DitherError(
            f"cannot create the topic {topic} to attack in ({error.args[0].str()}): grant the "
            "right, or leave out --kafka to use the in-process broker"
        ) from None
    try:
        yield Scratch(clients.reporter_properties(settings), topic, 1)
    finally:
        admin.delete_topics([topic])[topic].result(clients.ANSWER_SECONDS)


def _name() -> str:
    return f"dither.audit.{uuid.uuid4()}"


def attack(metric: Metric, scratch: Scratch, reports: int, confidence: float) -> Iterator[Finding]:
    """Attack each level of a metric in turn.

    Parameters
    ----------
    metric : Metric
    scratch : Scratch
        Its messages are read from here: nobody else may write.
    reports : int
        How many a level makes: half of them are attacked, a quarter under each of two values.
    confidence : float
        See :func:`estimators.auditing.largest_leak`.
    """
    # a batch's size is the attack's to choose: no part of what a report says
    metric = dataclasses.replace(metric, max_batch_reports=None)
    rows = BATCH_BYTES // (metric.randomizer.width + 1)
    rows = max(2, min(BATCH_REPORTS, rows) // 2 * 2)
    reports = min(reports, MOST_BYTES // metric.randomizer.width)
    batches = max(4, reports // rows // 4) * 4
    with _Attacker(metric, scratch, rows) as attacker:
        for level in range(len(metric.levels)):
            yield attacker.attack(level, batches, confidence)


class _Attacker:
    """A reporter, and a consumer that reads what it sends.

    Batches come in pairs of one value each: the value is in every other place of a batch, and in
    the other places of the next one; between stands the first value, whatever is attacked.
    """

    def __init__(self, metric: Metric, scratch: Scratch, rows: int) -> None:
        self.metric, self.rows = metric, rows
        in_order = (
            b"in order" if isinstance(metric, SearchMetric) else None
        )  # answers do not say when
        self.reporter = Reporter(
            metric,
            scratch.properties,
            topic=scratch.topic,
            batch_reports=rows,
            batch_age=1e6,
            key=in_order,
        )
        self.round = Round.of(metric, Progress(), 0) if isinstance(metric, SearchMetric) else None
        self.consumer = Consumer(
            {
                **clients.CONSUMER_DEFAULTS,
                **_shared(scratch.properties),
                "message.max.bytes": 1_000,  # a producer's: fetch.max.bytes may not be below it
                "group.id": scratch.topic,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            },
            logger=clients.LIBRDKAFKA_LOG,
        )
        self.consumer.assign(
            [TopicPartition(scratch.topic, number, 0) for number in range(scratch.partitions)]
        )
        self.sent = 0
        self.epoch_ms = int(time.time() * 1000)
        size = rows * (metric.randomizer.width + 1)
        self.unread = max(1, min(BATCHES_UNREAD, BYTES_UNREAD // size))

    def __enter__(self) -> _Attacker:
        return self

    def __exit__(self, *_: object) -> None:
        self.reporter.close()
        self.consumer.close()

    def attack(self, level: int, batches: int, confidence: float) -> Finding:
        """Send batches of a level, read them back, and look for what tells two values apart."""
        values, epsilon = self._values(), float(self.metric.levels[level])
        claimed = float(self.metric.randomizer.epsilons[level])
        found: list[Reports] = []
        fault = ""
        for begin in range(0, batches, self.unread):
            size = min(self.unread, batches - begin)
            try:
                for index in range(begin, begin + size):
                    self._send(values[index // 2 % 2][index % 2], epsilon)
                received, wrong = self._receive(size, level)
            except ReportError as error:
                broken = f"a report that its own mechanism refuses: {error.detail}"
                return Finding(claimed, 0, NO_LEAK, broken)
            found += received
            fault = fault or wrong
        trials = self._trials(np.stack(found))
        leak = largest_leak(self.metric, level, *trials, confidence)
        return Finding(claimed, batches * self.rows, leak, fault)

    def _values(self) -> list[list[NDArray[Any]]]:
        """Return, for each value, those of the first and of the second batch of a pair."""
        first, second = opposite_values(self.metric)
        found = []
        for value in (first, second):
            one, other = [value, first], [first, value]
            found.append([np.array(pair * (self.rows // 2)) for pair in (one, other)])
        return found

    def _send(self, values: NDArray[Any], epsilon: float) -> None:
        """Report a batch; its event time says which one it is, or its place in the log."""
        if self.round is None:
            self.reporter.report(values, epsilon, time=(self.epoch_ms + self.sent) / 1000)
        else:
            self.reporter.answer(self.round, values, epsilon)
        self.sent += 1

    def _receive(self, batches: int, level: int) -> tuple[list[Reports], str]:
        """Return the reports of the batches sent last, in that order, and what is wrong."""
        self.reporter.flush()
        found: dict[int, Reports] = {}
        fault, deadline = "", time.monotonic() + SILENCE_SECONDS
        while len(found) < batches:
            for message in self.consumer.consume(batches, timeout=0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                batch = parse_batch(message.value() or b"")
                check_batch(batch, {self.metric.name: self.metric})
                if strange := batch.levels.strip(bytes([level])):
                    sent, wanted = self.metric.levels[strange[0]], self.metric.levels[level]
                    fault = f"epsilon = {sent:g} on the wire, where {wanted:g} was demanded"
                place = batch.time_ms if self.round is None else len(found)
                found[place] = self.metric.randomizer.decode(batch.values)
                deadline = time.monotonic() + SILENCE_SECONDS
            if time.monotonic() > deadline:
                raise DitherError(
                    f"{len(found)} of {batches} batches came back from Kafka within "
                    f"{SILENCE_SECONDS:g} s"
                )
        return [found[time_ms] for time_ms in sorted(found)], fault

    def _trials(self, batches: Reports) -> tuple[Trials, Trials]:
        """Return what is attacked under each value, from batches in the order of :meth:`attack`."""
        shape = self.metric.randomizer.shape
        # pairs of batches, one value and the other in turns; places, every other one
        pairs = batches.reshape(-1, 2, 2, self.rows // 2, 2, *shape)

        def trials(value: int) -> Trials:
            one, other = pairs[:, value, 0], pairs[:, value, 1]
            attacked = np.concatenate([one[:, :, 0], other[:, :, 1]], axis=1)
            beside = np.concatenate([one[:, :, 1], other[:, :, 0]], axis=1)
            across = np.concatenate([other[:, :, 0], one[:, :, 1]], axis=1)
            return Trials(*(x.reshape(-1, *shape) for x in (attacked, beside, across)))

        return trials(0), trials(1)


def _shared(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties that a consumer takes as well."""
    return {k: v for k, v in properties.items() if k not in clients.PRODUCER_ONLY}
