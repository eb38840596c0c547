"""Workers that are killed, stopped and woken up at the worst moments change no byte."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from importlib import resources
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from aggregator.counting.measurements import Measurements
from producers.populations.flights import MIX, flight_metrics, flights
from producers.populations.produce import Produced, produce
from tests.support.running import fleet
from tests.support.running.deployment import Deployment, other_database, wait_until
from tests.support.running.servers import Kafka, Redis

pytestmark = pytest.mark.more

WORKERS = 3
KILLS = 24
FLIGHTS = 60_000
"""Some 45 batches between two commits: each kill finds some that are counted and not committed."""
SEED = 20130101


@pytest.fixture
def flights_deployment(apache_kafka: Kafka, redis_url: str, tmp_path: Path) -> Iterator[Deployment]:
    file = tmp_path / "metrics.toml"
    text = resources.files("producers").joinpath("populations", "flights.toml").read_text()
    # sums of 10 MB a pane would be most of the work
    file.write_text("\n\n".join(one for one in text.split("\n\n") if "discover = true" not in one))
    deployment = Deployment(apache_kafka, redis_url, file)
    with deployment.store:
        yield deployment


@pytest.fixture
def undisturbed(flights_deployment: Deployment, redis_server: Redis) -> Iterator[Deployment]:
    """The same topic counted into another database of the same Redis."""
    other = flights_deployment.beside(other_database(redis_server.url))
    with other.store:
        other.store.client.flushdb()
        yield other
        other.store.client.flushdb()


class Fleet:
    """Worker processes; whichever is killed is started again."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.processes = [self._start() for _ in range(WORKERS)]

    def _start(self) -> BaseProcess:
        log = self.deployment.metrics_file.with_name("workers.log")
        return fleet.start("aggregate", self.deployment.flags, log)

    def kill_owner_of(self, partition: int) -> None:
        """Kill whoever counts a partition (or a worker at random, between two owners)."""
        owner = int(self.deployment.store.owner(partition)["worker"].rpartition(":")[2])
        pids = [process.pid for process in self.processes]
        index = pids.index(owner) if owner in pids else partition % WORKERS
        self.processes[index].kill()
        self.processes[index].join()
        self.processes[index] = self._start()

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(60)
            process.kill()
            process.join()


def report_flights(deployment: Deployment, seconds: float) -> Produced:
    return produce(
        {name: deployment.metrics[name] for name in flight_metrics() if name in deployment.metrics},
        flights().part(0, FLIGHTS),
        {"bootstrap.servers": deployment.kafka.bootstrap_servers},
        MIX,
        seconds=seconds,
        topic=deployment.topic,
        batch_reports=60,
    )


def measured(deployment: Deployment) -> int:
    """Return how many messages are in the histogram of latencies, over all partitions."""
    owners = [deployment.store.owner(number) for number in deployment.store.partitions()]
    return sum(sum(Measurements.stored(owner).latencies.counts) for owner in owners)


@pytest.mark.timeout(600)
def test_the_state_after_many_kills_equals_that_of_an_undisturbed_run(
    flights_deployment: Deployment, undisturbed: Deployment
) -> None:
    deployment = flights_deployment
    rng = random.Random(SEED)
    produced: list[Produced] = []
    totals: list[int] = []
    devices = threading.Thread(target=lambda: produced.append(report_flights(deployment, 40)))
    workers = Fleet(deployment)
    try:
        devices.start()
        wait_until(lambda: bool(deployment.counts()), "the first commit")
        for _ in range(KILLS):
            totals.append(measured(deployment))
            threading.Event().wait(rng.uniform(0.1, 3.0))
            workers.kill_owner_of(rng.randrange(deployment.partitions))
        devices.join()
        deployment.wait_until_counted(180)
    finally:
        workers.stop()
    with undisturbed.worker():
        undisturbed.wait_until_counted(180)
    assert deployment.state() == undisturbed.state()
    accepted = sum(n for name, n in deployment.counts().items() if name.startswith("accepted:"))
    assert accepted == produced[0].reports
    epochs = sum(int(deployment.store.owner(p)["epoch"]) for p in deployment.store.partitions())
    assert epochs > KILLS, "partitions changed hands"
    assert totals == sorted(totals)
    assert measured(deployment) == sum(deployment.log_ends().values()), "each message once"
    outcome = deployment.dither("verify")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.timeout(300)
def test_a_worker_that_slept_past_its_session_cannot_change_the_sums(
    apache_kafka: Kafka, redis_url: str, metrics_file: Path
) -> None:
    from tests.support.reports.traffic import traffic

    deployment = Deployment(apache_kafka, redis_url, metrics_file)
    deployment.settings.aggregate.commit_interval = "5s"
    sleeper = deployment.start_worker()
    try:
        owners = deployment.store.owner
        wait_until(
            lambda: all("epoch" in owners(p) for p in range(deployment.partitions)),
            "the sleeper owns all",
        )
        deployment.produce(traffic(deployment, 60))
        time_to_count = time.monotonic() + 2
        wait_until(lambda: time.monotonic() > time_to_count, "it has counted, but not committed")
        sleeper.send_signal(signal.SIGSTOP)
        deployment.settings.aggregate.commit_interval = "200ms"
        with deployment.worker("heir"):
            deployment.wait_until_counted()
            before = deployment.state()
            sleeper.send_signal(signal.SIGCONT)
            log = metrics_file.with_name("workers.log")
            wait_until(lambda: "fenced" in log.read_text() or "lost" in log.read_text(), "it wakes")
            deployment.produce(traffic(deployment, 30, seed=2))
            deployment.wait_until_counted()
            assert deployment.verify().verified
        sums = {key for key in before if ":seen:" not in key}  # ids go when their pane closes
        assert sums <= deployment.state().keys()
        messages = sum(deployment.log_ends().values())
        assert measured(deployment) == messages, "what a fenced worker measured is dropped"
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
        sleeper.terminate()
        assert sleeper.wait(60) == 0
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
