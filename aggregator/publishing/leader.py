"""Runs a task in the one process that holds its lease."""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import redis
from confluent_kafka import KafkaError, KafkaException

from aggregator.config.live_metrics import current
from aggregator.config.settings import Settings
from aggregator.errors import BrokerRefused, BrokerUnreachable, DitherError, TopicGone
from aggregator.reading.reader import MetricReader
from aggregator.storage.failures import explain_redis_error
from aggregator.storage.lease import Lease, LeaseLost
from aggregator.tracing import Tracer
from estimators import Metric
from estimators.durations import milliseconds
from producers.kafka.kafka_errors import describe_kafka_error

TURN_INTERVAL_SECONDS = 1.0
"""The time between two turns, and between two attempts to acquire the lease."""
FIRST_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 5.0
OUTAGE_LOG_SECONDS = 60.0
"""The time between two log lines about the same outage."""
STOP_SECONDS = 3.0
STUCK_SECONDS = 300.0
"""A turn of this length is stuck: no call to Kafka or Redis takes so long."""


class EventCacheLost(Exception):  # noqa: N818
    """Raised if Redis lost its copy of a topic, which must then be read again."""


class Leader(ABC):
    """Does a task in a thread while this process holds the lease; otherwise waits for the lease.

    Parameters
    ----------
    key : str
        A key with a hash tag: see :class:`aggregator.storage.lease.Lease`.
    lease : str
        The length of the lease, a duration.
    tracer : Tracer, optional
        Records spans of the work.

    Attributes
    ----------
    name : str
        The unique name of this process.
    failing : str
        Why the last attempt failed, without addresses; empty after a turn succeeded, or while
        another process holds the lease.
    """

    work: ClassVar[str]
    """The task as a verb, for the log line "cannot ..."."""
    log: ClassVar[Any]

    def __init__(
        self, settings: Settings, reader: MetricReader, key: str, lease: str, tracer: Tracer | None
    ) -> None:
        self.settings, self.reader, self._tracer = settings, reader, tracer or Tracer()
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.lease = Lease(reader.store.client, key, self.name, milliseconds(lease) / 1000)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked_at = time.monotonic()
        self._turns = 0
        self._delay, self._logged_at = FIRST_RETRY_SECONDS, float("-inf")
        self._log_delayed_start: Callable[[], object] | None = None
        self.failing = ""

    def _still_leads(self, led: Mapping[str, Metric]) -> bool:
        """Record that a turn begins; return whether this process still leads.

        It stops leading after :meth:`stop`, or when the current definitions are no longer `led`.
        """
        self._looked_at = time.monotonic()
        if self._turns:
            self.failing = ""
            if self._log_delayed_start is not None:
                self._log_delayed_start()
                self._log_delayed_start = None
        self._turns += 1
        return not self._stopping.is_set() and current(self.reader.metrics) is led

    def _log_start(self, event: str, topic: str) -> None:
        """Log the start of the task; if many starts have failed, after the first complete turn."""
        log_start = functools.partial(self.log.info, event, topic=topic, epoch=self.lease.epoch)
        self._log_delayed_start = None if self._is_logged() else log_start
        if self._log_delayed_start is None:
            log_start()

    def _is_logged(self) -> bool:
        """Return whether the current attempt is logged: if many have failed, once a minute."""
        next_log = self._logged_at + OUTAGE_LOG_SECONDS
        return self._delay < MAX_RETRY_SECONDS or time.monotonic() > next_log

    def _has_task(self) -> bool:
        """Return whether there is a task; without one, other processes may take the lease."""
        return True

    def trouble(self) -> str:
        """Return in a few words why the process should be restarted; "" if it works."""
        if self._thread is not None and not self._thread.is_alive():
            return "its thread has ended"
        seconds = time.monotonic() - self._looked_at
        return f"in one step for {seconds:.0f} seconds" if seconds > STUCK_SECONDS else ""

    def start(self) -> None:
        """Start a thread that does the task whenever the lease, Kafka and Redis are available."""
        self._thread = threading.Thread(target=self.run, name=f"dither-{self.work}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and release the lease."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def run(self) -> None:
        """Do the task until :meth:`stop`; try again after failures."""
        while not self._stopping.is_set():
            self._looked_at = time.monotonic()
            try:
                if self._has_task() and self.lease.acquire():
                    self._turns = 0
                    with self.lease.renewals():
                        self._lead()
                self.failing = ""
                self._delay = FIRST_RETRY_SECONDS
                self._stopping.wait(TURN_INTERVAL_SECONDS)
                continue
            except LeaseLost as error:
                remedy = (
                    f"if this repeats, Redis or this process is too slow for {self.work}.lease = "
                    f"{self.lease.seconds:g}s: find out why, or set it longer"
                )
                self.log.warning("lease lost", detail=str(error), remedy=remedy)
                self.failing = f"{error}; {remedy}"
            except EventCacheLost as error:
                self.log.warning("read again", detail=str(error))
                self.failing = str(error)
            except (redis.RedisError, KafkaException, DitherError) as error:
                message = (
                    describe_kafka_error(error.args[0])
                    if isinstance(error, KafkaException)
                    else explain_redis_error(error)
                )
                if self._is_logged():
                    self.log.warning(f"cannot {self.work}", error=message, again_in=self._delay)
                    self._logged_at = time.monotonic()
                self.failing = _public_reason(error)
            except Exception:
                defect = f"cannot {self.work}: a defect of Dither"
                self.log.exception(defect, again_in=self._delay)
                self.failing = "a defect of Dither"
            self._stopping.wait(self._delay)
            self._delay = min(2 * self._delay, MAX_RETRY_SECONDS)

    @abstractmethod
    def _lead(self) -> None:
        """Do the task while holding the lease, until a failure or :meth:`stop`."""

    def _verify_lease(self) -> None:
        """Raise LeaseLost if another process may hold the lease."""
        if not self.lease.held:
            raise LeaseLost(f"the lease of epoch {self.lease.epoch} has expired")


def _public_reason(error: Exception) -> str:
    """Return why an operation failed, without addresses and users, which are confidential."""
    if isinstance(error, BrokerUnreachable | BrokerRefused) and not isinstance(error, TopicGone):
        return "Kafka does not answer, or refuses this server"
    if isinstance(error, KafkaException):
        return KafkaError(error.args[0].code()).str()
    return "Redis fails" if isinstance(error, redis.RedisError) else str(error)
