"""A Redis Cluster, or Sentinels, as the store: slots that move, and masters that change."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from aggregator import Reader
from aggregator.errors import Fenced, StoreUnreachable
from aggregator.reading.pane_sums import total_request
from aggregator.state.pane_keys import metric_key
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.failures import explain_redis_error
from aggregator.storage.progress import UNSET
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from tests.support.reports.messages import batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, in_a_thread, wait_until
from tests.support.running.redis_nodes import RedisCluster, RedisNode, RedisSentinel
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

    with in_a_thread(produce, over.set):
        yield


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
def test_a_slot_that_moves_changes_no_byte(clustered: Deployment, cluster: RedisCluster) -> None:
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
def test_a_worker_takes_over_a_moving_slot(clustered: Deployment, cluster: RedisCluster) -> None:
    deployment = clustered
    prefix = tag(deployment.topic, 0)
    deployment.count(traffic(deployment, 40))
    before, number = deployment.state(), deployment.metrics["delay"]
    wanted = total_request(number, metric_key(number.name, number.revision), [0])
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


def taken(store: Store, worker: str) -> tuple[int, int, Partition]:
    snapshot = store.partition.acquire(0, worker)
    epoch, at = int(snapshot.owner["epoch"]), snapshot.next_offset
    return epoch, at, snapshot.partition(METRICS, FUTURE_MS)


LOG = [batch(DELAY, [1.0, 2.0], 1, seed=i) for i in range(40)]


@pytest.mark.more
def test_two_masters_at_once_end_with_the_sums_of_the_log() -> None:
    """The old master lives on with its worker, while another worker counts on a stale replica."""
    with (
        RedisNode(requirepass="secret") as old,
        RedisNode(requirepass="secret") as new,
        Store(connect(old.url), "reports") as cut_off,
        Store(connect(new.url), "reports") as store,
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
        assert pane.statistic == next(iter(straight.panes.values())).statistic.tobytes()
        assert pane.ids == next(iter(straight.panes.values())).batch_ids


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


@pytest.mark.more
def test_a_sentinel_that_hangs_up_is_asked_once_and_then_the_next() -> None:
    asked = []
    with (
        RedisNode() as node,
        RedisSentinel(node) as sentinel,
        socket.create_server(("127.0.0.1", 0)) as broken,
    ):

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, address = broken.accept()
                    asked.append(address)
                    connection.close()

        places = f"redis+sentinel://127.0.0.1:{broken.getsockname()[1]},{sentinel.address}"
        with in_a_thread(hang_up, lambda: broken.shutdown(socket.SHUT_RDWR)):
            connect(f"{places}/dither").close()
            assert len(asked) == 1
            with pytest.raises(
                StoreUnreachable, match="no Sentinel that answers knows a running master 'other'"
            ):
                connect(f"{places}/other")
