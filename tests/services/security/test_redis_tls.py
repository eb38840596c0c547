"""A Redis Cluster, and Sentinels, that speak TLS alone and ask each client for a certificate."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from redis.exceptions import ResponseError

from aggregator import Reader
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from tests.services.security.conftest import refusal_of
from tests.support.reports.messages import batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS
from tests.support.running.deployment import wait_until
from tests.support.running.redis_nodes import RedisCluster, RedisNode, RedisSentinel
from tests.support.running.secured import Certificates

pytestmark = pytest.mark.more

TOPIC = "reports"
NODE = "127.0.0.1"
"""The host that a Cluster, and a Sentinel, tell a client of: their certificates have it."""
BATCHES = [batch(DELAY, [1.0, 2.0], seed=seed) for seed in range(20)]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def serving(certificates: Certificates) -> dict[str, str]:
    """Return the options of a server that speaks TLS, to its like too."""
    certificate, key = certificates.issue("redis", NODE)
    files = {"cert_file": certificate, "key_file": key, "ca_cert_file": certificates.ca}
    return {f"tls_{name}": str(file) for name, file in files.items()} | {"tls_replication": "yes"}


@pytest.fixture(scope="module")
def client(certificates: Certificates) -> dict[str, Path]:
    """What a client says of itself, and whom it trusts."""
    certificate, key = certificates.issue("client", "worker.example")
    return {"ssl_ca_certs": certificates.ca, "ssl_certfile": certificate, "ssl_keyfile": key}


@pytest.fixture(scope="module")
def cluster(certificates: Certificates) -> Iterator[RedisCluster]:
    with RedisCluster(2, 0, **{"tls_cluster": "yes", **serving(certificates)}) as cluster:
        yield cluster


class Watched:
    """A master, its replica and a Sentinel."""

    def __init__(self, master: RedisNode, replica: RedisNode, sentinel: RedisSentinel) -> None:
        self.master, self.replica, self.sentinel = master, replica, sentinel

    def begins_failover(self) -> bool:
        """Ask for a failover, and tell whether the Sentinel knows a replica fit for it already."""
        try:
            self.sentinel.ask("SENTINEL", "FAILOVER", "dither")
        except ResponseError as error:
            if "NOGOODSLAVE" not in str(error):
                raise
            return False
        return True


@pytest.fixture(scope="module")
def watched(certificates: Certificates) -> Iterator[Watched]:
    options = {"requirepass": "secret", "masterauth": "secret", **serving(certificates)}
    options["repl_diskless_sync_delay"] = "0"
    with RedisNode(**options) as master, RedisNode(**options) as replica:
        replica.follow(master)
        with RedisSentinel(master) as sentinel:
            wait_until(lambda: "'slaves': 1" in sentinel.info("sentinel")["master0"], "all known")
            yield Watched(master, replica, sentinel)


@pytest.fixture(params=["cluster", "watched"])
def place(request: pytest.FixtureRequest) -> str:
    """The URL of either, without its parameters."""
    found: RedisCluster | Watched = request.getfixturevalue(request.param)
    if isinstance(found, RedisCluster):
        return f"rediss://{found.masters[1].address}/0"
    return f"rediss+sentinel://:secret@{found.sentinel.address}/dither/0"


def commit(store: Store, number: int, state: Partition | None, first: int = 0) -> Partition:
    """Take a partition up, count ten more batches and commit them."""
    snapshot = store.partition.acquire(number, "worker")
    state = state or snapshot.partition(METRICS, FUTURE_MS)
    state.count(log(*BATCHES[first : first + 10], first=first))
    store.partition.commit(number, int(snapshot.owner["epoch"]), first or UNSET, state, {})
    return state


def test_slots_of_a_cluster_move_to_others(cluster: RedisCluster, client: dict[str, Path]) -> None:
    addresses = ",".join(node.address for node in cluster.masters)
    with Store(connect(f"rediss://{addresses}/0?{urlencode(client)}"), TOPIC) as store:
        state = commit(store, 0, None)
        prefix = tag(TOPIC, 0)
        target = next(node for node in cluster.masters if node is not cluster.master_of(prefix))
        source, slot = cluster.begin_move(prefix, target)
        cluster.move_keys(source, target, source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1_000))
        commit(store, 0, state, 10)
        cluster.end_move(source, target, slot)
        assert int(store.partition.acquire(0, "heir").owner["next"]) == 20
        assert Reader(store, METRICS).estimate("delay").reports == 40


def test_sentinels_name_the_master_as_it_is(watched: Watched, client: dict[str, Path]) -> None:
    url = f"rediss+sentinel://:secret@{watched.sentinel.address}/dither/0?{urlencode(client)}"
    with Store(connect(url), TOPIC) as store:
        state = commit(store, 0, None)
        owner = f"{tag(TOPIC, 0)}:owner"
        wait_until(lambda: watched.replica.ask("HGET", owner, "next") == "10", "the replica has it")
        wait_until(watched.begins_failover, "the Sentinel has asked the replica how it is")
        chosen = watched.replica.address
        wait_until(lambda: chosen in watched.sentinel.info("sentinel")["master0"], "it is promoted")
        watched.master.ask("CLIENT", "KILL", "TYPE", "normal")
        commit(store, 0, state, 10)
        assert watched.replica.ask("HGET", owner, "next") == "20"
        assert Reader(store, METRICS).estimate("delay").reports == 40


def test_what_is_wrong_with_a_certificate_is_told(
    place: str, client: dict[str, Path], strangers: Certificates
) -> None:
    def refusal(**changed: Path) -> str:
        return refusal_of(f"{place}?{urlencode({**client, **changed})}")

    assert "that no known authority has signed" in refusal(ssl_ca_certs=strangers.ca)
    assert "ssl_certfile or ssl_keyfile is not there" in refusal(ssl_ca_certs=Path("/nowhere.pem"))
    anonymous = f"{place}?ssl_ca_certs={client['ssl_ca_certs']}"
    assert "Redis has rejected the TLS connection" in refusal_of(anonymous)
