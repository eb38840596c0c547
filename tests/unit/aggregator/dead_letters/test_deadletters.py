"""A message that cannot be counted arrives in the dead-letter topic, with the reason."""

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from aggregator.dead_letters.writer import (
    KEPT_BYTES,
    TRUNCATED_HEADER,
    DeadLetters,
    DeadLettersUndelivered,
)
from aggregator.local.embedded_servers import EMBEDDED_PARTITIONS, EmbeddedBroker
from aggregator.state.decoder import Rejection
from tests.support.reports.messages import LogMessage

PATIENCE = 60.0
DAY = 86_400


@dataclasses.dataclass
class Refused(LogMessage):
    """A message as Kafka handed it to the worker."""

    at: int = 42
    payload: bytes | None = b"not a batch"
    arrived: int = 1_357_000_000_000
    about: bytes | None = b"shard 7"

    def topic(self) -> str:
        return "reports"

    def partition(self) -> int:
        return 3


def refusal(message: Refused, reason: str = "bad_level", detail: str = "level 9") -> Rejection:
    return Rejection(message, reason, detail)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


Open = Callable[..., DeadLetters]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Open dead letters on any servers; what is left over is thrown away at the end."""
    producers: list[Producer] = []

    def open_on(servers: str, topic: str = "dead", **properties: Any) -> DeadLetters:
        own = {name.replace("_", "."): value for name, value in properties.items()}
        config = {"bootstrap.servers": servers, "log_level": 0, "linger.ms": 0, **own}
        producers.append(Producer(config))
        return DeadLetters(producers[-1], topic)

    yield open_on
    for producer in producers:
        producer.purge()
        producer.close()


def arrived(servers: str, topic: str, partitions: int, expected: int) -> list[Message]:
    reading = {"group.id": uuid.uuid4().hex, "fetch.message.max.bytes": 10**7}
    consumer = Consumer({"bootstrap.servers": servers, **reading})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE
    try:
        while len(found) < expected and time.monotonic() < deadline:
            found += [m for m in consumer.consume(expected, timeout=0.1) if m.error() is None]
    finally:
        consumer.close()
    return found


def only(broker: EmbeddedBroker) -> Message:
    (message,) = arrived(broker.bootstrap_servers, "dead", EMBEDDED_PARTITIONS, 1)
    return message


def test_a_refused_message_has_kafka_connects_headers(broker: EmbeddedBroker, opened: Open) -> None:
    letters = opened(broker.bootstrap_servers)
    letters.enqueue(refusal(Refused(more=[("trace", b"1"), ("trace", b"2")])))
    letters.flush(PATIENCE)
    found = only(broker)
    assert (found.key(), found.value()) == (b"shard 7", b"not a batch")
    assert time.time() - found.timestamp()[1] / 1000 < DAY, "retention counts from here"
    assert found.headers() == [
        ("trace", b"1"),
        ("trace", b"2"),
        ("__connect.errors.topic", b"reports"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"42"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.class.name", b"aggregator.state.partition.Partition"),
        ("__connect.errors.exception.class.name", b"bad_level"),
        ("__connect.errors.exception.message", b"level 9"),
        ("dither.arrived", b"1357000000000"),
    ]


def test_keys_and_values_are_preserved_tombstones_too(broker: EmbeddedBroker, opened: Open) -> None:
    pairs = {(name, payload) for name in (None, b"", b"key") for payload in (None, b"", b"value")}
    letters = opened(broker.bootstrap_servers, queue_buffering_max_messages=3)
    for name, payload in pairs:
        letters.enqueue(refusal(Refused(payload=payload, about=name)))
    letters.flush(PATIENCE)
    found = arrived(broker.bootstrap_servers, "dead", EMBEDDED_PARTITIONS, len(pairs))
    assert {(one.key(), one.value()) for one in found} == pairs


LARGE, TOO_LARGE = bytes(range(256)) * 1000, b"x" * 90_000


@pytest.mark.parametrize(
    ("message", "most", "left"),
    [
        (Refused(payload=LARGE), 200_000, (b"shard 7", LARGE[:KEPT_BYTES])),
        (Refused(payload=TOO_LARGE), 50_000, (None, None)),
        (Refused(about=TOO_LARGE), 50_000, (None, None)),
        (Refused(payload=None, about=TOO_LARGE), 50_000, (None, None)),
    ],
    ids=["shortened", "value", "key", "key of a tombstone"],
)
def test_a_message_too_large_for_the_producer_is_shortened_or_leaves_its_reason_and_place(
    broker: EmbeddedBroker, opened: Open, message: Refused, most: int, left: tuple[Any, Any]
) -> None:
    letters = opened(broker.bootstrap_servers, message_max_bytes=most)
    letters.enqueue(refusal(message))
    letters.flush(PATIENCE)
    found = only(broker)
    assert (found.key(), found.value()) == left
    headers = dict(found.headers() or [])
    assert headers[TRUNCATED_HEADER] == str(len(message.payload or b"")).encode()
    assert headers["__connect.errors.offset"] == b"42"


def test_the_error_says_why_once_kafkas_client_has_given_up(opened: Open) -> None:
    letters = opened("127.0.0.1:1", message_timeout_ms=300)
    letters.enqueue(refusal(Refused()))
    with pytest.raises(DeadLettersUndelivered, match=r"Message timed out.*nothing past them is"):
        letters.flush(2.0)


def test_taking_a_refused_message_never_waits_for_a_broker(opened: Open) -> None:
    letters = opened("127.0.0.1:1", queue_buffering_max_messages=10)
    began = time.monotonic()
    for _ in range(1_000):
        letters.enqueue(refusal(Refused()))
    with pytest.raises(DeadLettersUndelivered, match="1000 dead letters"):
        letters.flush(0.2)
    assert time.monotonic() - began < PATIENCE / 2
