"""Where schedules of faults are played: three brokers, and lanes of a Redis and a network each."""

import contextlib
import copy
import dataclasses
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from deploy.kafka.cluster import KafkaCluster, free_ports
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.fleet import Fleet
from tests.support.running.placed_redis import PlacedRedis
from tests.support.running.proxy import Network, Proxy
from tests.support.running.servers import Kafka

SECONDS = 4.0
"""When the last fault begins at the latest; devices report until all are repaired."""

FAR_SEEDS, FAR_SECONDS = 10, 0.15
"""In a tenth of the schedules a round trip to the brokers takes so long."""

KINDS = {
    "worker killed": 5,
    "worker frozen": 4,
    "worker restarted": 3,
    "worker joins": 3,
    "worker leaves": 3,
    "server killed": 2,
    "server frozen": 2,
    "clock ahead": 2,
    "clock behind": 2,
    "broker killed": 2,
    "broker frozen": 1,
    "redis killed": 3,
    "redis loses its last writes": 3,
    "redis restored from an older state": 3,
    "redis flushed": 2,
    "redis cut off": 3,
    "redis slow": 2,
    "redis silent": 2,
    "redis loses replies": 3,
    "kafka cut off": 2,
    "kafka slow": 2,
    "kafka silent": 2,
}
"""Every kind of fault, and how often it is drawn in proportion to the others."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    at, lasts : float
        Seconds from the schedule's begin, and from then on; a fault that happens in an instant
        lasts until what it took away is started again.
    choice : float
        In [0, 1): which worker, which broker, how much.
    """

    kind: str
    at: float
    lasts: float
    choice: float


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What happens to a deployment.

    Attributes
    ----------
    seed : int
        Everything here is drawn from it.
    workers, partitions : int
        At the beginning.
    faults : tuple of Fault
        By time.
    round_trip : float
        Seconds, to the brokers.
    """

    seed: int
    workers: int
    partitions: int
    faults: tuple[Fault, ...]
    round_trip: float = 0.0


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed.

    Examples
    --------
    >>> draw(7) == draw(7)
    True
    """
    rng = random.Random(seed)
    kinds = rng.choices(list(KINDS), list(KINDS.values()), k=rng.randint(3, 8))
    faults = [Fault(kind, rng.uniform(0, SECONDS), _lasting(rng), rng.random()) for kind in kinds]
    return Schedule(
        seed,
        workers=rng.randint(1, 3),
        partitions=rng.randint(2, 6),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        round_trip=0.0 if seed % FAR_SEEDS else FAR_SECONDS,
    )


def _lasting(rng: random.Random) -> float:
    """Return how long a fault lasts: within a worker's session of 2 s, or up to twice that."""
    return rng.uniform(0.05, 0.6) if rng.random() < 0.5 else rng.uniform(0.6, 4.0)


BROKERS = 3
HEAP = "256m"
DELAY_SECONDS = 0.3
LAST_WRITES_BYTES = 20_000
AHEAD_SECONDS, BEHIND_SECONDS = 180.0, 3_600.0


class Arena:
    """Three brokers that live for many schedules, and lanes that take one schedule each.

    As a context manager, it starts everything and ends it.
    """

    def __init__(self, folder: Path, lanes: int = 1) -> None:
        self.folder = folder
        self.broker_fault = threading.Lock()
        told = {f"LANE{i}": free_ports(BROKERS) for i in range(lanes)}
        self.cluster = KafkaCluster(
            folder / "kafka",
            brokers=BROKERS,
            heap=HEAP,
            properties={"log.index.size.max.bytes": 65_536, "file.delete.delay.ms": 1_000},
            doors=told,
        )
        self._told = told
        self._stack = contextlib.ExitStack()
        self.lanes: list[Lane] = []

    def __enter__(self) -> Self:
        with self._stack:
            network = self._stack.enter_context(Network())
            self._stack.enter_context(self.cluster)
            for name, ports in self._told.items():
                doors = [
                    network.proxy(port, self._behind(broker, name))
                    for broker, port in enumerate(ports)
                ]
                self.lanes.append(Lane(self, name, network, doors))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _behind(self, broker: int, name: str) -> Callable[[], int]:
        return lambda: self.cluster.nodes[broker].doors[name][0]


def wait_for_replicas(cluster: KafkaCluster) -> None:
    """Wait until every partition has all its replicas in sync: then any broker may die."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def in_sync() -> bool:
        with contextlib.suppress(Exception):
            return all(
                len(partition.isrs) == cluster.brokers
                for topic in admin.list_topics(timeout=5).topics.values()
                for partition in topic.partitions.values()
            )
        return False

    wait_until(in_sync, "all replicas are in sync", 60)


class Lane:
    """A Redis of its own and a network of its own to it and to the brokers."""

    def __init__(self, arena: Arena, name: str, network: Network, doors: list[Proxy]) -> None:
        self.arena, self.name, self.doors = arena, name, doors
        self.folder = arena.folder / name.lower()
        self.redis_port, port = free_ports(2)
        self.to_redis = network.proxy(port, lambda: self.redis_port)
        self.kafka = Kafka(arena.cluster.bootstrap_servers, "apache", "three brokers")

    @contextlib.contextmanager
    def redis(self) -> Iterator[PlacedRedis]:
        """Run an empty Redis for one schedule."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        server = PlacedRedis(self.folder / "redis", self.redis_port)
        try:
            yield server.start()
        finally:
            server.stop()

    @property
    def redis_url(self) -> str:
        """Redis itself, for looking."""
        return f"redis://127.0.0.1:{self.redis_port}/0"

    def seen_by_workers(self, deployment: Deployment) -> Deployment:
        """Return the deployment with the places that a worker is given: all behind the network."""
        servers = ",".join(f"127.0.0.1:{door.port}" for door in self.doors)
        other = copy.copy(deployment)
        other.kafka = dataclasses.replace(self.kafka, bootstrap_servers=servers)
        other.redis_url = f"redis://127.0.0.1:{self.to_redis.port}/0"
        return other

    def place_brokers(self, round_trip: float) -> None:
        """Have a round trip to the brokers take some seconds."""
        for door in self.doors:
            door.distance = round_trip / 2

    def heal(self) -> None:
        """Make the network well again."""
        for proxy in (self.to_redis, *self.doors):
            proxy.heal()


class Faults:
    """Does to a deployment what a schedule says.

    Parameters
    ----------
    lane : Lane
    redis : PlacedRedis
    fleet, servers : Fleet
        The workers, and those that publish.
    done : Counter
        How many of each kind; a broker's count for the lane that brought them about.
    """

    def __init__(
        self, lane: Lane, redis: PlacedRedis, fleet: Fleet, servers: Fleet, done: Counter[str]
    ) -> None:
        self.lane, self.redis, self.done = lane, redis, done
        self.fleet, self.servers = fleet, servers
        self.older: list[int] = [self._log_bytes()]
        self._store, self._to_redis, self._to_kafka = (threading.Lock() for _ in range(3))

    def inject(self, fault: Fault) -> None:
        """Let it happen, wait as long as it lasts, and repair what it broke."""
        self.older.append(self._log_bytes())
        target, _, verb = fault.kind.partition(" ")
        with getattr(self, f"_{target}")(verb, fault.choice):
            time.sleep(fault.lasts)
        if target != "broker":
            self.done[fault.kind] += 1

    def _worker(self, verb: str, choice: float) -> AbstractContextManager[None]:
        return self._process(self.fleet, verb, choice)

    def _server(self, verb: str, choice: float) -> AbstractContextManager[None]:
        return self._process(self.servers, verb, choice)

    @contextlib.contextmanager
    def _process(self, fleet: Fleet, verb: str, choice: float) -> Iterator[None]:
        if verb == "frozen":
            with fleet.frozen(choice):
                yield
        elif verb == "killed":
            fleet.kill(choice)
            yield
            fleet.join()
        else:
            if verb in ("restarted", "leaves"):
                fleet.leave(choice)
            if verb in ("restarted", "joins"):
                fleet.join()
            yield

    @contextlib.contextmanager
    def _clock(self, verb: str, choice: float) -> Iterator[None]:
        """Have a worker, or a server, join whose machine has a wrong clock."""
        joining = self.fleet if choice < 0.7 else self.servers
        joining.join(AHEAD_SECONDS if verb == "ahead" else -BEHIND_SECONDS)
        if joining is self.servers:
            self.servers.kill(0.0)  # the one before it
        yield

    @contextlib.contextmanager
    def _broker(self, verb: str, choice: float) -> Iterator[None]:
        arena, number = self.lane.arena, 1 + int(choice * BROKERS)
        if not arena.broker_fault.acquire(blocking=False):  # that of another lane is ours, too
            yield
            return
        cluster = arena.cluster
        try:
            wait_for_replicas(arena.cluster)
            if verb == "killed":
                cluster.kill(number)
                yield
                cluster.restart(number)
            else:
                cluster.freeze(number)
                try:
                    yield
                finally:
                    cluster.thaw(number)
            self.done[f"broker {verb}"] += 1
        finally:
            arena.broker_fault.release()

    @contextlib.contextmanager
    def _redis(self, verb: str, choice: float) -> Iterator[None]:
        if verb in ("killed", "loses its last writes", "restored from an older state"):
            with self._store:
                self.redis.kill()
                if verb != "killed":
                    self._rewind(verb, choice)
                yield
                self.redis.start()
        elif verb == "flushed":
            with self._store:
                import redis

                with redis.Redis.from_url(self.lane.redis_url) as client:
                    client.flushall()
            yield
        else:
            with self._to_redis, self._network([self.lane.to_redis], verb, choice):
                yield

    @contextlib.contextmanager
    def _kafka(self, verb: str, choice: float) -> Iterator[None]:
        # The way to one broker, or to all of them.
        doors = self.lane.doors
        chosen = doors if choice < 0.5 else [doors[int(choice * 2 * BROKERS) % BROKERS]]
        with self._to_kafka, self._network(chosen, verb, random.Random(choice).random()):
            yield

    @contextlib.contextmanager
    def _network(self, proxies: Sequence[Proxy], verb: str, delay: float) -> Iterator[None]:
        for proxy in proxies:
            if verb == "cut off":
                proxy.refuse()
            elif verb == "slow":
                proxy.delay = DELAY_SECONDS * delay
            else:
                proxy.silence(*["replies"] * (verb == "loses replies"))
        yield
        for proxy in proxies:
            if verb == "loses replies":
                proxy.cut()  # what was held back never comes
            proxy.heal()

    def _rewind(self, verb: str, choice: float) -> None:
        """Cut the append-only log of a dead Redis back to what it was earlier."""
        log = self._log()
        size = log.stat().st_size
        if verb == "loses its last writes":
            kept = max(0, size - int(choice * LAST_WRITES_BYTES))
        else:
            kept = self.older[int(choice * len(self.older))]
        os.truncate(log, min(size, kept))
        self.older = [older for older in self.older if older <= kept]

    def _log(self) -> Path:
        (log,) = (self.redis.folder or Path()).glob("appendonlydir/*.incr.aof")
        return log

    def _log_bytes(self) -> int:
        return self._log().stat().st_size
