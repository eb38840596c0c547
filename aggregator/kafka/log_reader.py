"""Reads a topic up to the present ends of its partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from aggregator.errors import DitherError
from aggregator.kafka.clients import ANSWER_SECONDS
from producers.kafka.kafka_errors import describe_kafka_error

READ_MESSAGES = 1_000
READ_SECONDS = 0.1
SILENCE_SECONDS = 60.0
TRANSACTION_SECONDS = 5.0
"""After this time a reader that waits for the end of a transaction says so."""

Ranges = Mapping[int, tuple[int, int]]
"""The first and the next offset, by partition."""


def log_ranges(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return the range of offsets of each partition; empty if the topic does not exist.

    A consumer of committed messages sees an earlier end during transactions.
    """
    about = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
    positions = [TopicPartition(topic, number) for number in sorted(about.partitions)]
    return {
        p.partition: consumer.get_watermark_offsets(p, timeout=ANSWER_SECONDS) for p in positions
    }


def read_ranges(consumer: Consumer, topic: str, ranges: Ranges) -> Iterator[list[Any]]:
    """Yield the messages in ranges of a topic's partitions, batch by batch.

    `consumer`: a consumer with ``enable.partition.eof``; it is assigned these partitions; `topic`:
    the topic; `ranges`: the first offset and the end, by partition.

    Raises
    ------
    DitherError
        If a partition cannot be read, stays silent before its end, or cannot be read to its end
        because of an open transaction.
    """
    ends_left = {number: end for number, (start, end) in ranges.items() if start < end}
    consumer.assign([TopicPartition(topic, number, ranges[number][0]) for number in ends_left])
    heard = time.monotonic()
    stopped: dict[int, int] = {}  # where nothing more could be read
    while ends_left:
        messages = []
        for message in consumer.consume(READ_MESSAGES, timeout=READ_SECONDS):
            heard = time.monotonic()
            number, offset, error = message.partition(), message.offset() or 0, message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise DitherError(describe_kafka_error(error, topic))
            if number not in ends_left:
                continue
            stopped.pop(number, None)
            if error is not None:
                stopped[number] = offset
            if error is None and offset < ends_left[number]:
                messages.append(message)
            if offset + (error is None) >= ends_left[number]:
                del ends_left[number]
                consumer.pause([TopicPartition(topic, number)])
        if messages:
            yield messages
        if ends_left.keys() == stopped.keys() and time.monotonic() - heard > TRANSACTION_SECONDS:
            open_in = ", ".join(f"{number} from offset {at} on" for number, at in stopped.items())
            raise DitherError(
                f"topic {topic!r}: a transaction is open in partition {open_in}, and later "
                "messages cannot be read. Kafka ends it after its producer's "
                "transaction.timeout.ms; `kafka-transactions.sh find-hanging` names the producer"
            )
        if time.monotonic() - heard > SILENCE_SECONDS:
            raise DitherError(
                f"topic {topic!r} delivered nothing for {SILENCE_SECONDS:g} s, and partitions "
                f"{sorted(ends_left)} are not read to their ends: are all brokers up"
            )
    consumer.unassign()
