"""Logs errors of a Kafka client's brokers, each at most once a minute."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError

from producers.kafka.kafka_errors import REFUSAL_CODES, describe_kafka_error

REPEAT_SECONDS = 60.0
"""The time between equal log lines."""
OPEN_CONNECTION_STATE = "in state UP"
"""Part of librdkafka's error about a connection that was open, not about an attempt to connect."""

log = structlog.get_logger("dither.kafka")


class ThrottledErrorLog:
    """An ``error_cb`` that logs an unreachable cluster, or a refusal, once a minute each.

    A broken connection is not logged: brokers close connections whose token has expired, maybe all
    at once, and the client opens new ones. If that fails too, the cluster is unreachable.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._down: KafkaError | None = None
        self._down_at = float("-inf")
        self._logged_at: dict[int, float] = {}

    def __call__(self, error: KafkaError) -> None:
        """Log an error of the client, if it is one that is logged."""
        now = self._now()
        if error.code() in REFUSAL_CODES:
            self._tell(error, now)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down, self._down_at = error, now
        elif (
            self._down is not None
            and OPEN_CONNECTION_STATE not in error.str()
            and now - self._down_at <= 2 * REPEAT_SECONDS
        ):
            self._tell(self._down, now, cause=describe_kafka_error(error))

    def _tell(self, error: KafkaError, now: float, **cause: str) -> None:
        if now - self._logged_at.get(error.code(), float("-inf")) >= REPEAT_SECONDS:
            self._logged_at[error.code()] = self._down_at = now
            log.warning("kafka error", error=describe_kafka_error(error), **cause)
