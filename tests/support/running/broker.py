"""librdkafka's in-process broker, and what tests read back from it."""

import dataclasses
import itertools
from typing import Any, Self

import numpy as np
from confluent_kafka import Producer

from estimators import Metric, define
from producers.wire.batch import parse_batch
from producers.wire.framing import frame_size
from producers.wire.reports_pb2 import ReportBatch
from tests.support.metrics import frequency_metric, mean_metric
from tests.support.running.deployment import read_topic, wait_until

CODES = ["AA", "B6", "DL", "UA", "WN", "9E", "EV", "MQ", "US"]
METRICS = [
    mean_metric("late", "randomized_response", (0, 1), [0.5, 1, 2, 4], pane="1m"),
    mean_metric("delay", "laplace", (-60, 180), [0.5, 1, 2], pane="1m"),
    frequency_metric("carrier", "rappor", CODES, [1, 4], pane="1m"),
]
LATE, DELAY, CARRIER = METRICS
SKETCH = {"rows": 256, "buckets": 16}
WORDS = frequency_metric(
    "words", "count_sketch", "open", [1, 4], watch=["sun", "snow"], options=SKETCH
)
PLACE = define(
    name="place", kind="vector_mean", mechanism="hemisphere", dimension=2, radius=5, levels=[1, 4]
)


@dataclasses.dataclass(frozen=True)
class Message:
    partition: int
    key: bytes
    batch: ReportBatch
    frame: bytes = b""

    @classmethod
    def of(cls, message: Any) -> Self:
        """Read a message of Kafka's client."""
        value = message.value()
        frame = value[: frame_size(value)]
        return cls(message.partition(), message.key(), parse_batch(value), frame)


class Broker:
    """One in-process broker for all tests of a folder; each test has its own topics."""

    def __init__(self) -> None:
        self._handle = Producer({"test.mock.num.brokers": 1})
        brokers = self._handle.list_topics(timeout=60).brokers.values()
        self.servers = ",".join(f"{each.host}:{each.port}" for each in brokers)
        self.config: dict[str, Any] = {"bootstrap.servers": self.servers}
        self._numbers = itertools.count()

    def topic(self) -> str:
        name = f"reports-{next(self._numbers)}"
        self._handle.list_topics(name, timeout=60)  # a producer that asks for a topic creates it
        return name

    def read(self, topic: str, at_least: int = 0) -> list[Message]:
        """Return every message of a topic, after waiting until there are enough."""
        found: list[Message] = []

        def are_there() -> bool:
            found[:] = [Message.of(message) for message in read_topic(self.config, topic)]
            return len(found) >= at_least

        wait_until(are_there, "the messages are there")
        return found

    def write(self, topic: str, value: bytes) -> None:
        """Produce one message to a topic."""
        self._handle.produce(topic, value)
        assert self._handle.flush(60) == 0

    def batches(self, topic: str) -> list[ReportBatch]:
        return [message.batch for message in self.read(topic)]


def count(metric: Metric, batches: list[ReportBatch]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the statistic of these batches, counted as the aggregator does."""
    statistic = metric.zero()
    for batch in batches:
        assert (batch.metric, batch.revision) == (metric.name, metric.revision)
        metric.randomizer.check(batch.levels, batch.values)
        level = np.frombuffer(batch.levels, dtype=np.uint8)
        metric.accumulate_checked(statistic, level, metric.randomizer.decode(batch.values))
    return statistic
