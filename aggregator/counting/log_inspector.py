"""Queries Kafka about a partition's log, before a worker counts any of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from aggregator.config.settings import Settings
from aggregator.counting.continuity import KnownProgress, Log, Mark
from aggregator.errors import BrokerUnreachable, TopicGone
from aggregator.kafka import clients, topic_admin
from aggregator.kafka.renewed_consumer import RenewedConsumer
from producers.kafka.kafka_errors import describe_kafka_error


class LogInspector:
    """Asks through a consumer of its own: questions would queue behind a fetch that waits.

    Every question raises :class:`BrokerUnreachable` where no broker answers it in time.

    Parameters
    ----------
    consumer : RenewedConsumer
        Of the workers' group, which it does not join. Without an answer it is replaced.
    settings : Settings
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        consumer: RenewedConsumer,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer, self._clock = consumer, clock
        self._topic = settings.topics.reports
        self._servers = str(settings.kafka.get("bootstrap.servers", ""))

    def log(self, number: int, known_progress: tuple[KnownProgress, ...] = ()) -> Log:
        """Return what can be asked about a partition's log.

        Parameters
        ----------
        number : int
            The partition's.
        known_progress : tuple of KnownProgress
            What this worker itself remembers of it.
        """
        return Log(
            lambda: self._range(number),
            lambda offset: self._mark(number, offset),
            lambda: (*known_progress, *self._committed(number)),
        )

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _range(self, number: int) -> tuple[int, int]:
        place = TopicPartition(self._topic, number)
        try:
            return self._consumer.current.get_watermark_offsets(
                place, timeout=clients.ANSWER_SECONDS
            )
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None

    def _committed(self, number: int) -> tuple[KnownProgress, ...]:
        place = TopicPartition(self._topic, number)
        try:
            (found,) = self._consumer.current.committed([place], timeout=clients.ANSWER_SECONDS)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None
        if found.error is not None:
            raise self._unreachable(found.error)
        known_progress = KnownProgress.of_group(found.offset, found.metadata)
        return () if known_progress is None else (known_progress,)

    def _mark(self, number: int, offset: int) -> Mark | None:
        place = TopicPartition(self._topic, number, offset)
        consumer, last = self._consumer.current, None
        deadline = self._clock() + clients.ANSWER_SECONDS
        consumer.incremental_assign([place])
        try:
            while (left := deadline - self._clock()) > 0 and not _was_cut(last):
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

    def _unreachable(self, error: KafkaError | None) -> BrokerUnreachable:
        if error is not None and error.code() in topic_admin.NO_TOPIC:
            return TopicGone(self._topic)
        self._consumer.renew()
        why = "no answer in time" if error is None else describe_kafka_error(error)
        return BrokerUnreachable(self._servers, why)


def _was_cut(error: KafkaError | None) -> bool:
    """Whether a log was cut below the offset that is asked for, just now."""
    return error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET
