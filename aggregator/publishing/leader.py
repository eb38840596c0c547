"""Runs a task in the one process that holds its lease."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import redis
from confluent_kafka import KafkaError, KafkaException

from aggregator.config.live_metrics import current
from aggregator.errors import BrokerRefused, BrokerUnreachable, DitherError, TopicGone
from aggregator.storage.failures import explain_redis_error
from aggregator.storage.lease import Lease, LeaseLost
from estimators import Metric
from producers.kafka.kafka_errors import describe_kafka_error

LOOK_SECONDS = 0.5
"""Between two looks at what is to be done, and at a lease that another holds."""
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 5.0
TELL_SECONDS = 60.0
"""Between two lines of the log on an outage that lasts."""
STOP_SECONDS = 3.0
STUCK_SECONDS = 300.0
"""Between two looks: then it is stuck, because no call to Kafka or Redis takes so long."""


class CopyLost(Exception):  # noqa: N818
    """Redis lost its copy of a topic, which has to be read again."""


class Leader(ABC):
    """Works alone while it has the lease, and waits for its turn otherwise.

    Parameters
    ----------
    client : redis.Redis
    key : str
        With a hash tag: see :class:`aggregator.storage.lease.Lease`.
    seconds : float
        The length of the lease.

    Attributes
    ----------
    name : str
        Of this process, unlike any other's.
    failing : str
        Why the last attempt failed, without addresses; empty once a turn succeeded, or another
        process has the lease.
    """

    work: ClassVar[str]
    """The verb of its task, for "cannot ..."."""
    log: ClassVar[Any]

    def __init__(self, client: redis.Redis, key: str, seconds: float) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.lease = Lease(client, key, self.name, seconds)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked_at = time.monotonic()
        self._turns = 0
        self._told_at = float("-inf")
        self.failing = ""

    def _still_leads(self, metrics: Mapping[str, Metric], before: Mapping[str, Metric]) -> bool:
        """Whether nobody has called :meth:`stop`, and the definitions have not changed.

        With other ones it begins anew, as whoever takes over would.
        """
        self._looked_at = time.monotonic()
        if self._turns:
            self.failing = ""
        self._turns += 1
        return not self._stopping.is_set() and current(metrics) is before

    def _has_task(self) -> bool:
        """Whether there is anything to do; without it the lease is left to others."""
        return True

    def trouble(self) -> str:
        """Return in a few words why the process should be restarted; "" if it works."""
        if self._thread is not None and not self._thread.is_alive():
            return "its thread has ended"
        seconds = time.monotonic() - self._looked_at
        return f"in one step for {seconds:.0f} seconds" if seconds > STUCK_SECONDS else ""

    def start(self) -> None:
        """Begin in a thread, whenever the lease is free and Kafka and Redis are there."""
        name = f"dither-{self.work}"
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and leave the lease to another."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def run(self) -> None:
        """Work until :meth:`stop`; whatever fails is tried again."""
        delay = FIRST_RETRY_SECONDS
        while not self._stopping.is_set():
            self._looked_at = time.monotonic()
            try:
                if self._has_task() and self.lease.acquire():
                    self._turns = 0
                    with self.lease.renewals():
                        self._lead()
                self.failing = ""
                delay = FIRST_RETRY_SECONDS
                self._stopping.wait(LOOK_SECONDS)
                continue
            except LeaseLost as lost:
                self.log.warning("lease lost", detail=str(lost))
            except CopyLost as lost:
                self.log.warning("read again", detail=str(lost))
                self.failing = str(lost)
            except (redis.RedisError, KafkaException, DitherError) as error:
                shown = (
                    describe_kafka_error(error.args[0])
                    if isinstance(error, KafkaException)
                    else explain_redis_error(error)
                )
                if delay < LAST_RETRY_SECONDS or time.monotonic() > self._told_at + TELL_SECONDS:
                    self.log.warning(f"cannot {self.work}", error=shown, again_in=delay)
                    self._told_at = time.monotonic()
                self.failing = _in_public(error)
            except Exception:
                self.log.exception(f"cannot {self.work}: a defect of Dither", again_in=delay)
                self.failing = "a defect of Dither"
            self._stopping.wait(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    @abstractmethod
    def _lead(self) -> None:
        """Work while holding the lease, until something fails or :meth:`stop` is called."""

    def _check(self) -> None:
        """Raise LeaseLost unless nobody else can have the lease now."""
        if not self.lease.held:
            raise LeaseLost(f"the lease of epoch {self.lease.epoch} has run out")


def _in_public(error: Exception) -> str:
    """Return why something failed; addresses and users are nobody's business outside."""
    if isinstance(error, BrokerUnreachable | BrokerRefused) and not isinstance(error, TopicGone):
        return "Kafka does not answer, or refuses this server"
    if isinstance(error, KafkaException):
        return KafkaError(error.args[0].code()).str()
    return "Redis fails" if isinstance(error, redis.RedisError) else str(error)
