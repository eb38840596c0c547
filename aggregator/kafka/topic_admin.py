"""Creates missing topics, and queries the ids and partitions of existing ones."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from aggregator.config.settings import Settings
from aggregator.errors import BrokerUnreachable, DitherError, TopicGone
from aggregator.kafka.clients import ANSWER_SECONDS, TRANSIENT, admin
from producers.kafka.connection import PRODUCER_ONLY as PRODUCER_ONLY
from producers.kafka.kafka_errors import describe_kafka_error

COUNT_SECONDS = 2.0
"""Partitions are never fewer: without an answer in time, the last one holds."""
LARGEST_BATCH = 262_144
"""The max.message.bytes of the reports topic where we create it: of what may then be expanded."""
NO_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
"""A broker answers, and knows no such topic, or no such partition of it."""


def ensure_topics(settings: Settings, *needed: str) -> list[str]:
    """Create the topics that are missing, with the configured number of partitions.

    Topics that are not ours to manage (``topics.managed = false``) are left alone. Reports have the
    broker's timestamps: what is from the future is judged by them, and a producer could lie.

    Parameters
    ----------
    settings : Settings
        Where Kafka is, and what its topics are called.
    needed : str
        The topics that the caller uses, and needs rights for; by default, all.

    Returns
    -------
    list of str
        Those that were created.

    Raises
    ------
    DitherError
        If a topic cannot be created.
    """
    client = admin(settings)
    if not settings.topics.managed:
        return []
    there = client.list_topics(timeout=ANSWER_SECONDS).topics
    topics = settings.topics
    wanted: dict[str, tuple[int, dict[str, str]]] = {
        topics.reports: (
            topics.partitions,
            {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(LARGEST_BATCH)},
        ),
        topics.deadletters: (1, {}),
        topics.estimates: (1, {"cleanup.policy": "compact"}),
        topics.rounds: (1, {"cleanup.policy": "compact"}),
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
    """Asks for the id of a topic, which changes when it is deleted and created again.

    Calling it returns the id; it is empty where the cluster does not tell, or must not be asked
    (``topics.managed = false``). One client serves all calls, until one fails: a client goes on
    asking the broker that it took for the controller, and knows no other for minutes after that one
    has died.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._client: AdminClient | None = None

    def __call__(self) -> str:
        """Return the id.

        Raises
        ------
        BrokerUnreachable
            If no broker answers.
        TopicGone
            If the topic is not there just now.
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
            if code in (*TRANSIENT, *NO_TOPIC):
                self._client = None
                if code in NO_TOPIC:
                    raise TopicGone(self._topic) from None
                raise BrokerUnreachable(servers, describe_kafka_error(error.args[0])) from None
            return ""


def topic_id(settings: Settings, topic: str) -> str:
    """Return the id of a topic, asked for once; see :class:`TopicId`."""
    return TopicId(settings, topic)()


def partition_count(settings: Settings, topic: str) -> int:
    """Return how many partitions a topic has; 0 if there is no such topic."""
    found = admin(settings).list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    return 0 if found.error is not None else len(found.partitions)


def ask_partition_count(consumer: Consumer, topic: str) -> int:
    """Return how many partitions a topic has; 0 if no broker says so soon."""
    try:
        about = consumer.list_topics(topic, timeout=COUNT_SECONDS)
    except KafkaException:
        return 0
    return len(about.topics[topic].partitions)


def stamps_messages(settings: Settings, topic: str) -> bool | None:
    """Whether a topic overrides the timestamps of messages by the time at which they are appended.

    None where the cluster does not tell, or must not be asked (``topics.managed = false``).
    """
    if not settings.topics.managed:
        return None
    client = admin(settings)  # to be kept: no answer comes to one that is gone
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        future = client.describe_configs([resource])[resource]
        entry = future.result(timeout=ANSWER_SECONDS)["message.timestamp.type"]
    except (KafkaException, TimeoutError):
        return None
    return bool(entry.value == "LogAppendTime")
