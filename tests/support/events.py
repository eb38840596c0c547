"""Reading the estimates topic, as a backend would, and publishing to it in a thread."""

import contextlib
import copy
import json
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from aggregator.config.settings import Settings
from aggregator.features.reader import Reader
from aggregator.features.rounds.coordinator import Coordinator
from aggregator.publishing.publisher import Publisher
from aggregator.state.watermark import CONFIRMING_BATCHES
from producers.wire.batch import heartbeat
from tests.support.reports.counted import Server
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.prometheus import free_port

MINUTE = 60_000
PANE = 10 * MINUTE
"""The width of a pane of the metric `age`."""


@dataclass(frozen=True)
class Found:
    """A committed message of the estimates topic."""

    key: str
    value: bytes
    headers: dict[str, bytes]

    @property
    def id(self) -> str:
        return self.headers["ce_id"].decode()

    @property
    def is_final(self) -> bool:
        return self.headers["ce_type"] == b"dither.estimate.final"

    @property
    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.value)
        return found


def on_topic(
    deployment: Deployment, topic: str = "", isolation: str = "read_committed"
) -> list[Found]:
    """Return every committed event, in order."""
    topic = topic or deployment.estimates
    consumer = Consumer(
        {
            "bootstrap.servers": deployment.kafka.bootstrap_servers,
            "group.id": f"read-{topic}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[Found] = []
    try:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])

        def read() -> bool:
            message: Any
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    headers = dict(message.headers() or [])
                    found.append(
                        Found(
                            (message.key() or b"").decode(errors="replace"),
                            message.value(),
                            headers,
                        )
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
            return not left

        wait_until(read, "the estimates topic is read to its end")
    finally:
        consumer.close()
    return found


def final_ids(deployment: Deployment, topic: str = "") -> Counter[str]:
    """Return how often each final event is there."""
    return Counter(event.id for event in on_topic(deployment, topic) if event.is_final)


def reader_of(deployment: Deployment) -> Reader:
    return deployment.reader()


def settings_of(deployment: Deployment, **publish: Any) -> Settings:
    """Return a deployment's settings with others for publishing."""
    settings = copy.deepcopy(deployment.settings)
    settings.publish.interval, settings.publish.lease = "200ms", "2s"
    settings.aggregate.idle = "500ms"
    for name, value in publish.items():
        setattr(settings.publish, name, value)
    return settings


@contextlib.contextmanager
def publishing(deployment: Deployment, **publish: Any) -> Iterator[Publisher]:
    """Publish in a thread."""
    publisher = Publisher(settings_of(deployment, **publish), reader_of(deployment))
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop()


@contextlib.contextmanager
def service(
    deployment: Deployment, *flags: str, settings: Sequence[str] = (), port: int = 0
) -> Iterator[str]:
    """Run a worker and a server that publishes soon, as processes; yield the server's address.

    Parameters
    ----------
    deployment : Deployment
    *flags : str
        For both.
    settings : sequence of str
        For the server alone: ``aggregate.idle=1s``.
    port : int
        Of the server; a free one by default.
    """
    port = port or free_port()
    soon = ("publish.interval=200ms", "publish.lease=2s", "aggregate.idle=300ms")
    sets = [f"--set={one}" for one in (*soon, *settings)]
    processes = [
        deployment.start_worker(*flags),
        deployment.start_server("server.log", *flags, "--port", str(port), *sets),
    ]
    log = deployment.metrics_file.with_name("server.log")
    try:
        server = Server(processes[1], f"http://127.0.0.1:{port}", log)
        server.wait()
        yield server.url
    finally:
        for process in processes:
            process.terminate()
        codes = [process.wait(60) for process in processes]
    assert codes == [0, -signal.SIGTERM]


@contextlib.contextmanager
def coordinating(deployment: Deployment, coordinators: int = 1) -> Iterator[None]:
    """Coordinate rounds in threads."""
    running = [Coordinator(deployment.settings, reader_of(deployment)) for _ in range(coordinators)]
    for coordinator in running:
        coordinator.start()
    try:
        yield
    finally:
        for coordinator in running:
            coordinator.stop()


def ages(deployment: Deployment, panes: range, reports: int = 120) -> list[tuple[int, bytes]]:
    """Return a batch of `age` in each of some panes, in one partition after the other."""
    age = deployment.metrics["age"]
    return [
        (
            pane % deployment.partitions,
            batch(
                age, [pane % 100] * reports, 2, EPOCH + pane * PANE + MINUTE, 1 + pane
            ).SerializeToString(),
        )
        for pane in panes
    ]


def close(deployment: Deployment, panes: int) -> None:
    """Write the heartbeats that close the first panes of `age`, as a publisher does in the end."""
    age = deployment.metrics["age"]
    one = EPOCH + panes * PANE + age.lateness_ms
    deployment.produce(
        [
            (number, heartbeat(age, one))
            for number in range(deployment.partitions)
            for _ in range(CONFIRMING_BATCHES)
        ]
    )


def all_are_final(deployment: Deployment, panes: int) -> bool:
    """Whether the first panes of `age` are final."""
    closed = reader_of(deployment).finality_watermarks(deployment.store.overview())
    return closed.get("age", 0) >= EPOCH + panes * PANE
