"""Sends heartbeats to the quiet partitions of the reports topic."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

import structlog
from confluent_kafka import KafkaError, Producer

from aggregator.config.settings import Settings
from aggregator.kafka import clients
from aggregator.kafka.log_ends import Ends
from aggregator.publishing.quiet_partitions import Beat, HeartbeatSchedule
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.progress import TopicProgress
from estimators.durations import milliseconds
from producers.kafka.kafka_errors import describe_kafka_error
from producers.wire.batch import heartbeat
from producers.wire.framing import frame

DELIVERY_SECONDS = 5.0
"""The time for the delivery of a heartbeat. It is short: a broker that returns after an outage must
get the devices' delayed reports before any heartbeat."""
CLOSE_SECONDS = 1.0
LOOKS_PER_IDLE_TIME = 10

log = structlog.get_logger("dither.publisher")


class Heartbeats:
    """Sends heartbeats, which close panes in partitions without reports; `ends` asks Kafka."""

    def __init__(self, settings: Settings, schedule: HeartbeatSchedule, ends: Ends) -> None:
        self._topic, self._schedule = settings.topics.reports, schedule
        self._schema_id = settings.schemas.schema_id
        self._look_seconds = milliseconds(settings.aggregate.idle) / 1000 / LOOKS_PER_IDLE_TIME
        self._next_look = float("-inf")
        self._ends, self._unknown, self._refused = ends, "", ""
        delivery_timeout = {"message.timeout.ms": int(1000 * DELIVERY_SECONDS)}
        self._producer: Producer = clients.producer(settings, **delivery_timeout)

    def obstacle(self) -> str:
        """Return why partitions without reports may delay final events; "" if they cannot."""
        reason = self._unknown or self._refused
        return f"final events wait for partitions without reports: {reason}" if reason else ""

    def send_due(self, overview: TopicProgress, partitions: int) -> None:
        """Query the logs' ends and send the due heartbeats; a lost heartbeat is due again.

        It does so at most LOOKS_PER_IDLE_TIME times in the idle time.
        """
        self._producer.poll(0)
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self._look_seconds
        log_ends = self._ends()
        self._unknown = log_ends.unknown
        self._schedule.note_log_ends(log_ends.asked_at, log_ends.ends(partitions))
        self._send(self._schedule.heartbeats(overview, partitions))
        self._producer.poll(0)

    def _send(self, beats: Iterable[Beat]) -> None:
        with contextlib.suppress(BufferError):  # the queue is full; unsent heartbeats are due again
            for beat in beats:
                for _ in range(CONFIRMING_BATCHES):
                    batch = heartbeat(beat.metric, beat.time_ms)
                    self._producer.produce(
                        self._topic,
                        frame(self._schema_id, batch) if self._schema_id else batch,
                        partition=beat.partition,
                        on_delivery=self._delivery_callback(beat),
                    )

    def _delivery_callback(self, beat: Beat) -> Any:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._refused = ""
                self._schedule.note_delivery(beat, message.offset(), message.timestamp()[1])
            else:
                reason = describe_kafka_error(error, self._topic)
                log.warning("heartbeat failed", partition=beat.partition, error=reason)
                self._refused = f"a heartbeat failed: {KafkaError(error.code()).str()}"
                self._schedule.note_delivery(beat, None)

        return delivered

    def close(self) -> None:
        """Flush briefly, and close the producer."""
        self._producer.flush(CLOSE_SECONDS)
        self._producer.purge()
        self._producer.close()
