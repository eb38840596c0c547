"""A message that cannot be counted arrives in the dead-letter topic, with the reason."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from aggregator.dead_letters.writer import (
    KEPT_BYTES,
    TRUNCATED,
    DeadLetters,
    DeadLettersUndelivered,
)
from aggregator.kafka.headers import Header
from aggregator.local.embedded import EMBEDDED_PARTITIONS, EmbeddedBroker
from aggregator.state.decoder import Rejection

PATIENCE = 60.0
DAY = 86_400


@dataclasses.dataclass
class Refused:
    """A message as Kafka handed it to the worker."""

    payload: bytes | None = b"not a batch"
    name: bytes | None = b"shard 7"
    extra: list[Header] | None = None

    def topic(self) -> str:
        return "reports"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.payload

    def headers(self) -> list[Header] | None:
        return self.extra

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_357_000_000_000


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
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "fetch.message.max.bytes": 10**7,
        }
    )
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


def headers_of(message: Message) -> dict[str, Any]:
    return dict(message.headers() or [])


def test_a_refused_message_arrives_as_it_came_with_kafka_connects_headers(
    broker: EmbeddedBroker, opened: Open
) -> None:
    letters = opened(broker.bootstrap_servers)
    letters.send(refusal(Refused(extra=[("trace", b"1"), ("trace", b"2")])))
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
        letters.send(refusal(Refused(payload, name)))
    letters.flush(PATIENCE)
    found = arrived(broker.bootstrap_servers, "dead", EMBEDDED_PARTITIONS, len(pairs))
    assert {(one.key(), one.value()) for one in found} == pairs


def test_a_message_too_large_for_the_producer_is_shortened_and_says_so(
    broker: EmbeddedBroker, opened: Open
) -> None:
    letters = opened(broker.bootstrap_servers, message_max_bytes=200_000)
    payload = bytes(range(256)) * 1000
    letters.send(refusal(Refused(payload)))
    letters.flush(PATIENCE)
    found = only(broker)
    assert found.value() == payload[:KEPT_BYTES]
    assert found.key() == b"shard 7"
    assert headers_of(found)[TRUNCATED] == b"256000"
    assert headers_of(found)["__connect.errors.offset"] == b"42"


@pytest.mark.parametrize(
    "message",
    [
        Refused(payload=b"x" * 90_000),
        Refused(name=b"x" * 90_000),
        Refused(payload=None, name=b"x" * 90_000),
    ],
    ids=["value", "key", "key of a tombstone"],
)
def test_a_message_that_is_too_large_even_when_shortened_leaves_its_reason_and_place(
    broker: EmbeddedBroker, opened: Open, message: Refused
) -> None:
    letters = opened(broker.bootstrap_servers, message_max_bytes=50_000)
    letters.send(refusal(message))
    letters.flush(PATIENCE)
    found = only(broker)
    assert (found.key(), found.value()) == (None, None)
    assert headers_of(found)[TRUNCATED] == str(len(message.payload or b"")).encode()
    assert headers_of(found)["__connect.errors.offset"] == b"42"


def test_the_error_says_why_once_kafkas_client_has_given_up(opened: Open) -> None:
    letters = opened("127.0.0.1:1", message_timeout_ms=300)
    letters.send(refusal(Refused()))
    with pytest.raises(DeadLettersUndelivered, match=r"Message timed out.*nothing past them is"):
        letters.flush(2.0)


def test_taking_a_refused_message_never_waits_for_a_broker(opened: Open) -> None:
    letters = opened("127.0.0.1:1", queue_buffering_max_messages=10)
    began = time.monotonic()
    for _ in range(1_000):
        letters.send(refusal(Refused()))
    with pytest.raises(DeadLettersUndelivered, match="1000 dead letters"):
        letters.flush(0.2)
    assert time.monotonic() - began < PATIENCE / 6
