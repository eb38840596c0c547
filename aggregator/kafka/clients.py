"""Kafka clients with the service's configuration, and queries of a cluster."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from aggregator.config.settings import Settings
from aggregator.errors import BrokerRefused, BrokerUnreachable, DitherError, SettingsError
from aggregator.kafka import diagnosis
from producers.kafka.connection import PRODUCER_ONLY as PRODUCER_ONLY
from producers.kafka.kafka_errors import (
    ExplainingProducer,
    WithoutSecrets,
    describe_kafka_error,
    without_secrets,
)

QUIET = logging.getLogger("aggregator.librdkafka")
"""librdkafka's own lines, hundreds while a broker is away: for whoever adds a handler. What matters
of them comes as an error, or from :class:`aggregator.kafka.client_log.ThrottledErrorLog`."""
QUIET.addHandler(logging.NullHandler())
QUIET.addFilter(WithoutSecrets())
QUIET.propagate = False

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 1.0

CONSUMER: dict[str, Any] = {
    "enable.auto.offset.store": False,
    "session.timeout.ms": 10_000,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 1_000,
    "fetch.max.bytes": 262_144,
}
"""Defaults that [kafka] may override.

A response is expanded as a whole, up to 1,032 times, before anything of it is counted: small ones
bound the memory, and are as fast.

Measured: the backoff of 1 ms is five times faster. A broker that holds a request for partitions in
which nothing is new holds up those that the next request will ask for: of one that is assigned
beside idle ones the first message comes after 50 ms, for 340 with librdkafka's 500. More than a
thousand messages in the queue are no faster; one alone takes half of the speed of large ones.
"""

MANDATORY: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "partition.assignment.strategy": "cooperative-sticky",
}
"""Needed for exact sums: offsets are stored with the sums, and never jump silently."""
TRANSIENT = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
"""Answers of a cluster that may tell a topic's id later."""
FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
CONSUMER_ONLY = (*CONSUMER, *MANDATORY)


def consumer(settings: Settings, group: str, **properties: Any) -> Consumer:
    """Return a consumer of the deployment's cluster.

    Parameters
    ----------
    settings : Settings
        Where Kafka is, and librdkafka's properties.
    group : str
        The consumer group.
    **properties
        Of librdkafka, above all others.
    """
    own = {k: v for k, v in settings.kafka.items() if k not in PRODUCER_ONLY}
    own["message.max.bytes"] = 1_000  # a producer's, and fetch.max.bytes may not be below it
    config = {**CONSUMER, **own, "group.id": group, **MANDATORY, **properties}
    return Consumer(config, logger=QUIET)


def producer(settings: Settings, **properties: Any) -> Producer:
    """Return an idempotent producer to the deployment's cluster."""
    own = {k: v for k, v in settings.kafka.items() if k not in CONSUMER_ONLY}
    config = {**own, **properties, "enable.idempotence": True, "acks": "all"}
    return ExplainingProducer(config, logger=QUIET)


def reporting(settings: Settings) -> dict[str, Any]:
    """Return the properties of [kafka] for a reporter."""
    return {k: v for k, v in settings.kafka.items() if k not in CONSUMER_ONLY}


def administrative(settings: Settings) -> dict[str, Any]:
    """Return the properties of [kafka] for whoever only asks."""
    others = (*CONSUMER_ONLY, *PRODUCER_ONLY)
    return {k: v for k, v in settings.kafka.items() if k not in others}


def admin(settings: Settings, *topics: str) -> AdminClient:
    """Return an administrative client, after checking that a broker answers.

    Parameters
    ----------
    settings : Settings
        Where Kafka is.
    topics : str
        Must be there, and this user have rights on them.

    Raises
    ------
    BrokerUnreachable
        If none does.
    BrokerRefused
        If one turns us away: wrong password, certificate, and so on.
    SettingsError
        If a file that a property names cannot be read.
    DitherError
        If one of the topics is not there, or may not be described.
    """
    _check_files(settings)
    errors: list[KafkaError] = []
    config: dict[str, Any] = {"error_cb": errors.append, **administrative(settings)}
    client = AdminClient(config, logger=QUIET)
    deadline = time.monotonic() + ANSWER_SECONDS
    while not _answers(client, deadline):
        client.poll(0)
        over = time.monotonic() >= deadline
        servers = str(settings.kafka.get("bootstrap.servers", ""))
        if why := diagnosis.diagnose_kafka(settings.kafka, errors, probe=over):
            raise BrokerRefused(servers, why)
        if over:
            last = without_secrets(errors[-1].str()) if errors else "no answer in time"
            raise BrokerUnreachable(servers, last)
    for topic in topics:
        about = client.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        if about.error is not None:
            raise DitherError(describe_kafka_error(about.error, topic))
    return client


def _answers(client: AdminClient, deadline: float) -> bool:
    """Return whether a broker answers; look every now and then whether one has refused."""
    try:
        left = max(0.05, min(LOOK_SECONDS, deadline - time.monotonic()))
        client.list_topics(timeout=left)
    except KafkaException:
        return False
    return True


def _check_files(settings: Settings) -> None:
    """Refuse names of files that cannot be read: librdkafka would not say which."""
    for name in FILES:
        file = settings.kafka.get(name)
        if isinstance(file, str) and file != "probe" and not os.access(file, os.R_OK):
            key = f"kafka.{name}"
            source = settings.sources.get(key, "settings")
            raise SettingsError(key, file, "a file that this user can read", source)
