"""Produces events to the estimates topic in Kafka transactions."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.kafka import clients
from aggregator.publishing.events import Event
from producers.kafka.kafka_errors import describe_kafka_error

BEGIN_SECONDS = 30.0
COMMIT_SECONDS = 30.0
TRANSACTION_MS = 45_000
"""After this time Kafka aborts the transaction of a dead publisher."""


class EventProducer:
    """A transactional producer, which fences every earlier producer with the same identity.

    Kafka aborts the transaction of a fenced producer, and refuses its commits.

    Parameters
    ----------
    identity : str
        The transactional id.

    Raises
    ------
    KafkaException
        If Kafka does not answer in time; try again with a new producer.
    """

    def __init__(self, settings: Settings, topic: str, identity: str) -> None:
        self._topic, self._has_schemas = topic, settings.publish.connect_schemas
        properties = {"transactional.id": identity, "transaction.timeout.ms": TRANSACTION_MS}
        self._producer = clients.producer(settings, **properties)
        self._producer.init_transactions(BEGIN_SECONDS)
        self._partitions = self.partitions(self._topic)

    def publish(self, events: Sequence[Event]) -> dict[int, int]:
        """Publish events in one transaction; return the offset after the last event, by partition.

        Raises DitherError or KafkaException if publishing failed. The events may be on the topic
        nevertheless.
        """
        offsets: dict[int, int] = {}
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                offsets[message.partition()] = message.offset() + 1

        self._producer.begin_transaction()
        for event in events:
            self._producer.produce(
                self._topic,
                event.enveloped if self._has_schemas else event.data,
                event.key.encode(),
                partition=self._partition(event.subject),
                headers=event.headers,
                on_delivery=delivered,
            )
            self._producer.poll(0)
        try:
            self._producer.commit_transaction(COMMIT_SECONDS)
        except KafkaException as error:
            raise DitherError(describe_kafka_error(error.args[0], self._topic)) from None
        if failed:
            raise DitherError(describe_kafka_error(failed[0], self._topic))
        return offsets

    def cluster(self) -> str:
        """Return the id of the Kafka cluster; empty if the brokers do not tell it."""
        metadata = self._producer.list_topics(self._topic, timeout=clients.ANSWER_SECONDS)
        return metadata.cluster_id or ""

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic.

        Raises
        ------
        DitherError
            If the topic does not exist, or is hidden from this user.
        KafkaException
            If Kafka does not answer.
        """
        metadata = self._producer.list_topics(topic, timeout=clients.ANSWER_SECONDS).topics[topic]
        if metadata.error is not None:
            raise DitherError(describe_kafka_error(metadata.error, topic))
        return len(metadata.partitions)

    def close(self) -> None:
        """Close the producer, and abort its transaction."""
        self._producer.purge()
        with contextlib.suppress(KafkaException):  # an earlier call has reported the failure
            self._producer.close()

    def _partition(self, metric: str) -> int:
        """Return the partition of all of a metric's events, whose order Kafka then keeps."""
        return zlib.crc32(metric.encode()) % self._partitions
