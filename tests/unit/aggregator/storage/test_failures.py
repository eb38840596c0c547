"""A Redis that does not do as it is asked: said in words, waited for, and never counted wrongly."""

import contextlib
import itertools
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from aggregator import errors
from aggregator.config.settings import Settings
from aggregator.features.reader import Reader
from aggregator.health_port import answer_health
from aggregator.kafka import clients
from aggregator.local.embedded_servers import EmbeddedBroker
from aggregator.monitoring.collector import Exporter
from aggregator.reading import status
from aggregator.state.partition import Partition
from aggregator.storage import connection
from aggregator.storage.connection import connect
from aggregator.storage.eviction import CHECK_SECONDS, EvictionWatch, refuse_eviction
from aggregator.storage.failures import classify
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from aggregator.web.http.problem_responses import as_problem
from producers.delivery import server_probe
from producers.http import gateway_client
from producers.http.gateway_client import GatewayClient, GatewayError
from tests.support.reports.messages import batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS
from tests.support.rows import row
from tests.support.running.redis_nodes import RedisNode, RedisSentinel

TOPIC = "reports"
Trouble = Callable[[RedisNode], contextlib.AbstractContextManager[None]]


def asking(words: Sequence[Any], undo: Sequence[Any]) -> Trouble:
    """Return trouble that a command makes, and another one ends."""

    @contextlib.contextmanager
    def trouble(node: RedisNode) -> Iterator[None]:
        node.ask(*words)
        yield
        node.ask(*undo)

    return trouble


@contextlib.contextmanager
def another_password(node: RedisNode) -> Iterator[None]:
    with redis.Redis(port=node.port) as client:
        client.acl_setuser("default", enabled=True, nopass=False, passwords=["+other"])
        client.client_kill_filter(_type="normal", skipme=True)
        yield
        client.acl_setuser("default", enabled=True, nopass=True)


CONFIG, USER = ("CONFIG", "SET"), ("ACL", "SETUSER", "default")
REPLICAS = (*CONFIG, "min-replicas-to-write")
TROUBLES: dict[str, Trouble] = {
    "redis-is-full": asking((*CONFIG, "maxmemory", 1), (*CONFIG, "maxmemory", 0)),
    "redis-is-read-only": asking(("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    "redis-has-too-few-replicas": asking((*REPLICAS, 1), (*REPLICAS, 0)),
    "redis-refuses-the-user": another_password,
    "redis-refuses-a-command": asking((*USER, "-evalsha"), (*USER, "+evalsha")),
}


ENCODED, DATABASE, PARAMETERS = "password with %2F", "number of a database", "parameters of redis-"
UNREADABLE = {
    "redis://db#1": ENCODED,
    "redis://app:pa/secret@db:6379/0": ENCODED,
    "unix://run/redis.sock": "three slashes",
    "unix:/": "three slashes",
    "unix:/run/redis.sock": "three slashes",
    " redis://db/prod ": DATABASE,
    "redis:///run/redis.sock": "unix:// before the path",
    "redis:/db": "two slashes",
    "http://app:secret@db": "redis:// or another scheme",
    "localhost:6379": "redis:// or another scheme",
    "redis://app:secret@db:port/0": "HOST:PORT after",
    "redis://app:secret@db:0": "HOST:PORT after",
    "redis://::1:6379": "HOST:PORT after",
    "redis://app:secret@db/prod": DATABASE,
    "redis+sentinel://db/main/prod": DATABASE,
    "redis://db/-1": DATABASE,
    "redis://db/1?db=2": DATABASE,
    "redis://db/1_0": DATABASE,
    "redis://db?decode_responses=1": PARAMETERS,
    "rediss://app:secret@db/?ssl_x=1": PARAMETERS,
    "redis://app:secret@db/0?ssl_ca_certs=/ca.pem": "rediss:// for parameters of TLS",
    "redis://db?protocol=9": "protocol=2 or",
}


@pytest.fixture
def node() -> Iterator[RedisNode]:
    with RedisNode() as node:
        yield node


@pytest.fixture
def store(node: RedisNode) -> Iterator[Store]:
    with Store(connect(node.url), TOPIC) as store:
        yield store


def begun(store: Store) -> tuple[int, Partition]:
    """Count and commit a message; return the epoch and the state."""
    snapshot = store.partition.acquire(0, "one")
    partition = snapshot.partition(METRICS, FUTURE_MS)
    partition.count(log(batch(DELAY, [1.0], seed=1)))
    store.partition.commit(0, int(snapshot.owner["epoch"]), UNSET, partition, {})
    return int(snapshot.owner["epoch"]), partition


@pytest.mark.parametrize("section", TROUBLES)
def test_a_commit_is_refused_whole_or_made(node: RedisNode, store: Store, section: str) -> None:
    epoch, partition = begun(store)
    partition.count(log(batch(DELAY, [2.0], seed=2), first=1))
    with TROUBLES[section](node):
        with pytest.raises(redis.RedisError) as refused:
            store.partition.commit(0, epoch, 1, partition, {"high": 2})
        assert classify(refused.value).section == section
        with pytest.raises(redis.RedisError) as again:
            store.partition.acquire(0, "another")
        assert classify(again.value).section == section
    assert int(store.owner(0)["next"]) == 1, "nothing was written, and nothing is torn"
    store.partition.commit(0, epoch, 1, partition, {"high": 2})
    assert int(store.owner(0)["next"]) == 2
    assert store.counts(0) == {"accepted:delay": 2}


def test_forgotten_scripts_are_sent_again(node: RedisNode, store: Store) -> None:
    epoch, partition = begun(store)
    partition.count(log(batch(DELAY, [2.0], seed=2), first=1))
    node.ask("SCRIPT", "FLUSH")
    store.partition.commit(0, epoch, 1, partition, {})
    node.ask("SCRIPT", "FLUSH")
    assert store.partition.snapshot(0).next_offset == 2
    node.ask("SCRIPT", "FLUSH")
    assert Reader(store, {"delay": DELAY}).window("delay").reports > 0


def ask_twice(address: str) -> None:
    client = GatewayClient(f"http://{address}", timeout=1)
    with contextlib.suppress(GatewayError):
        client.get("a")
    client.get("a")


def test_another_kind_of_server_is_named(node: RedisNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for timeout in connection.FIRST_CALL_TIMEOUTS:
        monkeypatch.setitem(connection.FIRST_CALL_TIMEOUTS, timeout, 0.3)
    for module in (clients, gateway_client):
        monkeypatch.setattr(module, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(clients, "REFUSAL_CHECK_SECONDS", 0.3)
    ways: dict[str, Callable[[str], object]] = {
        "Redis server": lambda address: connect(f"redis://{address}/0"),
        "TLS": lambda address: connect(f"rediss://{address}/0"),
        "Sentinel": lambda address: connect(f"redis+sentinel://{address}/dither/0"),
        "Kafka broker": lambda a: clients.admin(Settings(kafka={"bootstrap.servers": a})),
        "HTTP server": ask_twice,
    }
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        answer_health(0, str) as health,
        RedisSentinel(node) as sentinel,
        EmbeddedBroker() as broker,
    ):
        kinds = {
            "says nothing": f"127.0.0.1:{silent.getsockname()[1]}",
            "HTTP server": f"127.0.0.1:{health}",
            "Redis server": node.address,
            "Sentinel": sentinel.address,
            "Kafka broker": broker.bootstrap_servers.split(",")[0],
        }

        def asked(kind: str, way: str) -> None:
            told = "without TLS" if (kind, way) == ("Redis server", "TLS") else kind
            start = time.monotonic()
            with row(kind, way), pytest.raises((errors.DitherError, GatewayError), match=told):
                ways[way](kinds[kind])
            assert time.monotonic() - start < 30

        for seconds, some in ((0.3, {"says nothing"}), (3.0, kinds.keys() & ways)):
            monkeypatch.setattr(server_probe, "PROBE_SECONDS", seconds)
            pairs = [pair for pair in itertools.product(some, ways) if pair[0] != pair[1]]
            with ThreadPoolExecutor(len(pairs)) as pool:  # each of them waits
                list(pool.map(asked, *zip(*pairs, strict=True)))
    for url, told in (
        ("unix:///nowhere/redis.sock", "no socket of Redis at this path"),
        (f"unix://{__file__}/0", "no socket of Redis at this path"),
        (f"redis://{node.address},{node.address}/0", "nodes of a Redis Cluster, or one server"),
        (f"redis://nobody:secret@{node.address}/0", "the user or the password"),
        (f"redis://{node.address}/99999999", "99999999: Redis has no database of this number"),
    ):
        with row(url), pytest.raises(errors.StoreUnreachable, match=told) as refused:
            connect(url)
        assert "secret" not in str(refused.value)
    for url, reason in UNREADABLE.items():
        said = rf"expected .*{re.escape(reason)}.*percent-encoded.*unix:///PATH"
        with row(url), pytest.raises(errors.SettingsError, match=said) as wrong:
            connect(url)
        assert "secret" not in str(wrong.value)


def test_a_key_of_another_type_is_named(node: RedisNode, store: Store) -> None:
    client: Any = store.client
    for what in ("owner", "watermarks", "counts", "open", "pane", "seen"):
        client.flushdb()
        begun(store)
        key = next(k for k in sorted(client.keys()) if f"}}:{what}".encode() in k).decode()
        client.delete(key)
        client.rpush(key, "a list")
        with row(what), pytest.raises(errors.StateUnreadable, match=re.escape(key)) as unreadable:
            store.partition.acquire(0, "one").partition(METRICS, FUTURE_MS)
        assert "`dither recount 0`" in str(unreadable.value)


def test_an_unreadable_partition_is_shown_and_no_estimate_leaves_it_out(store: Store) -> None:
    begun(store)
    owner = "{dither:reports:0}:owner"
    store.client.hset(owner, "next", "soon")
    reader = Reader(store, METRICS)
    with pytest.raises(errors.StateUnreadable, match=f"{owner}, field next") as unreadable:
        reader.estimate("delay")
    problem = as_problem(unreadable.value)
    assert problem.status == 503
    assert owner in problem.detail
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in Exporter(reader, 5).collect()
        for sample in family.samples
    }
    assert samples["dither_partition_halted", "0"] == 1
    assert samples["dither_metric_unreadable", "delay"] == 1
    (shown,) = status.status(store.overview(), METRICS, status.Rates()).partitions
    assert shown.halted
    assert owner in shown.reason


# -- That may evict sums --------------------------------------------------------------------------


def test_a_server_that_evicts_is_refused_with_what_mends_it(store: Store) -> None:
    client: Any = store.client
    for policy in ("allkeys-lru", "allkeys-random", "volatile-ttl"):
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", policy)
        refuse_eviction(client)
        client.config_set("maxmemory", "100mb")
        told = f"maxmemory-policy = {policy} with maxmemory = 104857600"
        with pytest.raises(errors.DitherError, match=told):
            refuse_eviction(client)
    client.config_set("maxmemory-policy", "noeviction")
    refuse_eviction(client)


def test_a_server_is_looked_at_each_minute_and_when_it_was_away(store: Store) -> None:
    client: Any = store.client
    now = 0.0
    watch = EvictionWatch(client, lambda: now)
    assert watch() == ""
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert watch() == ""
    watch.recheck()
    assert "maxmemory-policy = allkeys-lru" in watch()
    client.config_set("maxmemory-policy", "noeviction")
    assert "maxmemory-policy = allkeys-lru" in watch()
    now = CHECK_SECONDS
    assert watch() == ""
