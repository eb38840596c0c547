"""Open panes whose definition stays out of force are closed, and `dither verify` knows it."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer

from aggregator.config.settings import Aggregate, Settings
from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.counting.continuity import Log
from aggregator.counting.takeover import acquire_partition
from aggregator.features.reader import Reader
from aggregator.kafka import clients
from aggregator.local.embedded_servers import EmbeddedBroker
from aggregator.state.definition_history import CountingDefinitions, definitions_by_offset
from aggregator.storage.store import Store
from aggregator.verifying.log_replay import LogReplay
from aggregator.verifying.state_differences import PartitionComparison, Verification, stored_panes
from estimators import Metric
from tests.support.reports.counted import TOPIC
from tests.support.reports.messages import ARRIVAL, DAY, EPOCH, LogMessage, batch, log
from tests.support.reports.partitions import DELAY, MINUTE, PAY

PREFIX = f"{{dither:{TOPIC}:0}}"
OLD = {
    "delay": dataclasses.replace(DELAY, retention="40000d", max_key_reports=99, minimum_reports=1),
    "pay": PAY,
}
NEW = {"delay": dataclasses.replace(OLD["delay"], pane="5m"), "pay": PAY}


@contextlib.contextmanager
def consumer_of(messages: Sequence[LogMessage]) -> Iterator[Consumer]:
    """Yield a consumer of a broker that has the messages."""
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC)
        servers: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer(servers)
        for one in messages:
            producer.produce(TOPIC, one.payload, partition=0, timestamp=one.arrived)
        assert producer.flush(30) == 0
        producer.close()
        consumer = clients.consumer(Settings(kafka=servers), "test")
        try:
            yield consumer
        finally:
            consumer.close()


class Counting:
    """Workers that take a partition over, one after the other, each with definitions."""

    def __init__(self, store: Store) -> None:
        self.store, self.log, self.seed = store, list[LogMessage](), 0

    def take(self, metrics: Mapping[str, Metric]) -> AssignedPartition:
        whole = Log(lambda: (0, len(self.log)))
        return acquire_partition(self.store, 0, "one", whole, metrics, Aggregate())

    def count(self, metrics: Mapping[str, Metric], after: int, *minutes: int) -> list[str]:
        """Count a batch of each metric in some minutes; return why which were refused.

        They arrive by Kafka's timestamps `after` ms later than the first ones.
        """
        owned, first = self.take(metrics), len(self.log)
        for minute in minutes:
            for metric in metrics.values():
                self.seed += 1
                sent = batch(metric, [1.0], 1, EPOCH + minute * MINUTE, self.seed)
                self.log += log(sent, first=len(self.log))
                self.log[-1].arrived = ARRIVAL + after
        refused = owned.state.count(self.log[first:])
        owned.commit(self.store, len(self.log))
        return [one.reason for one in refused]

    def verify(self) -> Verification:
        documents = self.store.registry.definitions()
        snapshot = self.store.partition.snapshot(0)
        history = [
            (at, CountingDefinitions.decode(documents[d]))
            for at, d in definitions_by_offset(snapshot.owner)
        ]
        replay, outcome = LogReplay(TOPIC, 0, history, snapshot, 0), Verification()
        with consumer_of(self.log) as consumer:
            replay.run(consumer, consumer, lambda *_: None)
        in_force_once = [one for _, one in history]
        PartitionComparison(
            self.store, 0, stored_panes(self.store, 0), in_force_once, replay, outcome
        ).run()
        return outcome


def keys(store: Store, kind: str, metric: Metric) -> list[bytes]:
    client: Any = store.client
    return sorted(client.scan_iter(f"{PREFIX}:{kind}*{metric.name}@{metric.revision:08x}*"))


def test_open_panes_close_when_their_definition_has_been_away_for_a_week(store: Store) -> None:
    counting, old = Counting(store), OLD["delay"]
    assert not counting.count(OLD, 0, 0, 1)
    assert not counting.count(NEW, 6 * DAY, 0)
    assert len(keys(store, "seen:pane:", old)) == 2, "it may come back"
    assert not counting.count(OLD, 6 * DAY, 1)
    assert not counting.count(NEW, 14 * DAY, 5)
    assert len(keys(store, "keys:pane:", old)) == 2
    assert not counting.count(NEW, 14 * DAY, 6)
    assert not keys(store, "seen:", old)
    assert not keys(store, "keys:", old)
    client: Any = store.client
    left = {key for key in keys(store, "", old) if client.type(key) == b"string"}
    grains = {key.decode().removeprefix(f"{PREFIX}:").partition(":")[0] for key in left}
    assert grains == {"pane", "hour", "day", "total"}
    assert all(client.pttl(key) > 0 for key in left if b"}:total:" not in key)
    owner = store.owner(0)
    assert counting.take(NEW).state.next_offset == len(counting.log)
    assert int(store.owner(0)["epoch"]) == int(owner["epoch"]) + 1, "once"
    assert not counting.verify().differences


def test_a_definition_that_comes_back_later_finds_them_closed(store: Store) -> None:
    counting = Counting(store)
    counting.count(OLD, 0, 0, 1)
    counting.count(NEW, 9 * DAY, 0)
    counting.take(NEW)
    assert counting.count(OLD, 9 * DAY, 1, 24 * 60) == ["late"]
    assert not counting.verify().differences
    assert Reader(store, OLD).estimate("delay").reports == 3, "also what was closed then"


def test_panes_of_a_quick_backfill_stay_open_however_old_their_times_are(store: Store) -> None:
    counting = Counting(store)
    counting.count(OLD, 0, 0, 1)
    counting.count(NEW, MINUTE, 0)
    assert not counting.count(OLD, MINUTE, 0, 1)
    assert not counting.verify().differences
