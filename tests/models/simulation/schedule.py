"""One schedule: workers, what disturbs them, and what must hold while and after."""

import dataclasses
import functools
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from unittest.mock import patch

import redis
from confluent_kafka import KafkaException

from aggregator.config.settings import Aggregate, Settings, Topics
from aggregator.counting import assigned_partition, assignment, backoff, committer
from aggregator.counting import worker as worker_module
from aggregator.counting.worker import Worker
from aggregator.kafka import worker_clients
from aggregator.storage import commit
from aggregator.storage.progress import TORN
from aggregator.storage.store import Store
from tests.models.simulation.clients import ConsumerModel, InspectorModel, ProducerModel, unreadable
from tests.models.simulation.cluster import TOPIC, Cluster
from tests.models.simulation.failing_redis import RedisClient, RedisServer
from tests.models.simulation.finality import Finality
from tests.models.simulation.ledger import CHUNK_IDS, Ledger, Violation, tag_of
from tests.models.simulation.traffic import METRICS
from tests.models.simulation.world import Process, ProcessClock, TraceLog, World

SESSION_SECONDS = 10.0
TURNS = 150
"""How long a schedule is disturbed."""
CALM_SECONDS = 600.0
CALM_TURNS = 6_000
"""Within which everything must be counted once the faults are over."""

AT_A_CALL = {
    "redis call lost": 0.04,
    "redis reply lost": 0.04,
    "redis call late": 0.02,
    "redis call repeated": 0.05,
    "redis write failed": 0.06,
    "seek fails": 0.4,
    "kafka commit fails": 0.2,
    "dead letter queue full": 0.1,
    "dead letter producer fails": 0.2,
    "dead letter refused": 0.2,
    "dead letter acknowledgement lost": 0.2,
}
"""Faults of single calls, and how likely they are where a schedule has them."""

BETWEEN_CALLS = {
    "crash": 4.0,
    "freeze": 4.0,
    "session lost": 3.0,
    "worker stopped": 2.0,
    "worker started": 4.0,
    "redis away": 1.0,
    "redis lost its last second": 2.0,
    "redis failed over": 2.0,
    "redis flushed": 0.7,
    "kafka away": 1.0,
    "log cut by retention": 3.0,
    "topic created again": 0.3,
}
"""Faults that strike at any time, with their weights."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a schedule ended.

    Attributes
    ----------
    did, injected : Counter
        What happened, and the faults by kind.
    trace : list of str
        Its steps, if it failed.
    violation : str
        What went wrong and where; empty if every promise was kept.
    """

    seed: int
    did: Counter[str]
    injected: Counter[str]
    trace: list[str]
    violation: str = ""


class Schedule:
    """Workers that count while the seed's faults strike, and after.

    Parameters
    ----------
    seed : int
    client : redis.Redis
        Of a Redis of its own.
    """

    def __init__(self, seed: int, client: redis.Redis) -> None:
        self.seed = seed
        self.world = World(seed)
        rng = self.world.rng
        self.partitions = rng.randrange(1, 4)
        self.ledger = Ledger(self.world)
        self.cluster = Cluster(self.world, self.partitions, has_gaps=rng.random() < 0.5)
        self.redis = RedisServer(self.world, self.ledger, client)
        self.losses = {
            "redis lost its last second": self.redis.lose_last_second,
            "redis failed over": self.redis.fail_over,
            "redis flushed": self.redis.flush,
        }
        self.ledger.cluster, self.ledger.client = self.cluster, client
        self.finality = Finality(seed, self.cluster, client)
        self.workers: dict[str, tuple[Process, list[Worker], list[ConsumerModel]]] = {}
        self.started = 0
        self.on_gap = rng.choice(("stop", "skip"))
        self.slice_messages, self.many_panes = rng.choice(((16_000, 10_000), (2, 1)))
        self.world.chances = {k: v for k, v in AT_A_CALL.items() if rng.random() < 0.4}
        self.faults = {k: v for k, v in BETWEEN_CALLS.items() if rng.random() < 0.5}
        self.rate = rng.choice((0.0, 0.03, 0.08, 0.15)) if self.faults else 0.0
        self.turns = 0
        self._buried = 0

    # -- Workers --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a worker."""
        self.started += 1
        name = f"w{self.started}"
        made: list[Worker] = []
        clients: list[ConsumerModel] = []
        settings = Settings(
            topics=Topics(reports=TOPIC),
            aggregate=Aggregate(
                on_gap=self.on_gap,
                commit_reports=self.world.rng.choice((2, 10, 1000)),
                stuck_after="0s",  # it watches the machine's clock, from another thread
                stuck_exit="0s",
            ),
        )

        def main(process: Process) -> None:
            consumer = ConsumerModel(self.cluster, process)
            clients.append(consumer)
            inspector = InspectorModel(self.cluster, process, self.ledger)
            producer = ProducerModel(self.cluster, process)
            store = Store(RedisClient(self.redis, process), TOPIC)
            mine = worker_clients.WorkerClients(
                consumer,  # type: ignore[arg-type]
                inspector,  # type: ignore[arg-type]
                producer,  # type: ignore[arg-type]
                inspector.topic_id,
                unreadable,
                inspector.partition_count,
            )
            worker = Worker(settings, METRICS, store, name, mine, ProcessClock(process))
            made.append(worker)
            worker.run()

        self.workers[name] = (Process(self.world, name, main), made, clients)
        self.world.note(name, "starts")

    def alive(self) -> list[str]:
        """Return the workers that have not ended, after looking what the others died of."""
        if self._buried == self.world.ended:
            return list(self.workers)
        self._buried = self.world.ended
        for name, (process, _, clients) in list(self.workers.items()):
            if process.dead:
                del self.workers[name]
                for client in clients:
                    self.cluster.group.leave(client)
                failure = process.failure
                if isinstance(failure, KafkaException):
                    self.world.note(name, "ended with", failure)
                elif failure is not None:
                    raise failure
        return list(self.workers)

    # -- Faults ---------------------------------------------------------------------------------

    def disturb(self) -> None:
        """Let one of the schedule's faults happen."""
        world, rng = self.world, self.world.rng
        (kind,) = rng.choices(list(self.faults), list(self.faults.values()))
        names = self.alive()
        awake = [name for name in names if not self.workers[name][0].frozen]
        if kind == "worker started":
            if len(names) < 4:
                world.inject(kind, "")
                self.start()
        elif kind in ("crash", "freeze", "session lost", "worker stopped"):
            if awake:
                self._disturb_worker(kind, rng.choice(awake))
        elif kind == "redis away":
            self._away(kind, self.redis)
        elif kind == "kafka away":
            self._away(kind, self.cluster)
        elif kind in self.losses:
            world.inject(kind, "")
            self.losses[kind]()
        elif kind == "log cut by retention":
            log = rng.choice(self.cluster.logs)
            log.low = rng.randrange(log.low, log.high + 1)
            world.inject(kind, "", (log.number, log.low))
        elif kind == "topic created again" and self.cluster.may_be_deleted:
            world.inject(kind, "")
            self.cluster.delete()
            world.later(rng.random() * 10, self.cluster.create)

    def _disturb_worker(self, kind: str, name: str) -> None:
        world = self.world
        process, made, clients = self.workers[name]
        world.inject(kind, name)
        if kind == "crash":
            process.kill()
            for client in clients:
                leave = functools.partial(self.cluster.group.leave, client)
                world.later(world.rng.choice((0.0, SESSION_SECONDS)), leave)
            world.later(world.rng.random() * 5, self.start)
        elif kind == "freeze":
            process.frozen = True
            seconds = world.rng.choice((1.0, 15.0, 40.0)) * world.rng.random()
            if seconds > SESSION_SECONDS:
                world.later(SESSION_SECONDS, lambda: self._expire(clients))
            world.later(seconds, lambda: self._wake(name, process))
        elif kind == "session lost":
            self._expire(clients)
        elif made:
            made[0].stop()

    def _expire(self, clients: list[ConsumerModel]) -> None:
        for client in clients:
            self.cluster.group.expire(client)

    def _wake(self, name: str, process: Process) -> None:
        self.world.note(name, "wakes up")
        process.frozen = False

    def _away(self, kind: str, server: RedisServer | Cluster) -> None:
        if not server.away:
            self.world.inject(kind, "")
            server.away = True
            self.world.later(self.world.rng.random() * 15, lambda: setattr(server, "away", False))

    # -- The course -----------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run it to its end; the outcome has what went wrong."""
        world = self.world
        violation = ""
        with (
            patch.object(worker_module, "log", TraceLog(world)),
            patch.object(assignment, "log", TraceLog(world)),
            patch.object(committer, "log", TraceLog(world)),
            patch.object(backoff, "log", TraceLog(world)),
            patch.object(committer, "random", world.rng),
            patch.object(assigned_partition, "log", TraceLog(world)),
            patch.object(assigned_partition, "SLICE_MESSAGES", self.slice_messages),
            patch.object(assigned_partition, "MANY_PANES", self.many_panes),
            patch.object(commit, "CHUNK_IDS", CHUNK_IDS),
        ):
            try:
                self._run()
            except Exception:  # whatever a worker died of is the outcome
                violation = traceback.format_exc()
            finally:
                for process in list(world.processes):
                    process.kill()
        trace = world.story() if violation else []
        return Outcome(self.seed, self._did(), world.injected, trace, violation)

    def _did(self) -> Counter[str]:
        numbers = range(self.partitions)
        logs = [log for topic in self.cluster.incarnations for log in topic]
        return Counter(
            {
                "steps": self.turns,
                "messages": sum(len(log.messages) for log in logs),
                "commits compared with a replay": self.ledger.commits,
                "commits known again": self.ledger.known,
                "partitions": self.partitions,
                "panes seen as final": len(self.finality.seen),
                "partitions halted": sum(bool(self.halted(number)) for number in numbers),
                "offsets named as missing": sum(
                    int(self._owner(number).get(b"gap", 0)) for number in numbers
                ),
            }
        )

    def _run(self) -> None:
        rng = self.world.rng
        self._sync()
        for log in self.cluster.logs:
            log.append(rng.randrange(8))
        for _ in range(rng.randrange(1, 4)):
            self.start()
        while self.turns < TURNS:
            self._turn()
            if rng.random() < 0.1 and self.cluster.exists:
                rng.choice(self.cluster.logs).append(rng.randrange(1, 5))
            if rng.random() < self.rate:
                self.disturb()
            self.finality.step()
        self._calm_down()
        self._wait("everything is counted", self._is_counted)
        self._wait("the workers have stopped", self._has_stopped)
        for number in range(self.partitions):
            if self.halted(number) != "torn":
                self.ledger.compare(number)
                self.ledger.check_cells(number)
        self.finality.look()
        self.finality.check()

    def _turn(self) -> None:
        self.turns += 1
        self.world.turn()
        if self._buried != self.world.ended:
            self.alive()

    def _sync(self) -> None:
        self.redis.sync()
        self.world.later(1.0, self._sync)

    def _calm_down(self) -> None:
        world = self.world
        world.calm = True
        world.note("", "the faults are over")
        self.redis.away = self.cluster.away = False
        for process in world.processes:
            process.frozen = False

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        until = self.world.now + CALM_SECONDS
        turns = self.turns + CALM_TURNS
        while not holds():
            for _ in range(10):
                self._turn()
            if self.world.now > until or self.turns > turns:
                raise Violation(f"it does not come to this: {what}; {self._standing()}")

    def _has_stopped(self) -> bool:
        for _, made, _ in self.workers.values():
            for worker in made:
                if not worker._stopping:
                    worker.stop()
        return not self.alive()

    def _is_counted(self) -> bool:
        if not self.alive():
            self.start()
        return all(
            self._is_done(number) or self.halted(number) for number in range(self.partitions)
        )

    def _is_done(self, number: int) -> bool:
        owner = self._owner(number)
        return int(owner.get(b"next", b"-1")) >= self.cluster.logs[number].high

    def halted(self, number: int) -> str:
        """Return why a partition is not counted."""
        owner = self._owner(number)
        if int(owner.get(b"next", b"-1")) == TORN:
            return "torn"
        reason: bytes = owner.get(b"halted", b"")
        return reason.decode()

    def _owner(self, number: int) -> Mapping[bytes, bytes]:
        found: Mapping[bytes, bytes] = self.redis.client.hgetall(tag_of(number) + b":owner")
        return found

    def _standing(self) -> str:
        return "; ".join(
            f"partition {number} of [{log.low}, {log.high}): {self._owner(number)}"
            for number, log in enumerate(self.cluster.logs)
        )
