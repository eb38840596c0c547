"""Kafka clients with the properties that the service sets, and what librdkafka logs."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from aggregator.config.settings import Settings
from aggregator.errors import BrokerRefused, BrokerUnreachable, DitherError, SettingsError
from aggregator.lazy_log import LazyLog
from producers.delivery.server_probe import CLOSING_SERVER, KAFKA_BROKER, SILENT_SERVER
from producers.kafka import diagnosis, kafka_errors
from producers.kafka.connection import PRODUCER_ONLY

LIBRDKAFKA_LOG = logging.getLogger("aggregator.librdkafka")
"""librdkafka's own lines, hundreds while a broker is unreachable, for users who add a handler. The
relevant errors are logged by :class:`aggregator.kafka.clients.ThrottledErrorLog`."""
LIBRDKAFKA_LOG.addHandler(logging.NullHandler())
LIBRDKAFKA_LOG.addFilter(kafka_errors.WithoutSecrets())
LIBRDKAFKA_LOG.propagate = False

log = LazyLog("dither.kafka")

ANSWER_SECONDS = 10.0
REFUSAL_CHECK_SECONDS = 1.0
SILENT_SECONDS = 2.0  # after which servers that do not answer are no brokers

CONSUMER_DEFAULTS: dict[str, Any] = {
    "enable.auto.offset.store": False,
    "session.timeout.ms": 10_000,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 1_000,
    "fetch.max.bytes": 262_144,
}
"""Defaults that [kafka] may override.

A response is decompressed as a whole, up to 1,032 times its size, before any message is counted:
small responses bound the memory, and are as fast.

Measured: a backoff of 1 ms is five times faster. A broker that waits for new messages in idle
partitions delays newly assigned ones: their first message comes after 50 ms, or after 340 ms with
librdkafka's wait of 500 ms. More than a thousand queued messages are no faster; a single one halves
the speed of large messages."""

MANDATORY_PROPERTIES: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "partition.assignment.strategy": "cooperative-sticky",
}
"""Needed for exact sums: offsets are stored with the sums, and never jump silently."""
TRANSIENT_CODES = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
"""Errors after which a cluster may return a topic's id later."""
REPEAT_SECONDS = 60.0
"""The time between equal log lines."""
OPEN_CONNECTION_STATE = "in state UP"
"""Part of librdkafka's error about a connection that was open, not about an attempt to connect."""
FILE_PROPERTIES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
CONSUMER_ONLY = (*CONSUMER_DEFAULTS, *MANDATORY_PROPERTIES)


def consumer(settings: Settings, group: str, **properties: Any) -> Consumer:
    """Return a consumer of the deployment's cluster.

    `settings`: the settings of the deployment; `group`: the consumer group; `properties`:
    properties of librdkafka; they override all others.
    """
    configured = {k: v for k, v in settings.kafka.items() if k not in PRODUCER_ONLY}
    configured["message.max.bytes"] = 1_000  # a producer's, and fetch.max.bytes may not be below it
    mandatory = {"group.id": group, **MANDATORY_PROPERTIES, **properties}
    return Consumer({**CONSUMER_DEFAULTS, **configured, **mandatory}, logger=LIBRDKAFKA_LOG)


def producer(settings: Settings, **properties: Any) -> Producer:
    """Return an idempotent producer to the deployment's cluster.

    `properties`: properties of librdkafka, which override those in [kafka].
    """
    needed = {"enable.idempotence": True, "acks": "all"}
    config = reporter_properties(settings) | properties | needed
    return kafka_errors.ExplainingProducer(config, logger=LIBRDKAFKA_LOG)


def reporter_properties(settings: Settings) -> dict[str, Any]:
    """Return the properties of [kafka] that apply to a reporter."""
    return {k: v for k, v in settings.kafka.items() if k not in CONSUMER_ONLY}


def admin_properties(settings: Settings) -> dict[str, Any]:
    """Return the properties of [kafka] that apply to an administrative client."""
    return {k: v for k, v in settings.kafka.items() if k not in (*CONSUMER_ONLY, *PRODUCER_ONLY)}


def admin(settings: Settings, *topics: str) -> AdminClient:
    """Return an administrative client, after a check that a broker answers.

    `settings`: the settings of the deployment; `topics`: topics that must exist, and that this user
    must be allowed to describe.

    Raises
    ------
    BrokerUnreachable
        If no broker answers.
    BrokerRefused
        If a broker refuses this client, for example because of a wrong password or certificate.
    DitherError
        If a topic does not exist, or this user may not describe it.
    """
    _check_files(settings)
    errors: list[KafkaError] = []
    config: dict[str, Any] = {"error_cb": errors.append, **admin_properties(settings)}
    client = AdminClient(config, logger=LIBRDKAFKA_LOG)
    start = time.monotonic()
    while not _answers(client, start + ANSWER_SECONDS):
        client.poll(0)
        servers = str(settings.kafka.get("bootstrap.servers", ""))
        why = diagnosis.diagnose_kafka(settings.kafka, errors)
        if why not in diagnosis.POSSIBLE_BROKERS:
            raise BrokerRefused(servers, why)
        patience = ANSWER_SECONDS if why == KAFKA_BROKER else SILENT_SECONDS
        if time.monotonic() >= start + patience:
            last = kafka_errors.without_secrets(errors[-1].str()) if errors else "no answer in time"
            is_other = why in (CLOSING_SERVER, SILENT_SERVER)
            raise BrokerUnreachable(servers, f"it is {why}" if is_other else last)
    for topic in topics:
        about = client.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        if about.error is not None:
            raise DitherError(kafka_errors.describe_kafka_error(about.error, topic))
    return client


def _answers(client: AdminClient, deadline: float) -> bool:
    """Return whether a broker answers within a second."""
    try:
        left = max(0.05, min(REFUSAL_CHECK_SECONDS, deadline - time.monotonic()))
        client.list_topics(timeout=left)
    except KafkaException:
        return False
    return True


def _check_files(settings: Settings) -> None:
    """Raise SettingsError for a file that cannot be read; librdkafka would not name it."""
    for name in FILE_PROPERTIES:
        file = settings.kafka.get(name)
        if isinstance(file, str) and file != "probe" and not os.access(file, os.R_OK):
            key = f"kafka.{name}"
            source = settings.sources.get(key, "settings")
            raise SettingsError(key, file, "a file that this user can read", source)


class RenewedConsumer:
    """Holds a consumer, and replaces it after an unanswered query.

    librdkafka 2.16 has stayed in "all broker connections are down" for more than 20 minutes after a
    broker was frozen and came back, while other clients of the process worked.
    """

    def __init__(self, connect: Callable[[], Consumer]) -> None:
        self._connect = connect
        self._current: Consumer | None = None

    @property
    def current(self) -> Consumer:
        """The consumer for the next query."""
        if self._current is None:
            self._current = self._connect()
        return self._current

    def renew(self) -> None:
        """Close the consumer; another query gets a new one."""
        if self._current is not None:
            self._current.close()
        self._current = None


class ThrottledErrorLog:
    """An ``error_cb`` that logs an unreachable cluster, or a refusal, at most once a minute each.

    A broken connection is not logged, because brokers close connections whose token has expired,
    maybe all at once, and the client opens new ones. If the client cannot, the cluster is
    unreachable, which is logged.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._down: KafkaError | None = None
        self._down_at = float("-inf")
        self._logged_at: dict[int, float] = {}

    def __call__(self, error: KafkaError) -> None:
        """Log a refusal; log that all brokers are down once a later error tells the cause."""
        now = self._now()
        if error.code() in kafka_errors.REFUSAL_CODES:
            self._tell(error, now)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down, self._down_at = error, now
        elif (
            self._down is not None
            and OPEN_CONNECTION_STATE not in error.str()
            and now - self._down_at <= 2 * REPEAT_SECONDS
        ):
            self._tell(self._down, now, cause=kafka_errors.describe_kafka_error(error))

    def _tell(self, error: KafkaError, now: float, **cause: str) -> None:
        if now - self._logged_at.get(error.code(), float("-inf")) >= REPEAT_SECONDS:
            self._logged_at[error.code()] = self._down_at = now
            log.warning("kafka error", error=kafka_errors.describe_kafka_error(error), **cause)
