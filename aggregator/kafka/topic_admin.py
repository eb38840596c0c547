"""Creates missing topics, and queries the ids and partitions of topics."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from aggregator.config.settings import Settings
from aggregator.errors import BrokerUnreachable, DitherError, TopicGone
from aggregator.kafka.clients import ANSWER_SECONDS, TRANSIENT_CODES, admin
from producers.kafka.kafka_errors import describe_kafka_error

COUNT_SECONDS = 2.0
"""Timeout of a count of partitions; without an answer the last count is used: it never falls."""
MAX_RECORD_BATCH_BYTES = 262_144
"""The max.message.bytes of a reports topic that Dither creates: it bounds decompression."""
NO_TOPIC_CODES = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
"""Codes of a broker that has no such topic, or no such partition of it."""


def ensure_topics(settings: Settings, *needed: str) -> list[str]:
    """Create the missing topics with the configured partitions; return the created ones.

    With ``topics.managed = false`` nothing is created. The reports topic is created with the
    broker's timestamps, by which future event times are refused; a producer's could be false.

    Parameters
    ----------
    settings : Settings
    needed : str
        The topics that the caller uses and may create; by default all.

    Raises
    ------
    DitherError
        If a topic cannot be created.
    """
    client = admin(settings)
    if not settings.topics.managed:
        return []
    existing_topics = client.list_topics(timeout=ANSWER_SECONDS).topics
    topics = settings.topics
    wanted: dict[str, tuple[int, dict[str, str]]] = {
        topics.reports: (
            topics.partitions,
            {
                "message.timestamp.type": "LogAppendTime",
                "max.message.bytes": str(MAX_RECORD_BATCH_BYTES),
            },
        ),
        topics.deadletters: (1, {}),
        topics.estimates: (1, {"cleanup.policy": "compact"}),
        topics.rounds: (1, {"cleanup.policy": "compact"}),
    }
    missing = [
        NewTopic(name, partitions, topics.replication, config=config)
        for name, (partitions, config) in wanted.items()
        if name not in existing_topics and (not needed or name in needed)
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
                why = describe_kafka_error(error.args[0])
                raise DitherError(
                    f"the topics {', '.join(t.topic for t in missing)} are missing, or this user "
                    f"may not see them, and creating them failed ({why}). "
                    "`dither topics` creates them; run it as a user with that right"
                ) from None
        else:
            created.append(name)
    return created


class TopicId:
    """Asks for the id of a topic, which changes when the topic is deleted and created again.

    Calling it returns the id, or "" if the cluster does not tell it or ``topics.managed = false``.
    A failed client is replaced: it would keep asking a dead controller for minutes.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._client: AdminClient | None = None

    def __call__(self) -> str:
        """Return the id.

        Raises
        ------
        BrokerUnreachable
            If no broker answers in time.
        TopicGone
            If the topic does not exist at the moment.
        """
        if not self._settings.topics.managed:
            return ""
        self._client = self._client or admin(self._settings)
        servers = str(self._settings.kafka.get("bootstrap.servers", ""))
        try:
            future = self._client.describe_topics(
                TopicCollection([self._topic]), request_timeout=ANSWER_SECONDS
            )[self._topic]
            return str(future.result(timeout=ANSWER_SECONDS).topic_id)
        except TimeoutError:
            self._client = None
            raise BrokerUnreachable(servers, "no answer in time") from None
        except KafkaException as error:
            code = error.args[0].code()
            if code in (*TRANSIENT_CODES, *NO_TOPIC_CODES):
                self._client = None
                if code in NO_TOPIC_CODES:
                    raise TopicGone(self._topic) from None
                raise BrokerUnreachable(servers, describe_kafka_error(error.args[0])) from None
            return ""


def topic_id(settings: Settings, topic: str) -> str:
    """Return the id of a topic with a new client; see :class:`TopicId`."""
    return TopicId(settings, topic)()


def partition_count(settings: Settings, topic: str) -> int:
    """Return the number of a topic's partitions; 0 if there is no such topic."""
    metadata = admin(settings).list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    return 0 if metadata.error is not None else len(metadata.partitions)


def ask_partition_count(consumer: Consumer, topic: str) -> int:
    """Return the number of a topic's partitions; 0 without an answer in time."""
    try:
        about = consumer.list_topics(topic, timeout=COUNT_SECONDS)
    except KafkaException:
        return 0
    return len(about.topics[topic].partitions)


def stamps_messages(settings: Settings, topic: str) -> bool | None:
    """Return whether a topic replaces producers' timestamps by the broker's; None if unknown."""
    if not settings.topics.managed:
        return None
    client = admin(settings)  # keep a reference until the answer comes
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        future = client.describe_configs([resource])[resource]
        entry = future.result(timeout=ANSWER_SECONDS)["message.timestamp.type"]
    except (KafkaException, TimeoutError):
        return None
    return bool(entry.value == "LogAppendTime")
