"""One schedule from begin to end: devices report, faults happen, and what is left is compared."""

import contextlib
import dataclasses
import functools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from aggregator.counting.continuity import Log
from aggregator.counting.takeover import acquire_partition
from aggregator.dead_letters.writer import HEADER_PREFIX
from aggregator.publishing import events
from aggregator.reading.reader import MetricReader
from aggregator.reading.window import Window, WindowStatistic
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.redis_keys import tag
from estimators import Metric
from producers.wire.reports_pb2 import ReportBatch
from tests.services.faults.arena import Faults, Lane, Schedule
from tests.support.events import Found, on_topic
from tests.support.reports.bad_batches import bad_batches
from tests.support.reports.messages import EPOCH, batch
from tests.support.reports.metrics import METRICS
from tests.support.running.deployment import Deployment, other_database, wait_until
from tests.support.running.fleet import Fleet
from tests.support.running.placed_redis import PlacedRedis

HOUR = 3_600_000
TICK_SECONDS = 0.04
KEEP_SECONDS = 0.2
LOG = "workers.log"
LEFT = {0, -signal.SIGTERM}
"""How a worker ends that was asked to leave: by itself, or before it could even listen."""
COUNTED_SECONDS = 120.0
REPLAYED_AT_ONCE = 500
SERVERS = 2
SERVING = [
    *("--port", "0", "--set", "serve.gateway=false", "--set", "aggregate.idle=2s"),
    *("--set", "publish.lease=2s", "--set", "publish.interval=2s"),
]
SHORT_SESSION = "kafka.session.timeout.ms=2000"
TOP = 1_000
"""`publish.top_categories`, as it is by default."""

Logs = Mapping[int, list[Any]]
Place = tuple[int, int]
"""Partition and offset."""


@dataclasses.dataclass
class Replay:
    """What a log amounts to where nothing disturbs who counts it.

    Attributes
    ----------
    state : dict
        Everything in Redis that is a function of the log.
    panes : dict of (int, str) to array
        The sums of panes by start and metric, over all partitions.
    refused : dict of Place to str
        Why each message that must be in the dead letters is there.
    """

    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    panes: dict[tuple[int, str], Any] = dataclasses.field(default_factory=dict)
    refused: dict[Place, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Outcome:
    """What came of a schedule.

    Attributes
    ----------
    schedule : Schedule
    problems : list of str
        Empty if nothing was lost, doubled or wrong.
    faults : Counter
        That happened, by kind.
    messages : int
        In the log.
    """

    schedule: Schedule
    problems: list[str] = dataclasses.field(default_factory=list)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    messages: int = 0


class Devices:
    """Reports of all kinds, sent for a while: good, twice, late, and bad ones.

    Attributes
    ----------
    sent : Counter
        Messages by partition and payload.
    acknowledged : int
        How many of them the brokers have promised to keep.
    bad : dict
        The payloads that are not well formed, and the reason of each.
    """

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.deployment = deployment
        self.sent: Counter[tuple[int, bytes | None]] = Counter()
        self.acknowledged = 0
        metrics = deployment.metrics
        self._rng = random.Random(seed)
        self._delay, self._carrier, self._age = (metrics[n] for n in ("delay", "carrier", "age"))
        self._kinds = list(
            bad_batches(
                self._delay,
                self._carrier,
                self._age,
                noise_bytes=200,
                now_ms=int(1000 * time.time()),
            ).values()
        )
        self.bad: dict[bytes | None, str] = dict(self._kinds)

    def report(self, over: threading.Event) -> None:
        """Send batches, a few every tick, until it is over."""
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.deployment.kafka.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "log_level": 0,
            }
        )
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error:
                failed.append(error)
            else:
                self.acknowledged += 1

        step = 0
        while not over.wait(TICK_SECONDS):
            for partition, payload in self._batches(step):
                producer.produce(
                    self.deployment.topic, payload, partition=partition, on_delivery=delivered
                )
                self.sent[partition, payload] += 1
            producer.poll(0)
            step += 1
        left = producer.flush(COUNTED_SECONDS)
        producer.close()
        assert not left, f"{left} messages were not acknowledged"
        assert not failed, failed[0]

    def _batches(self, step: int) -> Iterator[tuple[int, bytes | None]]:
        rng, number = self._rng, 3 * step
        now = EPOCH + step * HOUR // 4
        size = rng.randrange(1, 12)
        questions: list[tuple[Metric, list[Any], float]] = [
            (self._delay, [rng.uniform(-60, 180) for _ in range(size)], 1.5),
            (self._carrier, [rng.randrange(5) for _ in range(size)], 4),
            (self._age, [rng.uniform(0, 100) for _ in range(size)], 2),
        ]
        for i, (metric, answers, epsilon) in enumerate(questions):
            late = rng.random() < 0.05
            time_ms = max(EPOCH, now - 10 * HOUR) if late else now
            made = batch(metric, answers, epsilon, time_ms, number + i).SerializeToString()
            partition = rng.randrange(self.deployment.partitions)
            yield partition, made
            if rng.random() < 0.1:
                yield partition, made
        if rng.random() < 0.1:
            yield rng.randrange(self.deployment.partitions), rng.choice(self._kinds)[0]


def play(lane: Lane, schedule: Schedule) -> Outcome:
    """Play a schedule in a lane and compare what is left with what must be."""
    outcome = Outcome(schedule)
    lane.place_brokers(schedule.round_trip)
    try:
        with lane.redis() as redis:
            _play(lane, redis, outcome)
    except Exception as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    lane.heal()
    if outcome.problems:
        outcome.problems.append(f"the workers' log: {_kept(lane, schedule.seed)}")
    return outcome


def _play(lane: Lane, redis: PlacedRedis, outcome: Outcome) -> None:
    schedule = outcome.schedule
    file = lane.folder / "metrics.toml"
    file.write_text(METRICS)
    deployment = Deployment(lane.kafka, lane.redis_url, file, schedule.partitions)
    flags = [*lane.seen_by_workers(deployment).flags, f"--set={SHORT_SESSION}"]
    log = lane.folder / LOG
    fleet, servers = Fleet(flags, log), Fleet([*flags, *SERVING], log, "serve")
    faults = Faults(lane, redis, fleet, servers, outcome.faults)
    with deployment.store:
        try:
            fleet.keep(schedule.workers)
            servers.keep(SERVERS)
            wait_until(lambda: _is_owned(deployment, fleet), "all partitions are owned")
            devices = _disturbed(deployment, faults, schedule)
            logs = read(deployment)
            _wait(deployment, fleet, logs)
            found = _finals(deployment, faults, replay(deployment, logs))
            codes = servers.stop()
            logs = read(deployment)
            _wait(deployment, fleet, logs)
            codes += fleet.stop()
            if not LEFT.issuperset(codes):
                outcome.problems.append(f"workers ended with {codes}")
            _compare(outcome, deployment, found, _settle(outcome, deployment, devices, logs))
            if "Traceback" in (lane.folder / LOG).read_text(errors="replace"):
                outcome.problems.append("a worker ended in a traceback")
        finally:
            servers.stop()
            fleet.stop()
            _forget(deployment)


def _disturbed(deployment: Deployment, faults: Faults, schedule: Schedule) -> Devices:
    """Let devices report while the faults of the schedule happen; then all is repaired."""
    devices = Devices(deployment, schedule.seed)
    begin = time.monotonic()

    def inject(index: int) -> None:
        fault = schedule.faults[index]
        time.sleep(max(0.0, begin + fault.at - time.monotonic()))
        faults.inject(fault)

    over = threading.Event()
    with ThreadPoolExecutor(max_workers=len(schedule.faults) + 1) as pool:
        reporting = pool.submit(devices.report, over)
        happening = [pool.submit(inject, i) for i in range(len(schedule.faults))]
        try:
            while wait(happening, KEEP_SECONDS, FIRST_EXCEPTION).not_done:
                faults.fleet.keep(1)
                faults.servers.keep(1)
            for job in happening:
                job.result()
        finally:
            over.set()
        reporting.result()
    return devices


def _finals(deployment: Deployment, faults: Faults, expected: Replay) -> list[Found]:
    """Return the final events once every pane has one."""
    found: list[Found] = []

    def are_there() -> bool:
        faults.servers.keep(1)
        faults.fleet.keep(1)
        time.sleep(KEEP_SECONDS)
        found[:] = [event for event in on_topic(deployment) if event.is_final]
        return len({event.key for event in found}) >= len(expected.panes)

    wait_until(are_there, "every pane has its final event", COUNTED_SECONDS)
    return found


def _compare(
    outcome: Outcome, deployment: Deployment, found: list[Found], replayed: Replay
) -> None:
    """Compare every final event with what a replay of the log gives."""
    expected: dict[str, bytes] = {}
    for (start, name), statistic in replayed.panes.items():
        metric = deployment.metrics[name]
        end = start + metric.pane_ms
        window = Window(
            metric=metric,
            start_ms=start,
            end_ms=end,
            status="final",
            content=WindowStatistic(statistic),
        )
        answer = MetricReader.answer(window)
        wanted = events.final_event(window, answer, TOP, events.source(deployment.topic))
        expected[wanted.id] = wanted.data
    told = {event.id: event.value for event in found}
    outcome.problems += _differences("final event", told, expected)
    for identity, times in Counter(event.id for event in found).items():
        if times > 1:
            outcome.problems.append(f"final event {identity} is there {times} times")


def _differences(kind: str, found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> Iterator[str]:
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            there, should = (str(side.get(key))[:200] for side in (found, expected))
            yield f"{kind} {key}: {there}, the replay has {should}"


def _is_heartbeat(payload: bytes | None, bad: Mapping[bytes | None, str]) -> bool:
    return payload not in bad and not ReportBatch.FromString(payload or b"").levels


def _is_owned(deployment: Deployment, fleet: Fleet) -> bool:
    fleet.keep(1)  # the broker that another lane has killed may have ended a worker
    time.sleep(KEEP_SECONDS)
    return len(deployment.store.overview().partitions) == deployment.partitions


def _wait(deployment: Deployment, fleet: Fleet, logs: Logs) -> None:
    ends = {number: log[-1].offset() + 1 for number, log in logs.items() if log}

    def counted() -> bool:
        fleet.keep(1)
        time.sleep(KEEP_SECONDS)
        standing = deployment.store.overview().partitions
        for number, partition in standing.items():
            if int(partition.owner.get("next", UNSET)) == TORN:
                _delete(deployment, number)
        return all(
            number in standing and int(standing[number].owner.get("next", UNSET)) >= end
            for number, end in ends.items()
        )

    wait_until(counted, f"counted up to {ends}", COUNTED_SECONDS)


def _delete(deployment: Deployment, number: int) -> None:
    """Do what the worker's log asks for when Redis has applied a commit by half."""
    client: Any = deployment.store.client
    if keys := list(client.scan_iter(match=f"{tag(deployment.topic, number)}:*")):
        client.delete(*keys)


def read(deployment: Deployment) -> Logs:
    """Return everything that is in the log, by partition."""
    logs: dict[int, list[Any]] = {number: [] for number in range(deployment.partitions)}
    message: Any
    for message in deployment.messages(seconds=COUNTED_SECONDS):
        logs[message.partition()].append(message)
    return logs


def replay(deployment: Deployment, logs: Logs) -> Replay:
    """Count the log once more, by nobody who was disturbed."""
    other = deployment.beside(other_database(deployment.redis_url))
    other.store.client.flushdb()
    found = Replay()
    with other.store:
        for number, messages in logs.items():
            end = messages[-1].offset() + 1 if messages else 0
            owned = acquire_partition(
                other.store,
                number,
                "replay",
                Log(functools.partial(lambda end: (0, end), end)),
                other.metrics,
                other.settings.aggregate,
            )
            for i in range(0, len(messages), REPLAYED_AT_ONCE):
                for refusal in owned.state.count(messages[i : i + REPLAYED_AT_ONCE]):
                    found.refused[number, refusal.message.offset()] = refusal.reason
            for key, pane in owned.state.panes.items():
                if key.grain == "pane":
                    name = key.metric.partition("@")[0]
                    found.panes[key.start, name] = (
                        found.panes.get((key.start, name), 0) + pane.statistic
                    )
            owned.commit(other.store, end)
        found.state = other.state()
    return found


def dead_letters(deployment: Deployment) -> dict[Place, str]:
    """Return the reason of each message that is in the dead letters."""
    (end,) = deployment.log_ends(deployment.deadletters).values()
    letters = [message["headers"] for message in deployment.dead(end)]
    names = [HEADER_PREFIX + name for name in ("partition", "offset", "exception.class.name")]
    facts = ([headers[name].decode() for name in names] for headers in letters)
    return {(int(partition), int(offset)): reason for partition, offset, reason in facts}


def _settle(outcome: Outcome, deployment: Deployment, devices: Devices, logs: Logs) -> Replay:
    """Compare the store, the dead letters and the log with a replay and with what was sent."""
    expected = replay(deployment, logs)
    letters = dead_letters(deployment)
    outcome.problems += _differences("key", deployment.state(), expected.state)
    outcome.problems += _differences("dead letter", letters, expected.refused)
    sent = Counter(
        (number, m.value())
        for number, messages in logs.items()
        for m in messages
        if not _is_heartbeat(m.value(), devices.bad)
    )
    if sent != devices.sent:
        extra, missing = sent - devices.sent, devices.sent - sent
        outcome.problems.append(f"beside what was acknowledged: {extra} in the log, {missing} not")
    outcome.messages = sum(map(len, logs.values()))
    return expected


def _forget(deployment: Deployment) -> None:
    """Delete the topics of a schedule that is over."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": deployment.kafka.bootstrap_servers, "log_level": 0})
    topics = [deployment.topic, deployment.deadletters, deployment.estimates]
    for future in admin.delete_topics(topics, operation_timeout=30).values():
        with contextlib.suppress(Exception):
            future.result(timeout=60)


def _kept(lane: Lane, seed: int) -> Path:
    """Keep a log that a later schedule would overwrite."""
    log, kept = lane.folder / LOG, lane.folder.with_name(f"schedule-{seed}.log")
    if log.exists():
        kept.write_bytes(log.read_bytes())
    return kept
