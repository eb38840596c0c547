"""Asking Kafka for the ends of the reports topic's partitions, and writing heartbeats to them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from aggregator.config.settings import Settings
from aggregator.kafka import clients
from aggregator.publishing.quiet_partitions import Beat, Closing
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.progress import TopicProgress
from producers.kafka.kafka_errors import describe_kafka_error
from producers.wire.batch import heartbeat

ASK_SECONDS = 5.0
"""An answer that takes longer is none."""
DELIVERY_SECONDS = 5.0
"""A broker that comes back later does not get the heartbeat before what devices held back."""
CLOSE_SECONDS = 1.0
SPECS: Any = OffsetSpec  # untyped

log = structlog.get_logger("dither.publisher")


class Ends:
    """Asks for the ends of a topic's partitions, all at once, without waiting for the answers.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._topic = settings, settings.topics.reports
        self._admin = clients.admin(settings)
        self._asked_at = 0.0
        self._answers: dict[int, Future[Any]] = {}

    def read(self, partitions: int) -> tuple[float, dict[int, int | None]] | None:
        """Return when was asked last, and the ends that Kafka told, None where it did not; ask on.

        None as long as the answers are awaited. After one that did not come, another client asks:
        a client keeps what it knows of a leader that was replaced, and would be refused for ever.
        """
        if not all(answer.done() for answer in self._answers.values()):
            return None
        found = self._asked_at, {n: _end(answer) for n, answer in self._answers.items()}
        if None in found[1].values():
            self._admin = clients.admin(self._settings)
        self._asked_at = time.monotonic()
        wanted = {TopicPartition(self._topic, n): SPECS.latest() for n in range(partitions)}
        answers = self._admin.list_offsets(wanted, request_timeout=ASK_SECONDS)
        self._answers = {place.partition: answer for place, answer in answers.items()}
        return found


class Heartbeats:
    """Has panes closed in partitions that get no reports.

    Parameters
    ----------
    settings : Settings
    closing : Closing
        Decides which heartbeats are to be sent.
    """

    def __init__(self, settings: Settings, closing: Closing) -> None:
        self._topic, self._closing = settings.topics.reports, closing
        self._ends = Ends(settings)
        within = {"message.timeout.ms": int(1000 * DELIVERY_SECONDS)}
        self._producer: Producer = clients.producer(settings, **within)

    def send_due(self, overview: TopicProgress, partitions: int) -> None:
        """Ask how far the logs are, and send what is due; what is lost is sent again."""
        self._producer.poll(0)
        if (answers := self._ends.read(partitions)) is not None:
            self._closing.note_log_ends(*answers)
        self._send(self._closing.heartbeats(overview, partitions))
        self._producer.poll(0)

    def _send(self, beats: Iterable[Beat]) -> None:
        with contextlib.suppress(BufferError):  # its queue is full: the rest is due again later
            for beat in beats:
                for _ in range(CONFIRMING_BATCHES):
                    self._producer.produce(
                        self._topic,
                        heartbeat(beat.metric, beat.time_ms),
                        partition=beat.partition,
                        on_delivery=self._delivered(beat),
                    )

    def _delivered(self, beat: Beat) -> Any:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._closing.delivered(beat, message.offset(), message.timestamp()[1])
            else:
                log.warning(
                    "heartbeat failed", partition=beat.partition, error=describe_kafka_error(error)
                )
                self._closing.delivered(beat, None)

        return delivered

    def close(self) -> None:
        """Let go."""
        self._producer.flush(CLOSE_SECONDS)
        self._producer.purge()
        self._producer.close()


def _end(answer: Future[Any]) -> int | None:
    """Return the end of a partition's log; None if Kafka did not say."""
    try:
        return int(answer.result(0).offset)
    except (KafkaException, TimeoutError):
        return None
