"""The Kafka and the Redis that the benchmarks run on: real ones where there are any."""

from __future__ import annotations

import functools
import shutil
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aggregator.embedded import EMBEDDED_PARTITIONS, EmbeddedBroker, EmbeddedRedis, valkey_binary
from deploy.kafka import launcher

PARTITIONS = EMBEDDED_PARTITIONS
SMALL_BYTES = 3_000_000
"""What the in-process broker keeps of a partition, with room to spare."""


class Places:
    """Servers that start when a benchmark first asks for them, and end with the run."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.is_real = not launcher.missing()
        self._embedded: EmbeddedBroker | None = None

    @functools.cached_property
    def kafka(self) -> str:
        """Bootstrap servers."""
        if self.is_real:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            cluster = self._stack.enter_context(launcher.KafkaCluster(folder))
            return cluster.bootstrap_servers
        self._embedded = self._stack.enter_context(EmbeddedBroker())
        return self._embedded.bootstrap_servers

    @functools.cached_property
    def redis(self) -> str:
        """URL of a Redis."""
        binary = Path(shutil.which("redis-server") or valkey_binary())
        return self._stack.enter_context(EmbeddedRedis(binary=binary)).url

    def log(self, payloads: list[bytes]) -> tuple[str, int]:
        """Fill a topic evenly; return its name and how many messages it holds.

        The in-process broker keeps little: there the log is shorter.
        """
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        servers: dict[str, Any] = {"bootstrap.servers": self.kafka}
        if self._embedded is not None:
            self._embedded.create_topic(topic)
            payloads = payloads[: SMALL_BYTES * PARTITIONS // len(payloads[0])]
        else:
            admin = AdminClient(servers)
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
        producer = Producer({**servers, "linger.ms": 20, "queue.buffering.max.messages": 10**6})
        for number, payload in enumerate(payloads):
            producer.produce(topic, payload, partition=number % PARTITIONS)
        producer.flush()
        producer.close()
        return topic, len(payloads)
