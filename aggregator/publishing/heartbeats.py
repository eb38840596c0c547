"""Writes heartbeats to the quiet partitions of the reports topic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import structlog
from confluent_kafka import KafkaError, Producer

from aggregator.config.settings import Settings
from aggregator.kafka import clients
from aggregator.kafka.log_ends import KafkaLog
from aggregator.publishing.quiet_partitions import Beat, Closing
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.progress import TopicProgress
from producers.kafka.kafka_errors import describe_kafka_error
from producers.wire.batch import heartbeat
from producers.wire.framing import frame

DELIVERY_SECONDS = 5.0
"""A broker that comes back later does not get the heartbeat before what devices held back."""
CLOSE_SECONDS = 1.0

log = structlog.get_logger("dither.publisher")


class Heartbeats:
    """Sends heartbeats, which close panes in partitions that get no reports.

    Parameters
    ----------
    settings : Settings
    closing : Closing
        Decides which heartbeats are to be sent.
    """

    def __init__(self, settings: Settings, closing: Closing) -> None:
        self._topic, self._closing = settings.topics.reports, closing
        self._schema_id = settings.schemas.schema_id
        self._log, self._unknown, self._refused = KafkaLog(settings), "", ""
        within = {"message.timeout.ms": int(1000 * DELIVERY_SECONDS)}
        self._producer: Producer = clients.producer(settings, **within)

    def obstacle(self) -> str:
        """Return why partitions without reports may hold final events back; empty: they do not."""
        why = self._unknown or self._refused
        return f"final events wait for partitions without reports: {why}" if why else ""

    def send_due(self, overview: TopicProgress, partitions: int) -> None:
        """Ask how far the logs are, and send what is due; what is lost is sent again."""
        self._producer.poll(0)
        known = self._log()
        self._unknown = known.unknown
        self._closing.note_log_ends(known.asked_at, known.ends(partitions))
        self._send(self._closing.heartbeats(overview, partitions))
        self._producer.poll(0)

    def _send(self, beats: Iterable[Beat]) -> None:
        with contextlib.suppress(BufferError):  # its queue is full: the rest is due again later
            for beat in beats:
                for _ in range(CONFIRMING_BATCHES):
                    batch = heartbeat(beat.metric, beat.time_ms)
                    self._producer.produce(
                        self._topic,
                        frame(self._schema_id, batch) if self._schema_id else batch,
                        partition=beat.partition,
                        on_delivery=self._delivered(beat),
                    )

    def _delivered(self, beat: Beat) -> Any:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._refused = ""
                self._closing.delivered(beat, message.offset(), message.timestamp()[1])
            else:
                why = describe_kafka_error(error, self._topic)
                log.warning("heartbeat failed", partition=beat.partition, error=why)
                self._refused = f"a heartbeat failed: {KafkaError(error.code()).str()}"
                self._closing.delivered(beat, None)

        return delivered

    def close(self) -> None:
        """Let go."""
        self._producer.flush(CLOSE_SECONDS)
        self._producer.purge()
        self._producer.close()
