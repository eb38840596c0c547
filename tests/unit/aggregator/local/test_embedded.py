"""The embedded servers behave like the real ones, as far as the demo and the tests need them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, Producer

from aggregator.local.embedded import (
    EMBEDDED_PARTITIONS,
    EmbeddedBroker,
)
from tests.support.running.placed_redis import PlacedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[PlacedRedis]:
    with PlacedRedis() as server:
        yield server


def test_what_is_produced_to_the_embedded_broker_is_consumed_by_a_group() -> None:
    with EmbeddedBroker() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        assert broker.create_topic("reports") == EMBEDDED_PARTITIONS
        producer = Producer({**servers, "enable.idempotence": True})
        for i in range(100):
            producer.produce("reports", value=bytes([i]), headers={"name": b"value"})
        assert producer.flush(30) == 0
        consumer = Consumer({**servers, "group.id": "test", "auto.offset.reset": "earliest"})
        consumer.subscribe(["reports"])
        received: list[Message] = []
        deadline = time.monotonic() + 30
        while len(received) < 100 and time.monotonic() < deadline:
            received += consumer.consume(100, timeout=0.1)
        consumer.close()
        producer.close()
        assert sorted(message.value() or b"" for message in received) == [
            bytes([i]) for i in range(100)
        ]
        assert received[0].headers() == [("name", b"value")]
