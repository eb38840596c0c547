"""A worker's Kafka clients, their configuration, and the sizes of what they consume."""

from __future__ import annotations

import dataclasses
import functools
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Producer

from aggregator.config.settings import Settings
from aggregator.kafka.client_log import ThrottledErrorLog
from aggregator.kafka.clients import CONSUMER, consumer, producer
from aggregator.kafka.compaction import CompactionWatch
from aggregator.kafka.group import GroupWatch
from aggregator.kafka.obstacles import Probe, start_probe
from aggregator.kafka.renewed_consumer import RenewedConsumer
from aggregator.kafka.topic_admin import TopicId, ask_partition_count
from producers.kafka.connection import PRODUCER_ONLY as PRODUCER_ONLY

LETTERS: dict[str, Any] = {
    "message.max.bytes": 64_000_000,
    "queue.buffering.max.kbytes": 65_536,
    "compression.type": "zstd",
}
"""Of the producer of dead letters: what came compressed must not become large on the brokers."""
LETTERS_MAY = ("queue.buffering.max.kbytes", "compression.type")
"""The defaults that [kafka] may override."""
INSTANCE = "group.instance.id"
"""The property that makes a worker a static member of its group: each needs one of its own."""
QUEUE_SHARE = 8
"""Of a worker's memory, that messages which were fetched may take."""
MOST_QUEUED_KBYTES = 65_536
MOST_RECEIVED = 100_000_000
"""librdkafka's own default."""
SINGLE: dict[str, Any] = {
    "enable.partition.eof": True,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
    "max.partition.fetch.bytes": 1,
}
"""Who wants one message fetches one record batch, whatever it has: a broker sends a whole one."""
FRESH: dict[str, Any] = {"topic.metadata.refresh.interval.ms": 10_000, "metadata.max.age.ms": 2_000}
"""A broker that has just started may return a topic without partitions: ask again soon."""
CONSUME_MESSAGES, GATHER_MESSAGES, GATHER_BYTES = 1_000, 32_000, 8_000_000
"""The number of messages that one call asks for, and the most that are counted together."""
GATHER_SECONDS = 0.1
"""How long messages that come one after the other wait for more, once a thousand are there."""


def gather(consumer: Consumer, patience: float) -> list[Any]:
    """Return the messages of `patience` seconds, or of less where a thousand come sooner.

    Many together are counted faster. Too many would fill the memory, or be committed late. Headers
    are not measured, which takes long: the client's queue bounds their number.
    """
    began = time.monotonic()
    found = consumer.consume(CONSUME_MESSAGES, timeout=patience)
    messages, size = list(found), 0
    until = began + min(patience, GATHER_SECONDS)
    while len(found) == CONSUME_MESSAGES and len(messages) < GATHER_MESSAGES:
        size += sum(len(message) + len(message.key() or b"") for message in found)
        if size > GATHER_BYTES:
            break
        found = consumer.consume(CONSUME_MESSAGES, timeout=max(0.0, until - time.monotonic()))
        messages += found
    return messages


class Sorted(NamedTuple):
    """What a consumer handed out, by partition.

    Attributes
    ----------
    messages : dict of int to list
        The messages of each partition, in their order.
    ends : dict of int to int
        Where nothing more could be read, of each partition that came to its end. It is the end of
        the log, or where a transaction is open. All that is countable before it came before it; it
        may be further on than the last message, by markers of transactions and by what was aborted.
        Partitions of which messages came afterwards are left out.
    errors : list
        What came in place of messages, ends among them.
    """

    messages: dict[int, list[Any]]
    ends: dict[int, int]
    errors: list[Any]


def sort_out(events: Sequence[Any]) -> Sorted:
    """Return messages and errors by partition."""
    messages: defaultdict[int, list[Any]] = defaultdict(list)
    errors: list[Any] = []
    ends: dict[int, tuple[int, int]] = {}
    for event in events:
        error = event.error()
        if error is None:
            messages[event.partition()].append(event)
            continue
        errors.append(event)
        if error.code() == KafkaError._PARTITION_EOF:
            number = event.partition()
            ends[number] = (len(messages.get(number, ())), event.offset())
    last = {
        number: offset
        for number, (before, offset) in ends.items()
        if len(messages.get(number, ())) == before
    }
    return Sorted(messages, last, errors)


def collect_seldom() -> None:
    """Have this process look for garbage seldom: it would at every 700th message that comes.

    Thousands of messages are held at once, and none is part of a cycle.
    """
    gc.freeze()
    gc.set_threshold(4 * GATHER_MESSAGES)


def received(settings: Settings) -> dict[str, Any]:
    """Return the limits of what a worker receives, by its memory.

    What expands beyond `receive.message.max.bytes` is not read, but for gzip, lz4 and snappy, for
    which the client has no limit. A response must fit, too. Of what is queued the client measures
    the values alone: keys and headers that fill a response each are limited by their number.
    """
    share = settings.aggregate.memory // QUEUE_SHARE
    response = int(settings.kafka.get("fetch.max.bytes", CONSUMER["fetch.max.bytes"]))
    return {
        "queued.min.messages": max(1, min(CONSUMER["queued.min.messages"], share // response)),
        "queued.max.messages.kbytes": min(MOST_QUEUED_KBYTES, share // 1024),
        "receive.message.max.bytes": max(response + 512, min(MOST_RECEIVED, share)),
    }


@dataclasses.dataclass(frozen=True)
class Clients:
    """A worker's side of Kafka.

    Attributes
    ----------
    consumer : Consumer
        Fetches the partitions that the group hands out.
    inspector : RenewedConsumer
        Looks at logs: questions would queue behind a fetch that waits.
    producer : confluent_kafka.Producer
        Takes the dead letters.
    topic_id : callable
        Returns the id of the reports topic; see :class:`TopicId`.
    probe : callable
        Starts looking for the end of a record batch; see
        :func:`aggregator.kafka.obstacles.start_probe`.
    partitions : callable
        Returns how many partitions it has; see :func:`ask_partition_count`.
    compaction : callable
        Returns why the topic must not be counted; see :mod:`aggregator.kafka.compaction`.
    unowned : callable
        Returns which partitions the group has given to nobody; see :mod:`aggregator.kafka.group`.
    """

    consumer: Consumer
    inspector: RenewedConsumer
    producer: Producer
    topic_id: Callable[[], str]
    probe: Callable[[int, int], Probe]
    partitions: Callable[[], int]
    compaction: Callable[[], str] = str
    unowned: Callable[[Iterable[int]], list[int] | None] = lambda _: None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the clients of a deployment's cluster."""
        group = settings.aggregate.group
        chosen = {k: settings.kafka[k] for k in LETTERS_MAY if k in settings.kafka}
        unset = {k: v for k, v in received(settings).items() if k not in settings.kafka}
        inspector = RenewedConsumer(lambda: consumer(settings, group, **FRESH, **SINGLE))

        def partitions() -> int:
            found = ask_partition_count(inspector.current, settings.topics.reports)
            if not found:
                inspector.renew()
            return found

        return cls(
            consumer(
                settings,
                group,
                on_commit=lambda *_: None,
                error_cb=ThrottledErrorLog(),
                **{"enable.partition.eof": True},
                **FRESH,
                **unset,
            ),
            inspector,
            producer(settings, **LETTERS | chosen),
            TopicId(settings, settings.topics.reports),
            functools.partial(
                start_probe,
                lambda: consumer(settings, group, **{"enable.partition.eof": True}, **unset),
                settings.topics.reports,
            ),
            partitions,
            CompactionWatch(settings),
            GroupWatch(settings),
        )
