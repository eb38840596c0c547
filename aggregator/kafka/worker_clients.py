"""A worker's Kafka clients and their properties, and how it gathers and sorts messages."""

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
from aggregator.kafka.clients import (
    CONSUMER_DEFAULTS,
    RenewedConsumer,
    ThrottledErrorLog,
    consumer,
    producer,
)
from aggregator.kafka.obstacles import Probe
from aggregator.kafka.topic_admin import TopicWatch, ask_partition_count

DEAD_LETTER_PROPERTIES: dict[str, Any] = {
    "message.max.bytes": 64_000_000,
    "queue.buffering.max.kbytes": 65_536,
    "compression.type": "zstd",
}
"""Properties of the producer of dead letters, which must stay compressed on the brokers."""
CONFIGURABLE_PROPERTIES = ("queue.buffering.max.kbytes", "compression.type")
"""The dead-letter properties that [kafka] may override."""
INSTANCE_PROPERTY = "group.instance.id"
"""The property of a static group member; its value must differ between workers."""
QUEUE_SHARE = 8
"""Fetched messages may take an eighth of a worker's memory."""
MAX_QUEUED_KBYTES = 65_536
MAX_RECEIVED_BYTES = 100_000_000
"""The default of librdkafka."""
SINGLE_BATCH_PROPERTIES: dict[str, Any] = {
    "enable.partition.eof": True,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
    "max.partition.fetch.bytes": 1,
}
"""Properties to read a single message: a broker sends one record batch, which may be large."""
METADATA_PROPERTIES: dict[str, Any] = {
    "topic.metadata.refresh.interval.ms": 10_000,
    "metadata.max.age.ms": 2_000,
}
"""Properties to ask again soon: a broker that has just started may return a topic without
partitions."""
CONSUME_MESSAGES, GATHER_MESSAGES, GATHER_BYTES = 1_000, 32_000, 8_000_000
"""Messages requested by one call, and the most messages and bytes that are counted together."""
GATHER_SECONDS = 0.1
"""How long a thousand messages wait for more messages of a steady stream."""


def gather(consumer: Consumer, patience: float) -> list[Any]:
    """Return the messages that arrive within `patience` seconds, sooner if a thousand arrive.

    Many messages are counted faster together; too many would fill the memory or be committed late.
    Headers are not measured, because measuring is slow; the client's queue bounds their number.
    """
    began = time.monotonic()
    consumed = consumer.consume(CONSUME_MESSAGES, timeout=patience)
    messages, size = list(consumed), 0
    deadline = began + min(patience, GATHER_SECONDS)
    while len(consumed) == CONSUME_MESSAGES and len(messages) < GATHER_MESSAGES:
        size += sum(len(message) + len(message.key() or b"") for message in consumed)
        if size > GATHER_BYTES:
            break
        consumed = consumer.consume(CONSUME_MESSAGES, timeout=max(0.0, deadline - time.monotonic()))
        messages += consumed
    return messages


class SortedEvents(NamedTuple):
    """The events of a consumer, by partition."""

    messages: dict[int, list[Any]]  # by partition, in order
    # The position at the end of each partition without later messages: the end of its log, or an
    # open transaction. Transaction markers and aborted messages may lie before it.
    ends: dict[int, int]
    errors: list[Any]  # events without a message, ends included


def sort_events(events: Sequence[Any]) -> SortedEvents:
    """Return a consumer's events, sorted into messages, ends of partitions, and errors."""
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
        for number, (messages_before, offset) in ends.items()
        if len(messages.get(number, ())) == messages_before
    }
    return SortedEvents(messages, last, errors)


def collect_seldom() -> None:
    """Collect garbage rarely in this process, instead of at every 700th message.

    Thousands of messages are alive at once, and none is part of a cycle.
    """
    gc.freeze()
    gc.set_threshold(4 * GATHER_MESSAGES)


def receive_limits(settings: Settings) -> dict[str, Any]:
    """Return the limits of a worker's fetches, given its memory, as properties of librdkafka.

    The client refuses a response or batch that expands beyond `receive.message.max.bytes`, except
    with gzip, lz4 and snappy. It measures only the values in its queue; keys and headers are
    limited by the number of messages.
    """
    share = settings.aggregate.memory // QUEUE_SHARE
    response = int(settings.kafka.get("fetch.max.bytes", CONSUMER_DEFAULTS["fetch.max.bytes"]))
    max_messages = CONSUMER_DEFAULTS["queued.min.messages"]
    return {
        "queued.min.messages": max(1, min(max_messages, share // response)),
        "queued.max.messages.kbytes": min(MAX_QUEUED_KBYTES, share // 1024),
        "receive.message.max.bytes": max(response + 512, min(MAX_RECEIVED_BYTES, share)),
    }


@dataclasses.dataclass(frozen=True)
class WorkerClients:
    """The Kafka clients of a worker."""

    consumer: Consumer  # fetches the assigned partitions
    inspector: RenewedConsumer  # queries logs, as queries would queue behind a waiting fetch
    producer: Producer  # sends dead letters
    topic_id: Callable[[], str]  # see `TopicWatch`
    probe: Callable[[int, int], Probe]  # see `Probe`
    partitions: Callable[[], int]  # see `ask_partition_count`
    compaction: Callable[[], str] = str  # see `TopicWatch`
    unowned: Callable[[Iterable[int]], list[int] | None] = lambda _: None  # see `TopicWatch`

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the clients of a deployment's cluster."""
        group, topic = settings.aggregate.group, settings.topics.reports
        watch = TopicWatch(settings, topic)
        chosen = {k: settings.kafka[k] for k in CONFIGURABLE_PROPERTIES if k in settings.kafka}
        unset = {k: v for k, v in receive_limits(settings).items() if k not in settings.kafka}
        inspector = RenewedConsumer(
            lambda: consumer(settings, group, **METADATA_PROPERTIES, **SINGLE_BATCH_PROPERTIES)
        )

        def partitions() -> int:
            count = ask_partition_count(inspector.current, topic)
            if not count:
                inspector.renew()
            return count

        fetching = {"enable.partition.eof": True, **unset}
        callbacks = {"on_commit": lambda *_: None, "error_cb": ThrottledErrorLog()}
        return cls(
            consumer(settings, group, **callbacks, **METADATA_PROPERTIES, **fetching),
            inspector,
            producer(settings, **DEAD_LETTER_PROPERTIES | chosen),
            watch.topic_id,
            functools.partial(Probe, lambda: consumer(settings, group, **fetching), topic),
            partitions,
            watch.compaction,
            watch.unowned,
        )
