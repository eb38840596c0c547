"""Creates missing topics, and queries topics and the workers' group."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from aggregator.config.settings import Settings
from aggregator.errors import BrokerUnreachable, DitherError, TopicCompacted, TopicGone
from aggregator.kafka.clients import (
    ANSWER_SECONDS,
    LIBRDKAFKA_LOG,
    TRANSIENT_CODES,
    admin,
    admin_properties,
)
from producers.kafka.kafka_errors import describe_kafka_error

COUNT_SECONDS = 2.0
"""Timeout of a count of partitions; without an answer the last count is used, as it never falls."""
MAX_RECORD_BATCH_BYTES = 262_144
"""The max.message.bytes of a reports topic that Dither creates: it bounds decompression."""
LISTING_SECONDS = 0.05
"""The time between two checks whether brokers list a new topic."""
POLICY_CHECK_SECONDS = 60.0
"""The time between two checks of a topic that is being counted."""
NO_TOPIC_CODES = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
"""Codes of a broker that has no such topic, or no such partition of it."""


def ensure_topics(settings: Settings, *needed: str) -> list[str]:
    """Create the missing topics with the configured partitions; return the names of the new ones.

    With ``topics.managed = false`` nothing is created. The reports topic is created with the
    broker's timestamps, by which future event times are refused, because producers' timestamps
    could be false. The function waits until a broker lists the new topics, because the controller
    creates them earlier. `settings`: the settings of the deployment; `needed`: the topics that the
    caller uses and may create; by default all. Raises DitherError if a topic cannot be created.
    """
    client = admin(settings)
    if not settings.topics.managed:
        return []
    existing_topics = client.list_topics(timeout=ANSWER_SECONDS).topics
    topics = settings.topics
    compacted = {"cleanup.policy": "compact"}
    stamped = {"message.timestamp.type": "LogAppendTime"}
    wanted: dict[str, tuple[int, dict[str, str]]] = {
        topics.reports: (
            topics.partitions,
            stamped | {"max.message.bytes": str(MAX_RECORD_BATCH_BYTES)},
        ),
        topics.deadletters: (1, {}),
        topics.estimates: (1, compacted),
        topics.rounds: (1, compacted),
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
    _wait_until_listed(client, created)
    return created


def _wait_until_listed(client: AdminClient, topics: list[str]) -> None:
    """Wait until a broker lists new topics, but at most for ANSWER_SECONDS."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        listed = client.list_topics(timeout=ANSWER_SECONDS).topics
        if all(name in listed and listed[name].partitions for name in topics):
            return
        time.sleep(LISTING_SECONDS)


class TopicId:
    """Asks for the id of a topic, which changes when the topic is deleted and created again.

    A call returns the id, or "" if the cluster does not state it or ``topics.managed = false``. A
    failed client is replaced, because it would ask a dead controller for minutes.
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
            If the topic does not exist at present.
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


class GroupWatch:
    """Finds partitions of the reports topic that the workers' group has assigned to nobody."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: AdminClient | None = None

    def __call__(self, partitions: Iterable[int]) -> list[int] | None:
        """Return which of `partitions` have no owner, ascending; None if Kafka does not say."""
        group, topic = self._settings.aggregate.group, self._settings.topics.reports
        if self._client is None:
            config = admin_properties(self._settings)
            self._client = AdminClient(config, logger=LIBRDKAFKA_LOG)
        try:
            answer = self._client.describe_consumer_groups([group], request_timeout=ANSWER_SECONDS)[
                group
            ]
            group_description = answer.result(timeout=ANSWER_SECONDS)
        except (KafkaException, TimeoutError):
            self._client = None
            return None
        if group_description.state != ConsumerGroupState.STABLE:
            return None
        owned = {
            assigned.partition
            for member in group_description.members
            for assigned in member.assignment.topic_partitions
            if assigned.topic == topic
        }
        return sorted({*partitions} - owned)


def refuse_compaction(settings: Settings) -> None:
    """Raise TopicCompacted if the cluster says that the reports topic is compacted.

    The cluster is not asked if ``topics.managed = false``. It answers only a user who may
    DescribeConfigs.
    """
    watch = CompactionWatch(settings)
    watch()
    if watch.answer is not None:
        concurrent.futures.wait([watch.answer], ANSWER_SECONDS)
    if why := watch():
        raise TopicCompacted(why)


class CompactionWatch:
    """Checks once a minute whether the reports topic is compacted; nobody waits for the answer.

    Calling it returns why the topic must not be counted, by the last answer; "" if it may.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: AdminClient | None = None
        self._next_look = float("-inf")
        self._why = ""
        self.answer: Future[Any] | None = None

    def __call__(self) -> str:
        """Return the result of the last answer; ask again if it is older than a minute."""
        if self.answer is not None and self.answer.done():
            self._why = self._read(self.answer)
            self.answer = None
        elif self.answer is None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + POLICY_CHECK_SECONDS
            self._ask()
        return self._why

    def _ask(self) -> None:
        if not self._settings.topics.managed:
            return
        self._client = self._client or admin(self._settings)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._settings.topics.reports)
        self.answer = self._client.describe_configs([resource])[resource]

    def _read(self, answer: Future[Any]) -> str:
        try:
            policy = str(answer.result()["cleanup.policy"].value)
        except KafkaException:
            self._client = None
            return self._why
        if "compact" not in policy:
            return ""
        topic, servers = self._settings.topics.reports, self._settings.kafka
        return (
            f"topic {topic!r} has cleanup.policy = {policy}: Kafka deletes reports whose key "
            "occurs again, even before they are counted. Set it with `kafka-configs.sh "
            f"--bootstrap-server {servers.get('bootstrap.servers', '')} --alter --entity-type "
            f"topics --entity-name {topic} --add-config cleanup.policy=delete`, then start the "
            "workers again"
        )
