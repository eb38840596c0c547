"""Kafka clients as the service configures them, and what it asks of a cluster."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aggregator import refusals
from aggregator.errors import BrokerRefused, BrokerUnreachable, DitherError, SettingsError
from aggregator.settings import Settings
from producers.kafka_errors import explained

QUIET = logging.getLogger("aggregator.librdkafka")
"""librdkafka's own lines; it repeats itself while a broker is away."""

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 1.0

CONSUMER: dict[str, Any] = {
    "enable.auto.offset.store": False,
    "session.timeout.ms": 10_000,
    "fetch.queue.backoff.ms": 1,
    "queued.min.messages": 100_000,
}
"""Defaults that [kafka] may override; the backoff of 1 ms was measured to be five times faster."""

MANDATORY: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "partition.assignment.strategy": "cooperative-sticky",
}
"""What exactness rests on: offsets live beside the sums, and an offset never jumps in silence."""

FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
CONSUMER_ONLY = (*CONSUMER, *MANDATORY)
PRODUCER_ONLY = ("acks", "enable.idempotence", "linger.ms", "compression.type", "batch.size")


def consumer(settings: Settings, group: str, **properties: Any) -> Consumer:
    """Return a consumer of the deployment's cluster."""
    own = {k: v for k, v in settings.kafka.items() if k not in PRODUCER_ONLY}
    config = {**CONSUMER, **own, "group.id": group, **MANDATORY, **properties}
    return Consumer(config, logger=QUIET)


def producer(settings: Settings, **properties: Any) -> Producer:
    """Return an idempotent producer to the deployment's cluster."""
    own = {k: v for k, v in settings.kafka.items() if k not in CONSUMER_ONLY}
    return Producer({**own, "enable.idempotence": True, "acks": "all", **properties}, logger=QUIET)


def reporting(settings: Settings) -> dict[str, Any]:
    """Return the properties of [kafka] for a reporter."""
    return {k: v for k, v in settings.kafka.items() if k not in CONSUMER_ONLY}


def admin(settings: Settings, *topics: str) -> AdminClient:
    """Return an administrative client, after checking that a broker answers.

    Parameters
    ----------
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
    """
    _check_files(settings)
    errors: list[KafkaError] = []
    config: dict[str, Any] = {"error_cb": errors.append}
    others = (*CONSUMER_ONLY, *PRODUCER_ONLY)
    config |= {k: v for k, v in settings.kafka.items() if k not in others}
    client = AdminClient(config, logger=QUIET)
    deadline = time.monotonic() + ANSWER_SECONDS
    while not _answers(client, deadline):
        client.poll(0)
        over = time.monotonic() >= deadline
        servers = str(settings.kafka.get("bootstrap.servers", ""))
        if why := refusals.of_kafka(settings.kafka, errors, probe=over):
            raise BrokerRefused(servers, why)
        if over:
            last = errors[-1].str() if errors else "no answer in time"
            raise BrokerUnreachable(servers, last)
    for topic in topics:
        about = client.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        if about.error is not None:
            raise DitherError(f"topic {topic!r}: {explained(about.error)}")
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


def ensure_topics(settings: Settings, *needed: str) -> list[str]:
    """Create the topics that are missing, with the configured number of partitions.

    Topics that are not ours to manage (``topics.managed = false``) are left alone. Reports have the
    broker's timestamps: what is from the future is judged by them, and a producer could lie.

    Parameters
    ----------
    needed : str
        The topics that the caller uses, and needs rights for; by default, all.

    Returns
    -------
    list of str
        Those that were created.
    """
    client = admin(settings)
    if not settings.topics.managed:
        return []
    there = client.list_topics(timeout=ANSWER_SECONDS).topics
    topics = settings.topics
    wanted: dict[str, tuple[int, dict[str, str]]] = {
        topics.reports: (topics.partitions, {"message.timestamp.type": "LogAppendTime"}),
        topics.deadletters: (1, {}),
        topics.estimates: (1, {"cleanup.policy": "compact"}),
    }
    missing = [
        NewTopic(name, partitions, topics.replication, config=config)
        for name, (partitions, config) in wanted.items()
        if name not in there and (not needed or name in needed)
    ]
    if not missing:
        return []
    created = []
    futures = client.create_topics(missing, request_timeout=ANSWER_SECONDS)
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise DitherError(
                    f"the topics {', '.join(t.topic for t in missing)} are missing, or this user "
                    f"may not see them, and creating them failed ({explained(error.args[0])}). "
                    "`dither topics` creates them, as a user who may"
                ) from None
        else:
            created.append(name)
    return created


def topic_id(settings: Settings, topic: str) -> str:
    """Return the id of a topic, which changes when it is deleted and created again.

    Empty where the cluster does not tell, or must not be asked (``topics.managed = false``).
    """
    if not settings.topics.managed:
        return ""
    client = admin(settings)
    try:
        future = client.describe_topics(TopicCollection([topic]))[topic]
        return str(future.result(timeout=ANSWER_SECONDS).topic_id)
    except (KafkaException, TimeoutError):
        return ""
