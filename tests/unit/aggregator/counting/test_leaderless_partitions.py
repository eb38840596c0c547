"""A partition that no broker leads holds up no other partition of its worker."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from confluent_kafka import TopicPartition

from aggregator.config.settings import Settings
from aggregator.counting.assigned_partition import WorkerContext
from aggregator.counting.assignment import LEADER_RETRY_SECONDS, Assignment
from aggregator.counting.watchdog import Watchdog
from aggregator.kafka.log_ends import NO_LEADER
from aggregator.storage.store import Store
from tests.support.clocks import Hands

TOPIC = Settings().topics.reports


class Inspector:
    """Answers as Kafka does for empty logs; a query about a partition without a leader fails."""

    def __init__(self) -> None:
        self.leaders, self.current = {0: 1, 1: NO_LEADER, 2: 1}, self

    def list_topics(self, topic: str, _: float) -> Any:
        partitions = {number: SimpleNamespace(leader=at) for number, at in self.leaders.items()}
        about = SimpleNamespace(partitions=partitions)
        return SimpleNamespace(cluster_id="C", topics={topic: about})

    def committed(self, positions: list[TopicPartition], **_: float) -> list[TopicPartition]:
        return positions

    def get_watermark_offsets(self, position: TopicPartition, **_: float) -> tuple[int, int]:
        assert self.leaders[position.partition] != NO_LEADER
        return 0, 0


class Consumer:
    """Notes what is assigned to it."""

    def __init__(self) -> None:
        self.assigned: list[int] = []
        self.assign: Callable[[Any, list[TopicPartition]], None]

    def subscribe(self, _: list[str], *, on_assign: Any, **__: Any) -> None:
        self.assign = on_assign

    def incremental_assign(self, positions: list[TopicPartition]) -> None:
        self.assigned += [position.partition for position in positions]

    def pause(self, _: list[TopicPartition]) -> None: ...

    resume = seek = pause


def test_a_partition_without_a_leader_waits_and_the_others_are_acquired(store: Store) -> None:
    clock, consumer, inspector = Hands(), Consumer(), Inspector()
    clients: Any = SimpleNamespace(
        consumer=consumer, inspector=inspector, topic_id=str, partitions=lambda: 3, unowned=list
    )
    context = WorkerContext(Settings(), store, "worker", clients, Watchdog(0, 0), clock)
    assignment = Assignment(context, {})
    assignment.subscribe(lambda _: None)
    consumer.assign(consumer, [TopicPartition(TOPIC, number) for number in range(3)])
    assert (consumer.assigned, [*assignment.owned]) == ([0, 2], [0, 2])
    inspector.leaders[1] = 2
    assignment.acquire_pending()
    assert consumer.assigned == [0, 2], "it is tried again some time later"
    clock.now += LEADER_RETRY_SECONDS
    assignment.acquire_pending()
    assert consumer.assigned == [0, 2, 1]

    inspector.leaders[0] = NO_LEADER
    for number in (0, 1):
        assignment.owned[number].fence()
    assignment.reacquire_fenced()
    assert [number for number, owned in assignment.owned.items() if owned.is_fenced] == [0]
    inspector.leaders[0] = 1
    clock.now += LEADER_RETRY_SECONDS
    assignment.reacquire_fenced()
    assert not any(owned.is_fenced for owned in assignment.owned.values())
