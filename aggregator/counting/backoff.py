"""Waits for Redis or Kafka to return, while the consumer still polls for its group."""

from __future__ import annotations

import redis
import structlog

from aggregator.clock import Clock
from aggregator.dead_letters.writer import DeadLettersUndelivered
from aggregator.errors import BrokerRefused, BrokerUnreachable, OtherDeploymentSuspected
from aggregator.storage.failures import explain_redis_error

TRANSIENT_ERRORS = (
    redis.RedisError,
    BrokerUnreachable,
    BrokerRefused,  # as when the server that issues tokens is away
    DeadLettersUndelivered,
    OtherDeploymentSuspected,
)
"""Failures that may pass without a person's help."""
FIRST_RETRY_SECONDS = 0.2
LAST_RETRY_SECONDS = 5.0
REPEAT_SECONDS = 60.0
"""The time between equal log lines."""

log = structlog.get_logger("dither.worker")


class Backoff:
    """Tells when to retry a failed operation; `retry_at` is in monotonic seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.retry_at = float("-inf")
        self._began: float | None = None
        self._delay = FIRST_RETRY_SECONDS
        self._logged, self._logged_at = "", float("-inf")

    @property
    def is_waiting(self) -> bool:
        """Whether the last attempt failed."""
        return self._began is not None

    @property
    def is_due(self) -> bool:
        """Whether it is time to try again, or the last attempt succeeded."""
        return self._clock.monotonic() >= self.retry_at

    def fail(self, error: Exception) -> None:
        """Record that an attempt failed, and double the delay."""
        now = self._clock.monotonic()
        why = explain_redis_error(error)
        if why != self._logged or now >= self._logged_at + REPEAT_SECONDS:
            log.warning("waiting", error=why, seconds=round(now - (self._began or now), 1))
            self._logged, self._logged_at = why, now
        if self._began is None:
            self._began = now
        self.retry_at = now + self._delay
        self._delay = min(2 * self._delay, LAST_RETRY_SECONDS)

    def recover(self) -> None:
        """Record that an attempt succeeded."""
        if self._began is not None:
            log.info("recovered", after_seconds=round(self._clock.monotonic() - self._began, 1))
        self._began, self.retry_at = None, float("-inf")
        self._delay, self._logged = FIRST_RETRY_SECONDS, ""
