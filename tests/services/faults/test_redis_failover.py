"""Redis that goes back in time under a running worker: the sums end as those of the log."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from aggregator.errors import Fenced, StoreUnreachable
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from tests.services.faults.test_redis_cluster import producing, proved
from tests.support.reports.messages import batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.redis_nodes import RedisCluster, RedisNode, RedisSentinel
from tests.support.running.servers import Kafka

pytestmark = pytest.mark.more

TOPIC = "reports"


@pytest.fixture
def node() -> Iterator[RedisNode]:
    with RedisNode() as node:
        yield node


@pytest.fixture
def on_node(kafka: Kafka, node: RedisNode, metrics_file: Path) -> Iterator[Deployment]:
    deployment = Deployment(kafka, node.url, metrics_file)
    with deployment.store:
        yield deployment


def taken(store: Store, worker: str) -> tuple[int, int, Partition]:
    snapshot = store.partition.acquire(0, worker)
    epoch, at = int(snapshot.owner["epoch"]), snapshot.next_offset
    return epoch, at, snapshot.partition(METRICS, FUTURE_MS)


LOG = [batch(DELAY, [1.0, 2.0], 1, seed=i) for i in range(40)]


def test_two_masters_at_once_end_with_the_sums_of_the_log() -> None:
    """The old master lives on with its worker, while another worker counts on a stale replica."""
    with (
        RedisNode(requirepass="secret") as old,
        RedisNode(requirepass="secret") as new,
        Store(connect(old.url), TOPIC) as cut_off,
        Store(connect(new.url), TOPIC) as store,
    ):
        epoch, _, mine = taken(cut_off, "cut off")
        mine.count(log(*LOG[:10]))
        cut_off.partition.commit(0, epoch, UNSET, mine, {})
        new.follow(old)
        wait_until(lambda: store.owner(0).get("next") == "10", "the replica has it")
        new.fall_behind(old)
        mine.count(log(*LOG[10:20], first=10))
        cut_off.partition.commit(0, epoch, 10, mine, {})
        new.ask("REPLICAOF", "NO", "ONE")

        heir_epoch, at, heirs = taken(store, "heir")
        assert at == 10, "the second commit is lost with the old master"
        heirs.count(log(*LOG[at:25], first=at))
        store.partition.commit(0, heir_epoch, at, heirs, {})
        mine.count(log(*LOG[20:30], first=20))
        cut_off.partition.commit(0, epoch, 20, mine, {})  # the old master does not know

        old.ask("CONFIG", "SET", "masterauth", "secret")
        old.ask("REPLICAOF", "127.0.0.1", new.port)
        wait_until(lambda: old.link() == "up", "the old master follows")
        mine.count(log(*LOG[30:35], first=30))
        with pytest.raises(redis.RedisError, match="read only replica"):
            cut_off.partition.commit(0, epoch, 30, mine, {})
        with pytest.raises(Fenced):
            store.partition.commit(0, epoch, 30, mine, {})
        heirs.count(log(*LOG[25:], first=25))
        store.partition.commit(0, heir_epoch, 25, heirs, {})
        straight = Partition(METRICS, FUTURE_MS)
        straight.count(log(*LOG))
        assert store.counts(0) == dict(straight.counts)
        (pane,) = store.partition.snapshot(0).open.values()
        assert pane[1] == next(iter(straight.panes.values())).statistic.tobytes()
        assert pane[2] == next(iter(straight.panes.values())).batch_ids


def test_a_sentinel_that_hangs_up_is_asked_once_and_then_the_next(node: RedisNode) -> None:
    asked = []
    with RedisSentinel(node) as sentinel, socket.create_server(("127.0.0.1", 0)) as broken:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, address = broken.accept()
                    asked.append(address)
                    connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        places = f"redis+sentinel://127.0.0.1:{broken.getsockname()[1]},{sentinel.address}"
        try:
            connect(f"{places}/dither").close()
            assert len(asked) == 1
            with pytest.raises(
                StoreUnreachable, match="no Sentinel that answers knows a running master 'other'"
            ):
                connect(f"{places}/other")
        finally:
            broken.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.slow
def test_a_replica_that_lagged_becomes_master_meanwhile(kafka: Kafka, metrics_file: Path) -> None:
    with RedisCluster(3, 1, requirepass="secret", masterauth="secret") as cluster:
        deployment = Deployment(kafka, cluster.url, metrics_file)
        with deployment.store, deployment.worker(), capture_logs() as told:
            with producing(deployment):
                wait_until(lambda: len(deployment.store.partitions()) == 6, "all are counted")
                wait_until(lambda: bool(deployment.store.counts(0)), "the first commit")
                master = cluster.master_of(tag(deployment.topic, 0))
                replica = cluster.replicas[cluster.masters.index(master)]
                owner = f"{tag(deployment.topic, 0)}:owner"
                replica.fall_behind(master)
                behind = int(master.ask("HGET", owner, "next"))
                wait_until(lambda: int(master.ask("HGET", owner, "next")) > behind, "it goes on")
                master.kill()
                wait_until(lambda: replica.info("replication")["role"] == "master", "promoted")
            deployment.wait_until_counted()
            proved(deployment)
        assert any(entry["event"] == "fenced" for entry in told), "the worker went back with it"


def test_a_partition_whose_state_is_spoilt_halts_alone_and_goes_on_when_it_is_mended(
    on_node: Deployment, node: RedisNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.counting.assignment.UNREADABLE_RETRY_SECONDS", 0.3)
    deployment = on_node
    prefix = tag(deployment.topic, 0)
    deployment.produce(traffic(deployment, 40))
    with deployment.worker(), capture_logs() as told:
        deployment.wait_until_counted()
        node.ask("SET", f"{prefix}:open", "spoilt")
        deployment.produce(traffic(deployment, 40, seed=2))
        wait_until(lambda: any(entry["event"] == "halted" for entry in told), "it halts")
        assert f"{prefix}:open" in deployment.store.owner(0)["halted"]
        others = range(1, deployment.partitions)
        ends = deployment.log_ends()
        wait_until(
            lambda: all(int(deployment.store.owner(p)["next"]) == ends[p] for p in others),
            "the others are counted",
        )
        keys = [str(key) for key in node.ask("KEYS", f"{prefix}:*")]
        node.ask("DEL", *keys)
        deployment.wait_until_counted()
    halts = [entry for entry in told if entry["event"] == "halted"]
    assert 1 <= len(halts) <= 2, "told when it changes, not each time it is looked at"
    proved(deployment)
