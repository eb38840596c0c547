"""Follows the rounds of minimum and maximum metrics on their compacted topic."""

from __future__ import annotations

import logging
import os
import threading
import time as clocks
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from estimators.metrics.metric import Metric
from estimators.metrics.search import SearchMetric
from producers.delivery.closing import Closing
from producers.device.rounds import Round, decode
from producers.kafka.connection import LIBRDKAFKA_LOGGER, PRODUCER_ONLY
from producers.kafka.kafka_errors import describe_kafka_error, of_topic

logger = logging.getLogger("producers")

ROUNDS_TOPIC = "dither.rounds"
CONSUMER_GROUP = "dither-rounds"
"""The consumer group, which Kafka's client requires; nothing is committed under it."""
ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.5
MESSAGES_PER_POLL = 1_000


class Rounds(Closing):
    """Follows the topic of rounds.

    Parameters
    ----------
    config : mapping
        librdkafka's properties, as for a :class:`producers.Reporter`.
    topic : str
        The topic of rounds.

    Raises
    ------
    ValueError
        If librdkafka refuses a property.

    Examples
    --------
    A device answers its round when it is opened::

        with Reporter(metric, config) as reporter, Rounds(config) as rounds:
            for asked in rounds.follow(metric):  # ends with the search
                reporter.answer(asked, 17.0, epsilon=1.0, ledger=ledger)
    """

    def __init__(self, config: Mapping[str, Any], topic: str = ROUNDS_TOPIC) -> None:
        self.topic = topic
        self._properties: dict[str, Any] = {
            "group.id": CONSUMER_GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            **{k: v for k, v in config.items() if k not in PRODUCER_ONLY},
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        try:
            self._consumer = Consumer(self._properties, logger=LIBRDKAFKA_LOGGER)
        except KafkaException as error:
            raise ValueError(f"Kafka properties: {error.args[0].str()}") from None
        self._process = os.getpid()
        self._assigned, self._warned = False, ""
        self._latest: dict[tuple[str, int], Round | None] = {}  # for the metrics that are followed

    def close(self) -> None:
        """Close the Kafka client; do nothing in a forked process."""
        if self._process == os.getpid():
            self._consumer.close()

    def latest(self, metric: Metric) -> Round | None:
        """Return a metric's newest round read so far, or None; store its rounds from now on."""
        self._follow_metrics([metric])
        return self._latest[metric.name, metric.revision]

    def follow(
        self, metric: Metric, timeout: float | None = None, stop: threading.Event | None = None
    ) -> Iterator[Round]:
        """Yield each round of a metric as it is opened, from the one that is open now.

        The iteration ends when the last round is decided. A message that is not a round of the
        metric is logged and skipped.

        Parameters
        ----------
        metric : Metric
            A minimum or maximum.
        timeout : float, optional
            The number of seconds without a new round after which to stop; by default, wait forever.
        stop : threading.Event, optional
            Once it is set, the iteration ends, too.

        Raises
        ------
        ValueError
            If the metric has no rounds.
        TimeoutError
            If no new round was opened in time.
        """
        searched = SearchMetric.require(metric)
        changed_at, last_number = clocks.monotonic(), 0
        while stop is None or not stop.is_set():
            open_round = self.latest(metric)
            if open_round is not None and (fault := open_round.fault(searched)):
                self._warn(fault)
                open_round = None
            if open_round is not None and open_round.is_over:
                return
            if open_round is not None and open_round.number != last_number:
                changed_at, last_number = clocks.monotonic(), open_round.number
                yield open_round
            elif timeout is not None and clocks.monotonic() - changed_at > timeout:
                raise TimeoutError(
                    f"no round of {metric.name!r} was opened for {timeout:g} s on topic "
                    f"{self.topic!r}: is `dither coordinate` running?"
                )
            self.poll(POLL_SECONDS if timeout is None else min(POLL_SECONDS, timeout / 4))

    def poll(self, timeout: float = 0.0) -> int:
        """Read new messages, waiting up to `timeout` seconds; return their number."""
        if not self._assigned:
            try:
                self._read_from_start()
            except KafkaException as error:
                self._warn(describe_kafka_error(error.args[0]))
                clocks.sleep(timeout)
                return 0
        messages = self._consumer.consume(MESSAGES_PER_POLL, timeout=timeout)
        for message in messages:
            self._store_round(message)
        return len(messages)

    def read_to_end(self, metrics: Iterable[Metric], timeout: float = 30.0) -> None:
        """Read the topic up to its present end, and store the committed rounds of `metrics`.

        Committed messages behind another producer's open transaction are not missed. `metrics`: the
        minimum and maximum metrics; `timeout`: in seconds.

        Raises
        ------
        KafkaException
            If Kafka does not answer.
        TimeoutError
            If the end was not reached in time.
        """
        self._follow_metrics(metrics)
        self._read_from_start()
        left = self._log_ends()
        deadline = clocks.monotonic() + timeout
        while left:
            for message in self._consumer.consume(MESSAGES_PER_POLL, timeout=0.1):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise of_topic(error, self.topic)
                reached = self._store_round(message)
                if reached >= left.get(message.partition() or 0, reached + 1):
                    del left[message.partition() or 0]
            if left and clocks.monotonic() > deadline:
                raise TimeoutError(
                    f"topic {self.topic!r}: partitions {sorted(left)} have messages that did not "
                    "arrive in time"
                )

    def _follow_metrics(self, metrics: Iterable[Metric]) -> None:
        """Store the rounds of metrics from now on; for a new metric, read the topic again."""
        for metric in metrics:
            key = (metric.name, metric.revision)
            if key not in self._latest:
                self._latest[key], self._assigned = None, False

    def _warn(self, problem: str) -> None:
        """Log a problem, unless the last logged problem was the same."""
        if problem != self._warned:
            logger.warning("topic %s: %s", self.topic, problem)
        self._warned = problem

    def _read_from_start(self) -> None:
        """Read the topic from its beginning."""
        places = self._partitions(self._consumer)
        self._consumer.assign([TopicPartition(self.topic, number, 0) for number in places])
        self._assigned = True

    def _log_ends(self) -> dict[int, int]:
        """Return the end of each partition that is not empty, open transactions included."""
        properties = {**self._properties, "isolation.level": "read_uncommitted"}
        asker = Consumer(properties, logger=LIBRDKAFKA_LOGGER)
        try:
            marks = {
                number: asker.get_watermark_offsets(
                    TopicPartition(self.topic, number), timeout=ANSWER_SECONDS
                )
                for number in self._partitions(asker)
            }
        finally:
            asker.close()
        return {number: end for number, (low, end) in marks.items() if low < end}

    def _partitions(self, client: Consumer) -> list[int]:
        about = client.list_topics(self.topic, timeout=ANSWER_SECONDS).topics[self.topic]
        if about.error is not None:
            raise of_topic(about.error, self.topic)
        return list(about.partitions)

    def _store_round(self, message: Any) -> int:
        """Store the round in a message; return the offset after it."""
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                self._warn(describe_kafka_error(error))
                return 0
            return int(message.offset())
        if (text := message.value()) is not None:
            try:
                received = decode(text)
            except ValueError as wrong:
                logger.warning("topic %s: not a round: %s", self.topic, wrong)
            else:
                self._keep_newer(received)
        return int(message.offset()) + 1

    def _keep_newer(self, received: Round) -> None:
        """Store a round of a metric that is followed, unless it is read a second time."""
        key = (received.metric, received.revision)
        held = self._latest.get(key)
        is_old = held and held.extends(received) and held.opened_ms > received.opened_ms
        if key in self._latest and not is_old:
            self._latest[key] = received
