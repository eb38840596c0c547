"""The Kafka and the Redis that the benchmarks run on: real ones where there are any."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aggregator.local.embedded_servers import (
    EMBEDDED_PARTITIONS,
    EmbeddedBroker,
    EmbeddedRedis,
    valkey_binary,
)
from aggregator.storage.connection import connect
from benchmarks.measure import CannotRunError
from deploy.kafka.cluster import KafkaCluster
from deploy.kafka.distribution import kafka_version, missing

PARTITIONS = EMBEDDED_PARTITIONS
QUIET: dict[str, Any] = {"log_level": 3}
FILLING = {
    **QUIET,
    "linger.ms": 20,
    "queue.buffering.max.messages": 10**6,
    "enable.idempotence": True,  # what is sent again comes late without it
}
POLL_MESSAGES = 1_000
CPU_INFO = Path("/proc/cpuinfo")


class Places:
    """Servers that start when a benchmark first asks for them, and end with the run.

    Parameters
    ----------
    stack : ExitStack
        Closed when the run ends.
    scale : float
        The factor of all sizes: a small factor shows that everything runs.
    wanted : callable
        Returns whether a benchmark of a name is to run; nothing need be prepared for others.
    in_process : bool
        Whether to use librdkafka's broker even if Apache Kafka is installed.
    """

    def __init__(
        self,
        stack: ExitStack,
        scale: float = 1.0,
        wanted: Callable[[str], bool] = lambda _: True,
        *,
        in_process: bool = False,
    ) -> None:
        self._stack, self._scale, self._wanted = stack, scale, wanted
        self.is_real = not (in_process or missing())
        self._embedded: EmbeddedBroker | None = None

    @property
    def machine(self) -> dict[str, str]:
        """The facts that matter for speed; of servers, only those that were started."""
        facts = {
            "processor": f"{os.cpu_count()} x {_processor()}",
            "system": f"{platform.system()} {platform.machine()}",
            "Python": platform.python_version(),
            "numpy": version("numpy"),
            "librdkafka": confluent_kafka.libversion()[0],
        }
        if "kafka" in self.__dict__:
            real = f"Apache Kafka {kafka_version()}"
            facts["Kafka"] = real if self.is_real else "in-process (librdkafka)"
        if "redis" in self.__dict__:
            with closing(connect(self.redis)) as client:
                server = client.info("server")
            facts["Redis"] = f"{server.get('server_name', 'redis')} {server['redis_version']}"
        return facts

    def need_workers(self) -> None:
        """Raise CannotRunError unless worker processes can be measured."""
        if not (self.is_real and sys.platform.startswith("linux")):
            raise CannotRunError("needs Apache Kafka, on Linux: dither kafka --fetch")

    def wants(self, *names: str) -> bool:
        """Return whether one of these benchmarks is to run; nothing need be prepared for others."""
        return any(map(self._wanted, names))

    def sized(self, number: int) -> int:
        """Return `number` times the scale of this run, at least 1."""
        return max(1, round(number * self._scale))

    @functools.cached_property
    def kafka(self) -> str:
        """The bootstrap servers of Kafka, which starts on first use."""
        if self.is_real:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            cluster = self._stack.enter_context(KafkaCluster(folder))
            return cluster.bootstrap_servers
        self._embedded = self._stack.enter_context(EmbeddedBroker())
        return self._embedded.bootstrap_servers

    @functools.cached_property
    def redis(self) -> str:
        """The URL of Redis, which starts on first use."""
        binary = Path(shutil.which("redis-server") or valkey_binary())
        return self._stack.enter_context(EmbeddedRedis(binary, ["--appendonly", "yes"])).url

    def topic(self, partitions: int = PARTITIONS) -> str:
        """Make a topic, and return its name; in-process topics have `PARTITIONS` each."""
        topic, servers = f"bench-{uuid.uuid4().hex[:8]}", self.kafka
        if self._embedded is not None:
            self._embedded.create_topic(topic)
        else:
            admin = AdminClient({"bootstrap.servers": servers, **QUIET})
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
        return topic

    def fill(self, topic: str, payloads: Iterable[bytes]) -> int:
        """Write messages to the partitions of a topic in turn; return how many there are."""
        with closing(Producer({"bootstrap.servers": self.kafka, **FILLING})) as producer:
            number = _produce(producer, topic, payloads)
            producer.flush()
        return number

    @contextmanager
    def held_log(
        self, payloads: list[bytes], partitions: int = PARTITIONS
    ) -> Iterator[tuple[str, Callable[[], object]]]:
        """Fill a topic; yield its name, and a function that makes its messages visible.

        The messages are one transaction, which the function commits. This needs Apache Kafka.
        """
        topic = self.topic(partitions)
        settings = {"bootstrap.servers": self.kafka, "transactional.id": topic, **FILLING}
        with closing(Producer(settings)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            _produce(producer, topic, payloads, partitions)
            producer.flush()
            yield topic, producer.commit_transaction
        admin = AdminClient({"bootstrap.servers": self.kafka, **QUIET})
        admin.delete_topics([topic])[topic].result()


def _processor() -> str:
    """Return the processor's model, without the words that say nothing."""
    if CPU_INFO.exists():
        for model in re.findall(r"^model name\s*: (.*)", CPU_INFO.read_text(), re.MULTILINE):
            return re.sub(r"\((R|TM)\)|\bCPU\b", "", model).strip()
    return platform.processor() or "unknown"


def _produce(
    producer: Producer, topic: str, payloads: Iterable[bytes], partitions: int = PARTITIONS
) -> int:
    number = 0
    for number, payload in enumerate(payloads, 1):
        while True:
            try:
                producer.produce(topic, payload, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % POLL_MESSAGES == 0:
            producer.poll(0)
    return number
