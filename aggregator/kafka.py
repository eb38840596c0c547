"""Kafka clients as the service configures them, and what it asks of a cluster."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aggregator.errors import BrokerUnreachable, DitherError
from aggregator.settings import Settings

QUIET = logging.getLogger("aggregator.librdkafka")
"""librdkafka's own lines; it repeats itself while a broker is away."""

ANSWER_SECONDS = 10.0

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


def admin(settings: Settings) -> AdminClient:
    """Return an administrative client, after checking that a broker answers.

    Raises
    ------
    BrokerUnreachable
        If none does.
    """
    config = {k: v for k, v in settings.kafka.items() if k not in (*CONSUMER_ONLY, *PRODUCER_ONLY)}
    client = AdminClient(config, logger=QUIET)
    try:
        client.list_topics(timeout=ANSWER_SECONDS)
    except KafkaException as error:
        servers = str(settings.kafka.get("bootstrap.servers", ""))
        raise BrokerUnreachable(servers, error.args[0].str()) from None
    return client


def ensure_topics(settings: Settings) -> None:
    """Create the topics that are missing, with the configured number of partitions.

    Topics that are not ours to manage (``topics.managed = false``) are left alone.
    """
    client = admin(settings)
    if not settings.topics.managed:
        return
    there = client.list_topics(timeout=ANSWER_SECONDS).topics
    topics = settings.topics
    wanted: dict[str, tuple[int, dict[str, str]]] = {
        topics.reports: (topics.partitions, {}),
        topics.deadletters: (1, {}),
        topics.estimates: (1, {"cleanup.policy": "compact"}),
    }
    missing = [
        NewTopic(name, partitions, topics.replication, config=config)
        for name, (partitions, config) in wanted.items()
        if name not in there
    ]
    if not missing:
        return
    for future in client.create_topics(missing, request_timeout=ANSWER_SECONDS).values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise DitherError(
                    f"cannot create the topics {', '.join(t.topic for t in missing)} "
                    f"({error.args[0].str()}): create them yourself, or allow it"
                ) from None


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
