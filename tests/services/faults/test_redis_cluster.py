"""A Redis Cluster as the store: slots that move, nodes that join, masters that die."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from aggregator import Reader
from aggregator.reading.pane_sums import total_request
from aggregator.state.pane_keys import metric_key
from aggregator.storage.failures import explain_redis_error
from aggregator.storage.redis_keys import tag
from tests.support.reports.dead_letters import command, counted, payload
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.redis_nodes import RedisCluster
from tests.support.running.servers import Kafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(3) as cluster:
        yield cluster


@pytest.fixture
def clustered(kafka: Kafka, cluster: RedisCluster, metrics_file: Path) -> Iterator[Deployment]:
    deployment = Deployment(kafka, cluster.url, metrics_file)
    with deployment.store:
        yield deployment


@contextlib.contextmanager
def producing(deployment: Deployment) -> Iterator[None]:
    """Let devices report until the body ends."""
    over = threading.Event()

    def produce() -> None:
        for seed in itertools.count(100):
            deployment.produce(traffic(deployment, 5, seed=seed))
            if over.wait(0.05):
                return

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def proved(deployment: Deployment) -> None:
    """The state is that of the log, byte for byte, and nothing stands still."""
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
    assert outcome.messages == sum(deployment.log_ends().values())
    assert not any(deployment.store.owner(p)["halted"] for p in deployment.store.partitions())


def test_everything_runs_on_a_redis_cluster(clustered: Deployment, cluster: RedisCluster) -> None:
    deployment = clustered
    deployment.count(traffic(deployment, 40))
    nodes = {cluster.master_of(tag(deployment.topic, n)) for n in range(deployment.partitions)}
    assert len(nodes) > 1, "the partitions are on several nodes"
    proved(deployment)
    with Reader(deployment.redis_url, deployment.metrics, topic=deployment.topic) as reader:
        for name in deployment.metrics:
            total, window = reader.estimate(name), reader.estimate(name, start=0)
            assert total.reports == window.reports > 0
    command = deployment.dither("weights", "delay", "uniform")
    assert command.returncode == 0, command.stderr
    assert deployment.store.registry.policies() == {"delay": "uniform"}


@pytest.mark.more
def test_a_slot_that_moves_while_its_partition_is_counted_changes_no_byte(
    clustered: Deployment, cluster: RedisCluster
) -> None:
    deployment = clustered
    prefix = tag(deployment.topic, 0)
    with deployment.worker():
        with producing(deployment):
            wait_until(lambda: bool(deployment.store.counts(0)), "the first commit")
            target = next(n for n in cluster.masters if n is not cluster.master_of(prefix))
            source, slot = cluster.begin_move(prefix, target)
            keys = sorted(source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1_000))
            for begin in range(0, len(keys), 5):
                cluster.move_keys(source, target, keys[begin : begin + 5])
                threading.Event().wait(0.3)  # commits and reads come in between
            cluster.end_move(source, target, slot)
            assert cluster.master_of(prefix) is target
        deployment.wait_until_counted()
    proved(deployment)


@pytest.mark.more
def test_a_worker_takes_a_partition_over_while_its_slot_moves(
    clustered: Deployment, cluster: RedisCluster
) -> None:
    deployment = clustered
    prefix = tag(deployment.topic, 0)
    deployment.count(traffic(deployment, 40))
    before, number = deployment.state(), deployment.metrics["delay"]
    key = metric_key(number.name, number.revision)
    wanted = total_request(number, key, [0])
    ((total,),) = deployment.store.panes.totals([wanted])
    assert total.any()
    target = next(node for node in cluster.masters if node is not cluster.master_of(prefix))
    source, slot = cluster.begin_move(prefix, target)
    keys = sorted(source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1_000))
    refused = []
    for begin in range(0, len(keys), 6):
        try:
            snapshot = deployment.store.partition.acquire(0, "heir")
            assert snapshot.next_offset == int(before[f"{prefix}:owner"])
            assert len(snapshot.open) == len(before[f"{prefix}:open"])
            ((found,),) = deployment.store.panes.totals([wanted])
            assert (found == total).all()
        except redis.RedisError as error:
            refused.append(explain_redis_error(error))
        cluster.move_keys(source, target, keys[begin : begin + 6])
    cluster.end_move(source, target, slot)
    assert deployment.store.partition.acquire(0, "heir").owner["worker"] == "heir"
    assert refused, "nothing is answered from a half of the keys"
    assert all("a slot of the Redis Cluster is being moved" in why for why in refused)
    assert deployment.state() == before


@pytest.mark.more
def test_a_dead_letter_is_sent_again_and_counted_once_on_a_redis_cluster(
    clustered: Deployment, kafka: Kafka
) -> None:
    deployment = clustered
    deployment.deadletters = kafka.topic(3, prefix="dead")
    deployment.settings.topics.deadletters = deployment.deadletters
    age = deployment.metrics["age"]
    deployment.produce([(number % 3, payload(age, number)) for number in range(9)])
    deployment.produce([(0, b"\xffgarbage")])
    assert "accepted:age" not in counted(deployment, ("delay",))

    def ask(*arguments: str) -> Any:
        found = command(deployment, *arguments, "--json")
        assert found.exit_code == 0, (found.output, found.exception)
        return json.loads(found.stdout)

    listed = ask("list")
    assert (listed["total"], listed["handled"]) == (10, 0)
    place = next(one["place"] for one in listed["letters"] if one["metric"] == "age")
    assert ask("explain", place)["now"] == "counted, unless a copy of it was"
    assert ask("replay", "--dry-run")["sent"] == 9
    assert ask("replay")["sent"] == 9
    assert ask("replay")["sent"] == 0, "each is marked"
    client: Any = deployment.store.client
    client.delete(*client.scan_iter(match=f"*{deployment.deadletters}*handled*"))
    assert ask("replay")["sent"] == 9, "as if it had been killed before it could mark"
    totals = counted(deployment, ("delay", "age"))
    assert (totals["accepted:age"], totals["duplicate:age"]) == (27, 27)
    assert ask("drop", "--reason", "malformed", "--yes")["dropped"] == 1
    listed = ask("list")
    assert (listed["total"], listed["handled"]) == (0, 10)
