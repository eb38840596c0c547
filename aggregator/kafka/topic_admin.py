"""Creates missing topics with their settings, and queries topics and the workers' group."""

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
from aggregator.errors import BrokerRefused, BrokerUnreachable, DitherError, TopicGone
from aggregator.kafka.clients import ANSWER_SECONDS, TRANSIENT_CODES, admin
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
    bounded = {"max.message.bytes": str(MAX_RECORD_BATCH_BYTES)}
    wanted: dict[str, tuple[int, dict[str, str]]] = {
        topics.reports: (topics.partitions, stamped | bounded),
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


class TopicWatch:
    """Asks about a topic that workers count, and about their group, by a single client.

    A client that fails is replaced, because it would ask a dead controller for minutes. With
    ``topics.managed = false`` only the group is asked about.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._client: AdminClient | None = None
        self._next_look, self._why = float("-inf"), ""
        self.policy_answer: Future[Any] | None = None

    def _asked_client(self) -> AdminClient:
        self._client = self._client or admin(self._settings)
        return self._client

    def _drop_client(self) -> None:
        self._client = self.policy_answer = None

    def topic_id(self) -> str:
        """Return the topic's id, which changes when the topic is deleted and created again.

        "" if the cluster does not state it.

        Raises
        ------
        BrokerUnreachable
            If no broker answers in time.
        TopicGone
            If the topic does not exist at present.
        """
        if not self._settings.topics.managed:
            return ""
        client, topics = self._asked_client(), TopicCollection([self._topic])
        servers = str(self._settings.kafka.get("bootstrap.servers", ""))
        try:
            future = client.describe_topics(topics, request_timeout=ANSWER_SECONDS)[self._topic]
            return str(future.result(timeout=ANSWER_SECONDS).topic_id)
        except TimeoutError:
            self._drop_client()
            raise BrokerUnreachable(servers, "no answer in time") from None
        except KafkaException as error:
            code = error.args[0].code()
            if code not in (*TRANSIENT_CODES, *NO_TOPIC_CODES):
                return ""
            self._drop_client()
            if code in NO_TOPIC_CODES:
                raise TopicGone(self._topic) from None
            raise BrokerUnreachable(servers, describe_kafka_error(error.args[0])) from None

    def unowned(self, partitions: Iterable[int]) -> list[int] | None:
        """Return which of `partitions` the workers' group has assigned to nobody, ascending.

        None if Kafka does not say.
        """
        group = self._settings.aggregate.group
        try:
            client = self._asked_client()
            answers = client.describe_consumer_groups([group], request_timeout=ANSWER_SECONDS)
            group_description = answers[group].result(timeout=ANSWER_SECONDS)
        except (KafkaException, TimeoutError, BrokerUnreachable, BrokerRefused):
            self._drop_client()
            return None
        if group_description.state != ConsumerGroupState.STABLE:
            return None
        owned = {
            assigned.partition
            for member in group_description.members
            for assigned in member.assignment.topic_partitions
            if assigned.topic == self._topic
        }
        return sorted({*partitions} - owned)

    def compaction(self) -> str:
        """Return why the topic must not be counted, by the last answer; "" if it may be.

        If the last answer is older than a minute, the cluster is asked whether the topic is
        compacted, and nobody waits for the answer. It answers only a user who may DescribeConfigs.
        """
        answer = self.policy_answer
        if answer is not None and answer.done():
            self.policy_answer = None
            self._why = self._read_policy(answer)
        elif answer is None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + POLICY_CHECK_SECONDS
            if self._settings.topics.managed:
                resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
                self.policy_answer = self._asked_client().describe_configs([resource])[resource]
        return self._why

    def _read_policy(self, answer: Future[Any]) -> str:
        try:
            policy = str(answer.result()["cleanup.policy"].value)
        except KafkaException as error:
            if error.args[0].code() in TRANSIENT_CODES:
                self._drop_client()
            return self._why
        if "compact" not in policy:
            return ""
        servers = self._settings.kafka.get("bootstrap.servers", "")
        return (
            f"topic {self._topic!r} has cleanup.policy = {policy}: Kafka deletes reports whose key "
            "occurs again, even before they are counted. Set it with `kafka-configs.sh "
            f"--bootstrap-server {servers} --alter --entity-type topics --entity-name "
            f"{self._topic} --add-config cleanup.policy=delete`, then start the workers again"
        )


def topic_id(settings: Settings, topic: str) -> str:
    """Return the id of a topic with a new client; see :meth:`TopicWatch.topic_id`."""
    return TopicWatch(settings, topic).topic_id()


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


def refuse_compaction(settings: Settings) -> None:
    """Raise DitherError if the cluster says that the reports topic is compacted."""
    watch = TopicWatch(settings, settings.topics.reports)
    watch.compaction()
    if watch.policy_answer is not None:
        concurrent.futures.wait([watch.policy_answer], ANSWER_SECONDS)
    if why := watch.compaction():
        raise DitherError(why)
