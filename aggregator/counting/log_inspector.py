"""Queries Kafka about a partition's log, before a worker counts it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from aggregator.config.settings import Settings
from aggregator.counting.continuity import KnownProgress, Log, Mark
from aggregator.errors import BrokerUnreachable, TopicGone
from aggregator.kafka import topic_admin
from aggregator.kafka.clients import ANSWER_SECONDS, RenewedConsumer
from aggregator.kafka.log_ends import leaderless_partitions
from producers.kafka.kafka_errors import describe_kafka_error


class LogInspector:
    """Queries Kafka through a separate consumer, because queries would wait behind a fetch.

    The consumer does not join the workers' group; it is replaced when it gets no answer. Each
    query without an answer in time raises :class:`BrokerUnreachable`.
    """

    def __init__(
        self, consumer: RenewedConsumer, settings: Settings, clock: Callable[[], float]
    ) -> None:
        self._consumer, self._clock = consumer, clock
        self._topic = settings.topics.reports
        self._servers = str(settings.kafka.get("bootstrap.servers", ""))

    def log(self, number: int, known_progress: tuple[KnownProgress, ...] = ()) -> Log:
        """Return an object that answers queries about a partition's log.

        `known_progress`: the progress of the partition that the worker remembers.
        """
        return Log(
            lambda: self._range(number),
            lambda offset: self._mark(number, offset),
            lambda: (*known_progress, *self.committed_progress([number]).values()),
        )

    def cluster_topic(self) -> tuple[str, list[int]]:
        """Return the id of the Kafka cluster ("" if unknown), and the topic's partitions."""
        metadata = self._metadata()
        return metadata.cluster_id or "", sorted(metadata.topics[self._topic].partitions)

    def leaderless_partitions(self) -> set[int]:
        """Return the partitions that no broker leads; queries about them would wait in vain."""
        return leaderless_partitions(self._metadata().topics[self._topic])

    def committed_progress(self, numbers: Sequence[int]) -> dict[int, KnownProgress]:
        """Return the progress that the group has committed, by partition, where it has any."""
        if not numbers:
            return {}
        positions = [TopicPartition(self._topic, number) for number in numbers]
        with self._answers():
            committed = self._consumer.current.committed(positions, timeout=ANSWER_SECONDS)
        progress_by_partition = {}
        for position in committed:
            if position.error is not None:
                raise self._unreachable(position.error)
            if progress := KnownProgress.of_group(position.offset, position.metadata):
                progress_by_partition[position.partition] = progress
        return progress_by_partition

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.renew()

    def _metadata(self) -> Any:
        with self._answers():
            return self._consumer.current.list_topics(self._topic, ANSWER_SECONDS)

    def _range(self, number: int) -> tuple[int, int]:
        position = TopicPartition(self._topic, number)
        with self._answers():
            return self._consumer.current.get_watermark_offsets(position, timeout=ANSWER_SECONDS)

    def _mark(self, number: int, offset: int) -> Mark | None:
        position = TopicPartition(self._topic, number, offset)
        consumer, last = self._consumer.current, None
        deadline = self._clock() + ANSWER_SECONDS
        consumer.incremental_assign([position])
        try:
            while (left := deadline - self._clock()) > 0:
                if last is not None and last.code() == KafkaError._AUTO_OFFSET_RESET:
                    break  # the log has lost its messages up to the queried offset
                for event in consumer.consume(1, timeout=left):
                    last = event.error()
                    if last is None:
                        return Mark.of(event)
                    if last.code() == KafkaError._PARTITION_EOF:
                        return None
        finally:
            with contextlib.suppress(KafkaException):
                consumer.incremental_unassign([TopicPartition(self._topic, number)])
        raise self._unreachable(last)

    @contextlib.contextmanager
    def _answers(self) -> Iterator[None]:
        """Raise BrokerUnreachable if a query in the context fails."""
        try:
            yield
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None

    def _unreachable(self, error: KafkaError | None) -> BrokerUnreachable:
        if error is not None and error.code() in topic_admin.NO_TOPIC_CODES:
            return TopicGone(self._topic)
        self._consumer.renew()
        why = "no answer in time" if error is None else describe_kafka_error(error, self._topic)
        return BrokerUnreachable(self._servers, why)
