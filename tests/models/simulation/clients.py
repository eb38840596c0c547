"""Models of Kafka's clients as a worker holds them, with confluent-kafka's methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from aggregator.dead_letters.writer import HEADER_PREFIX
from aggregator.errors import BrokerUnreachable
from aggregator.kafka.obstacles import Probe
from tests.models.simulation.cluster import TOPIC, Cluster, Message
from tests.models.simulation.ledger import Ledger
from tests.models.simulation.world import Process

Event = str | tuple[str, list[int]]
NOTICE = 0.6
"""How likely a client learns at a call what the group's coordinator has for it."""


@dataclasses.dataclass
class Fetch:
    """A partition that a client fetches.

    Attributes
    ----------
    queue : list of Message or FetchError
        Fetched, and not handed out yet.
    told : bool
        Whether the client said that the position is out of range: it does so once.
    end : int
        The end of the log that the client has told of last.
    """

    position: int
    incarnation: int
    queue: list[Message | FetchError] = dataclasses.field(default_factory=list)
    paused: bool = False
    told: bool = False
    end: int = -1


def unreadable(partition: int, base: int) -> Probe:
    """Look for the end of a record batch that cannot be read: there is none in these logs."""
    raise AssertionError(f"partition {partition}: a record batch at {base} cannot be read")


STALE, STALE_CHANCE = "stale messages", 0.9
"""A partition that returns to a worker often brings messages of before, in every schedule."""


class FetchError:
    """What comes instead of a message."""

    def __init__(self, partition: int, code: int, offset: int = -1001) -> None:
        self._partition, self._error, self._offset = partition, KafkaError(code), offset

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError:
        return self._error


class ConsumerModel:
    """A consumer: what it fetches, and what it was told by the group."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.cluster, self.process, self.world = cluster, process, process.world
        self.events: list[Event] = []
        self.fetches: dict[int, Fetch] = {}
        self._stale: dict[int, Fetch] = {}
        self._subscribed = False
        self._given: dict[int, int] = {}
        self._on: dict[str, Callable[[Any, list[TopicPartition]], None]] = {}

    def subscribe(self, _: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self._on = {"assigned": on_assign, "revoked": on_revoke, "lost": on_lost}
        self._subscribed = True
        self.cluster.group.join(self)

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        rng = self.world.rng
        self.process.pause()
        if self.events and rng.random() < NOTICE:
            self._serve(self.events.pop(0))
        found: list[Any] = []
        for number in list(self.fetches):
            if rng.random() < 0.8:
                found += self._next(number, min(num_messages, rng.randrange(1, 9)))
        if not found:
            self.process.pause(rng.random() * timeout)
        return found

    def _serve(self, event: Event) -> None:
        kind, numbers = (event, list(self._given)) if isinstance(event, str) else event
        self.world.note(self.process.name, kind, numbers)
        if kind == "assigned":
            self._given.update(dict.fromkeys(numbers, self.cluster.incarnation))
            self._on["assigned"](self, [TopicPartition(TOPIC, number) for number in numbers])
            return
        held = [TopicPartition(TOPIC, number) for number in numbers if number in self._given]
        self._on["lost" if kind == "lost" else "revoked"](self, held)
        for number in numbers:
            self._given.pop(number, None)
        if kind == "lost":
            self.cluster.group.join(self)
        else:
            self.cluster.group.released(self, numbers)

    def _next(self, number: int, limit: int) -> list[Any]:
        """Return the next messages of a partition, as they come, or that there are none."""
        fetch = self.fetches[number]
        if fetch.paused:
            return []
        if not fetch.queue and not self._fill(number, fetch, limit):
            fetch.told = True
            return [FetchError(number, KafkaError._AUTO_OFFSET_RESET)]
        handed, fetch.queue = fetch.queue[:limit], fetch.queue[limit:]
        return handed

    def _fill(self, number: int, fetch: Fetch, limit: int) -> bool:
        """Fetch from the broker, if it is there; return whether the position is in the log."""
        cluster = self.cluster
        if fetch.told or cluster.away or not cluster.exists:
            return True
        if fetch.incarnation != cluster.incarnation:
            return True
        log = cluster.logs[number]
        if not log.low <= fetch.position <= log.high:
            return False
        found = log.fetch(fetch.position, limit * self.world.rng.randrange(1, 3))
        fetch.queue += found
        if found:
            fetch.position = found[-1].at + 1
        if not log.fetch(fetch.position, 1) and fetch.end != log.high:
            fetch.position = fetch.end = log.high
            fetch.queue.append(FetchError(number, KafkaError._PARTITION_EOF, log.high))
        return True

    # -- What the callbacks and the worker ask for ----------------------------------------------

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.process.pause()
        for assigned in partitions:
            fetch = Fetch(assigned.offset, self._given[assigned.partition])
            stale = self._stale.pop(assigned.partition, None)
            has_stale = stale and stale.queue and stale.incarnation == fetch.incarnation
            if has_stale and self.world.rng.random() < STALE_CHANCE:
                self.world.inject(STALE, self.process.name)
                fetch.queue = stale.queue  # type: ignore[union-attr]
            self.fetches[assigned.partition] = fetch

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self.process.pause()
        for assigned in partitions:
            fetch = self.fetches.pop(assigned.partition, None)
            if fetch is not None and fetch.incarnation == self.cluster.incarnation:
                self._fill(assigned.partition, fetch, 4)
                self._stale[assigned.partition] = fetch

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._set_paused(partitions, True)

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: list[TopicPartition], paused: bool) -> None:
        self.process.pause()
        for partition in partitions:
            if fetch := self.fetches.get(partition.partition):
                fetch.paused = paused

    def seek(self, partition: TopicPartition) -> None:
        self.process.pause()
        fetch = self.fetches.get(partition.partition)
        if fetch is None or self.world.strikes("seek fails", self.process.name):
            raise KafkaException(KafkaError(KafkaError._STATE))
        fetch.position, fetch.told, fetch.end = partition.offset, False, -1
        fetch.queue.clear()

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        if self.world.strikes("kafka commit fails", self.process.name):
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))
        cluster = self.cluster
        for place in offsets:
            is_member = cluster.group.holders.get(place.partition) is self
            if is_member and cluster.exists and not cluster.away:
                cluster.committed[place.partition] = place

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = 0.0, cached: bool = False
    ) -> tuple[int, int]:
        log = self.cluster.logs[partition.partition]
        return log.low, log.high if partition.partition in self.fetches else -1001

    def close(self) -> None:
        if self.process.dead or not self._subscribed:
            return
        self._subscribed = False
        if self._given:
            self._serve("lost" if "lost" in self.events else "revoked all")
        self.events.clear()
        self.cluster.group.leave(self)


class InspectorModel(ConsumerModel):
    """The consumer that answers questions about the log."""

    def __init__(self, cluster: Cluster, process: Process, ledger: Ledger) -> None:
        super().__init__(cluster, process)
        self._ledger = ledger

    @property
    def current(self) -> InspectorModel:
        """Itself: the model of a client does not fail for ever."""
        return self

    def renew(self) -> None:
        """Forget what was asked for last."""
        self.fetches.clear()

    def _require_brokers(self, timeout: float) -> None:
        self.process.pause()
        if self.cluster.away:
            self.process.pause(timeout)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def topic_id(self) -> str:
        """Return the id of the topic."""
        self.process.pause()
        if self.cluster.away or not self.cluster.exists:
            raise BrokerUnreachable("the model", "no answer")
        return f"T{self.cluster.incarnation}"

    def partition_count(self) -> int:
        """Return how many partitions the topic has."""
        self.process.pause()
        is_there = self.cluster.exists and not self.cluster.away
        return self.cluster.partitions if is_there else 0

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = 0.0, cached: bool = False
    ) -> tuple[int, int]:
        self._require_brokers(timeout)
        cluster = self.cluster
        if not cluster.exists:
            self.process.pause(1.0)
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        log = cluster.logs[partition.partition]
        self._ledger.asked(self.process.name, partition.partition, log.low)
        return log.low, log.high

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        self._require_brokers(timeout)
        led = SimpleNamespace(leader=1)
        about = SimpleNamespace(partitions=dict.fromkeys(range(self.cluster.partitions), led))
        return SimpleNamespace(cluster_id="C", topics={topic: about})

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self._require_brokers(timeout)
        found = []
        for place in partitions:
            known = self.cluster.committed.get(place.partition)
            self._ledger.remembered(self.process.name, place.partition, known)
            found.append(known or place)
        return found

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.process.pause()
        for assigned in partitions:
            self.fetches[assigned.partition] = Fetch(assigned.offset, self.cluster.incarnation)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for assigned in partitions:
            del self.fetches[assigned.partition]


Delivered = Callable[[KafkaError | None, Any], None]
Letter = tuple[int, int, str, bytes | None]


class ProducerModel:
    """The producer of the dead letters."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster, self._process, self._world = cluster, process, process.world
        self._queue: list[tuple[Letter, Delivered]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        *,
        headers: list[tuple[str, bytes]],
        on_delivery: Delivered,
    ) -> None:
        self._process.pause()
        who = self._process.name
        if self._world.strikes("dead letter queue full", who):
            raise BufferError("Local: Queue full")
        if self._world.strikes("dead letter producer fails", who):
            raise KafkaException(KafkaError(KafkaError._FATAL))
        found = dict(headers)
        partition, offset = (int(found[HEADER_PREFIX + name]) for name in ("partition", "offset"))
        letter = (partition, offset, found[HEADER_PREFIX + "exception.class.name"].decode(), value)
        self._queue.append((letter, on_delivery))

    def poll(self, timeout: float) -> int:
        self._process.pause(timeout * self._world.rng.random())
        if self._cluster.away:
            self._process.pause(timeout)
            return 0
        count = self._world.rng.randrange(len(self._queue) + 1)
        for _ in range(count):
            letter, delivered = self._queue.pop(0)
            if self._world.strikes("dead letter refused", self._process.name):
                delivered(KafkaError(KafkaError._MSG_TIMED_OUT), None)
                continue
            self._cluster.deadletters.append(letter)
            if self._world.strikes("dead letter acknowledgement lost", self._process.name):
                delivered(KafkaError(KafkaError._MSG_TIMED_OUT), None)
            else:
                delivered(None, None)
        return count
