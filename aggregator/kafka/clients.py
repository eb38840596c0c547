"""Kafka clients as the service configures them, and what it asks of a cluster."""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, Self

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from aggregator.config.settings import Settings
from aggregator.errors import (
    BrokerRefused,
    BrokerUnreachable,
    DitherError,
    SettingsError,
    TopicGone,
)
from aggregator.kafka import diagnosis
from aggregator.kafka.client_log import Complaints
from aggregator.kafka.obstacles import Probe, prober
from producers.kafka.connection import PRODUCER_ONLY as PRODUCER_ONLY
from producers.kafka.kafka_errors import ExplainingProducer, explained

QUIET = logging.getLogger("aggregator.librdkafka")
"""librdkafka's own lines, hundreds while a broker is away: for whoever adds a handler. What matters
of them comes as an error, or from :class:`aggregator.kafka.client_log.Complaints`."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 1.0
COUNT_SECONDS = 2.0
"""Partitions are never fewer: without an answer in time, the last one holds."""

CONSUMER: dict[str, Any] = {
    "enable.auto.offset.store": False,
    "session.timeout.ms": 10_000,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 100_000,
    "fetch.max.bytes": 262_144,
}
"""Defaults that [kafka] may override.

A response is expanded as a whole, up to 1,032 times, before anything of it is counted: small ones
bound the memory, and are as fast.

Measured: the backoff of 1 ms is five times faster. A broker that holds a request for partitions in
which nothing is new holds up those that the next request will ask for: of one that is assigned
beside idle ones the first message comes after 50 ms, for 340 with librdkafka's 500.
"""

MANDATORY: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "partition.assignment.strategy": "cooperative-sticky",
}
"""What exactness rests on: offsets live beside the sums, and an offset never jumps in silence."""

LETTERS: dict[str, Any] = {
    "message.max.bytes": 64_000_000,
    "queue.buffering.max.kbytes": 65_536,
    "compression.type": "zstd",
}
"""Of the producer of dead letters: what came compressed must not become large on the brokers."""
LETTERS_MAY = ("queue.buffering.max.kbytes", "compression.type")
"""What [kafka] may override of them."""

QUEUE_SHARE = 8
"""Of a worker's memory, that messages which were fetched may take."""
MOST_QUEUED_KBYTES = 65_536
MOST_RECEIVED = 100_000_000
"""librdkafka's own default."""
LARGEST_BATCH = 262_144
"""The max.message.bytes of the reports topic where we create it: of what may then be expanded."""

AWAY = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
"""Answers of a cluster that may tell a topic's id later."""
NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
"""A broker answers, and knows no such topic."""

SINGLE: dict[str, Any] = {
    "enable.partition.eof": True,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
    "max.partition.fetch.bytes": 1,
}
"""Who wants one message fetches one record batch, whatever it has: a broker sends a whole one."""

FRESH: dict[str, Any] = {
    "topic.metadata.refresh.interval.ms": 10_000,
    "metadata.max.age.ms": 2_000,
}
"""A broker that has just started may tell of a topic without its partitions: ask again soon."""

CONSUME_MESSAGES, GATHER_MESSAGES, GATHER_BYTES = 1_000, 32_000, 8_000_000
"""How many messages are asked for at once, and how many are counted together at most."""

FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
CONSUMER_ONLY = (*CONSUMER, *MANDATORY)


def consumer(settings: Settings, group: str, **properties: Any) -> Consumer:
    """Return a consumer of the deployment's cluster."""
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
    config: dict[str, Any] = {"error_cb": errors.append, **administrative(settings)}
    client = AdminClient(config, logger=QUIET)
    deadline = time.monotonic() + ANSWER_SECONDS
    while not _answers(client, deadline):
        client.poll(0)
        over = time.monotonic() >= deadline
        servers = str(settings.kafka.get("bootstrap.servers", ""))
        if why := diagnosis.of_kafka(settings.kafka, errors, probe=over):
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
                raise DitherError(
                    f"the topics {', '.join(t.topic for t in missing)} are missing, or this user "
                    f"may not see them, and creating them failed ({explained(error.args[0])}). "
                    "`dither topics` creates them, as a user who may"
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
            if code in (*AWAY, *NO_TOPIC):
                self._client = None
                if code in NO_TOPIC:
                    raise TopicGone(self._topic) from None
                raise BrokerUnreachable(servers, error.args[0].str()) from None
            return ""


def topic_id(settings: Settings, topic: str) -> str:
    """Return the id of a topic, asked for once; see :class:`TopicId`."""
    return TopicId(settings, topic)()


def partition_count(settings: Settings, topic: str) -> int:
    """Return how many partitions a topic has; 0 if there is no such topic."""
    found = admin(settings).list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    return 0 if found.error is not None else len(found.partitions)


class PartitionCount:
    """Asks how many partitions a topic has, of a client that is there for questions."""

    def __init__(self, asker: Consumer, topic: str) -> None:
        self._asker, self._topic = asker, topic

    def __call__(self) -> int:
        """Return the number; 0 if no broker says."""
        try:
            about = self._asker.list_topics(self._topic, timeout=COUNT_SECONDS)
        except KafkaException:
            return 0
        return len(about.topics[self._topic].partitions)


def stamps_messages(settings: Settings, topic: str) -> bool:
    """Whether a topic overrides the timestamps of messages by the time at which they are appended.

    False where the cluster does not tell, or must not be asked (``topics.managed = false``).
    """
    if not settings.topics.managed:
        return False
    client = admin(settings)  # to be kept: no answer comes to one that is gone
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        future = client.describe_configs([resource])[resource]
        entry = future.result(timeout=ANSWER_SECONDS)["message.timestamp.type"]
    except (KafkaException, TimeoutError):
        return False
    return bool(entry.value == "LogAppendTime")


class ReportsConsumer(Protocol):
    """What a worker asks of the consumer that fetches its partitions (confluent_kafka's words)."""

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[[Any, list[TopicPartition]], None],
        on_revoke: Callable[[Any, list[TopicPartition]], None],
        on_lost: Callable[[Any, list[TopicPartition]], None],
    ) -> None:
        """Join the group; the callbacks come while it consumes, or closes."""

    def consume(self, num_messages: int, timeout: float) -> Sequence[Any]:
        """Return up to so many messages, after so many seconds at most."""

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch these partitions too."""

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Fetch these partitions no longer."""

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Fetch nothing of these for now."""

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch these again."""

    def seek(self, partition: TopicPartition) -> None:
        """Go on at another offset."""

    def commit(self, *, offsets: list[TopicPartition], asynchronous: Literal[True]) -> None:
        """Tell the group's coordinator how far it came."""

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return the offsets that the group's coordinator was told last, with their metadata."""

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = ..., cached: bool = ...
    ) -> tuple[int, int]:
        """Return the first and the next offset of a partition's log."""

    def close(self) -> None:
        """Leave the group."""


def gather(consumer: ReportsConsumer, patience: float) -> list[Any]:
    """Return the messages of `patience` seconds; more than a thousand only if they are there.

    Many together are counted faster, and too many would fill the memory.
    """
    found = consumer.consume(CONSUME_MESSAGES, timeout=patience)
    messages, size = list(found), 0
    while len(found) == CONSUME_MESSAGES and len(messages) < GATHER_MESSAGES:
        size += sum(map(len, found))
        if size > GATHER_BYTES:
            break
        found = consumer.consume(CONSUME_MESSAGES, timeout=0)
        messages += found
    return messages


def by_partition(messages: Sequence[Any]) -> dict[int, list[Any]]:
    """Return the messages of each partition, in their order."""
    found: defaultdict[int, list[Any]] = defaultdict(list)
    for message in messages:
        found[message.partition()].append(message)
    return found


def ends(events: Sequence[Any]) -> dict[int, int]:
    """Return where nothing more could be read, of each partition that came to its end.

    It is the end of the log, or where a transaction is open. All that is countable before it came
    before it; it may be further on than the last message, by markers of transactions and by what
    was aborted. Partitions of which messages came afterwards are left out.
    """
    found: dict[int, int] = {}
    for event in events:
        error = event.error()
        if error is None:
            found.pop(event.partition(), None)
        elif error.code() == KafkaError._PARTITION_EOF:
            found[event.partition()] = event.offset()
    return found


def collect_seldom() -> None:
    """Have this process look for garbage seldom: it would at every 700th message that comes.

    Thousands of messages are held at once, and none is part of a cycle.
    """
    gc.freeze()
    gc.set_threshold(4 * GATHER_MESSAGES)


def received(settings: Settings) -> dict[str, Any]:
    """Return the limits of what a worker receives, by its memory.

    What expands beyond `receive.message.max.bytes` is not read, but for gzip, lz4 and snappy, for
    which the client has no limit. A response must fit, too.
    """
    share = settings.aggregate.memory // QUEUE_SHARE
    least = int(settings.kafka.get("fetch.max.bytes", CONSUMER["fetch.max.bytes"])) + 512
    return {
        "queued.max.messages.kbytes": min(MOST_QUEUED_KBYTES, share // 1024),
        "receive.message.max.bytes": max(least, min(MOST_RECEIVED, share)),
    }


@dataclasses.dataclass(frozen=True)
class Clients:
    """A worker's side of Kafka.

    Attributes
    ----------
    consumer : ReportsConsumer
        Fetches the partitions that the group hands out.
    asker : ReportsConsumer
        Fetches nothing: questions would queue behind a fetch that waits.
    producer : confluent_kafka.Producer
        Takes the dead letters.
    topic_id : callable
        Returns the id of the reports topic; see :class:`TopicId`.
    probe : callable
        Starts looking for the end of a record batch; see
        :func:`aggregator.kafka.obstacles.prober`.
    partitions : callable
        Returns how many partitions it has; see :class:`PartitionCount`.
    compaction : callable
        Returns why the topic must not be counted; see :mod:`aggregator.kafka.compaction`.
    """

    consumer: ReportsConsumer
    asker: ReportsConsumer
    producer: Producer
    topic_id: Callable[[], str]
    probe: Callable[[int, int], Probe]
    partitions: Callable[[], int]
    compaction: Callable[[], str] = str

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the clients of a deployment's cluster."""
        from aggregator.kafka.compaction import CompactionWatch  # it asks through this module

        group = settings.aggregate.group
        chosen = {k: settings.kafka[k] for k in LETTERS_MAY if k in settings.kafka}
        unset = {k: v for k, v in received(settings).items() if k not in settings.kafka}
        asker = consumer(settings, group, **FRESH, **SINGLE)
        return cls(
            consumer(
                settings,
                group,
                on_commit=lambda *_: None,
                error_cb=Complaints(),
                **{"enable.partition.eof": True},
                **FRESH,
                **unset,
            ),
            asker,
            producer(settings, **LETTERS | chosen),
            TopicId(settings, settings.topics.reports),
            prober(
                lambda: consumer(settings, group, **{"enable.partition.eof": True}, **unset),
                settings.topics.reports,
            ),
            PartitionCount(asker, settings.topics.reports),
            CompactionWatch(settings),
        )
