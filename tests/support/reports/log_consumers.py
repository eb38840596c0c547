"""Consumers of a log that tests write."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer

from aggregator.config.settings import Settings
from aggregator.kafka import clients
from aggregator.local.embedded import EmbeddedBroker
from tests.support.reports.messages import LogMessage


@contextlib.contextmanager
def consumer_of(messages: Sequence[LogMessage]) -> Iterator[Consumer]:
    """Yield a consumer of a broker that has the messages."""
    with EmbeddedBroker() as broker:
        broker.create_topic("reports")
        servers: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer(servers)
        for one in messages:
            producer.produce("reports", one.payload, partition=0, timestamp=one.arrived)
        assert producer.flush(30) == 0
        producer.close()
        consumer = clients.consumer(Settings(kafka=servers), "test")
        try:
            yield consumer
        finally:
            consumer.close()
