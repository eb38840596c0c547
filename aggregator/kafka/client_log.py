"""Logs errors of a Kafka client's brokers, each at most once a minute."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError

from producers.kafka.kafka_errors import REFUSALS, describe_kafka_error

REPEAT_SECONDS = 60.0
"""Between log lines that say the same."""

log = structlog.get_logger("dither.kafka")


class ThrottledErrorLog:
    """An ``error_cb``: tells that no broker is there, or that one refuses us, once a minute each.

    A single connection that breaks is none of these: the client opens another.

    Parameters
    ----------
    now : callable
        Returns seconds that only grow.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._cause = ""
        self._logged_at: dict[int, float] = {}

    def __call__(self, error: KafkaError) -> None:
        """Take in what the client says."""
        code, now = error.code(), self._now()
        if code != KafkaError._ALL_BROKERS_DOWN and code not in REFUSALS:
            self._cause = describe_kafka_error(error)
        elif now - self._logged_at.get(code, float("-inf")) >= REPEAT_SECONDS:
            self._logged_at[code] = now
            cause = {"cause": self._cause} if self._cause and code not in REFUSALS else {}
            log.warning("kafka error", error=describe_kafka_error(error), **cause)
