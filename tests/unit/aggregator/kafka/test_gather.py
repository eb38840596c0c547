"""What a worker counts together: as much as there is, and no more than fits."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from aggregator.config.settings import Settings
from aggregator.kafka import clients, worker_clients
from aggregator.local.embedded_servers import EMBEDDED_PARTITIONS, EmbeddedBroker


@contextlib.contextmanager
def backlog(
    messages: int, size: int, key: bytes | None = None
) -> Iterator[tuple[Consumer, Callable[[int], None]]]:
    """Yield a consumer at the beginning of a log of so many messages, and what adds some."""
    with EmbeddedBroker() as broker:
        broker.create_topic("reports")
        servers: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}

        def add(more: int) -> None:
            producer = Producer(servers)
            for number in range(more):
                place = number % EMBEDDED_PARTITIONS
                producer.produce("reports", bytes(size), key=key, partition=place)
            assert producer.flush(30) == 0
            producer.close()

        add(messages)
        consumer = clients.consumer(Settings(kafka=servers), "test")
        consumer.assign([TopicPartition("reports", n, 0) for n in range(EMBEDDED_PARTITIONS)])
        try:
            yield consumer, add
        finally:
            consumer.close()


def test_a_backlog_is_gathered_in_the_order_of_each_partition() -> None:
    with backlog(5_500, 20) as (consumer, _):
        messages: list[Any] = []
        while len(messages) < 5_500:
            found = worker_clients.gather(consumer, 1.0)
            assert len(found) <= worker_clients.GATHER_MESSAGES
            messages += found
    grouped = worker_clients.sort_events(messages).messages
    assert sum(map(len, grouped.values())) == 5_500
    for number, batch in grouped.items():
        assert {message.partition() for message in batch} == {number}
        assert [message.offset() for message in batch] == list(range(len(batch)))


@pytest.mark.parametrize(("limit", "value"), [("GATHER_MESSAGES", 2_000), ("GATHER_BYTES", 30_000)])
def test_gathering_ends_at_a_limit(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_clients, limit, value)
    with backlog(5_500, 20) as (consumer, _):
        assert 1_000 <= len(worker_clients.gather(consumer, 10.0)) <= 2_000


@pytest.mark.parametrize("memory", [2**25, 2**29, 2**31, 2**35])
def test_queued_messages_of_large_keys_fit_into_their_share(memory: int) -> None:
    settings = Settings()
    settings.aggregate.memory = memory
    queued = worker_clients.receive_limits(settings)["queued.min.messages"]
    assert 16 <= queued <= 1_000
    assert (
        queued * clients.CONSUMER_DEFAULTS["fetch.max.bytes"]
        <= memory // worker_clients.QUEUE_SHARE
    )


class Event:
    """What a consumer hands out: a message, or an error in its place."""

    def __init__(self, partition: int, offset: int, code: int | None = None) -> None:
        self._partition, self._offset, self._code = partition, offset, code

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)


def test_a_partitions_end_is_the_last_thing_that_came_of_it() -> None:
    """An end that came before messages may be that of an earlier assignment."""
    end = KafkaError._PARTITION_EOF
    events = [
        Event(0, 9, end),
        Event(0, 3),
        Event(1, 3),
        Event(1, 9, end),
        Event(2, 4, end),
        Event(2, 4),
        Event(2, 7, end),
        Event(3, -1001, KafkaError._TRANSPORT),
    ]
    messages, ends, errors = worker_clients.sort_events(events)
    assert ends == {1: 9, 2: 7}
    assert messages == {0: [events[1]], 1: [events[2]], 2: [events[5]]}
    assert errors == [events[i] for i in (0, 3, 4, 6, 7)]
