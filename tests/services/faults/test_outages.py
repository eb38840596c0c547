"""Redis that is away for longer than a consumer may be silent: the worker stays in its group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from structlog.testing import capture_logs

from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Redis

pytestmark = pytest.mark.more

SILENCE_MS = 4_000


@pytest.fixture
def strict(deployment: Deployment, apache_kafka: object) -> Deployment:
    """A deployment whose group expels whoever does not poll for four seconds."""
    deployment.settings.kafka["max.poll.interval.ms"] = SILENCE_MS
    return deployment


def test_a_long_outage_costs_neither_the_place_in_the_group_nor_a_report(
    strict: Deployment, redis_server: Redis
) -> None:
    strict.produce(traffic(strict, 20))
    with capture_logs() as logged, strict.worker() as worker:
        strict.wait_until_counted()
        epochs = {n: strict.store.owner(n)["epoch"] for n in range(strict.partitions)}
        redis_server.kill()
        strict.produce(traffic(strict, 20, seed=1))
        threading.Event().wait(2.5 * SILENCE_MS / 1000)
        assert worker.owned.keys() == set(range(strict.partitions))
        redis_server.restart()
        strict.wait_until_counted()
        assert {n: strict.store.owner(n)["epoch"] for n in epochs} == epochs, "nobody moved"
    events = [line["event"] for line in logged]
    assert "lost" not in events
    assert 1 <= events.count("waiting") <= 5, "it says so, and does not repeat itself"
    assert "recovered" in events
    outcome = strict.verify()
    assert outcome.verified, outcome.differences


def test_partitions_that_come_while_redis_is_away_are_counted_when_it_is_back(
    strict: Deployment, redis_server: Redis
) -> None:
    strict.produce(traffic(strict, 20))
    redis_server.kill()
    with capture_logs() as logged, strict.worker() as worker:
        wait_until(lambda: any(line["event"] == "assigned" for line in logged), "assigned")
        threading.Event().wait(1.5 * SILENCE_MS / 1000)
        assert not worker.owned
        redis_server.restart()
        strict.wait_until_counted()
        assert worker.owned.keys() == set(range(strict.partitions))
    assert not any(line["event"] == "lost" for line in logged)
    assert strict.verify().verified


def test_partitions_that_go_and_come_back_while_redis_is_away_are_counted_afterwards(
    deployment: Deployment, redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.counting.worker.LEAVE_SECONDS", 1.0)
    with deployment.worker("one") as one:
        wait_until(lambda: len(one.owned) == deployment.partitions, "one owns all")
        redis_server.kill()
        wait_until(lambda: one._backoff.is_waiting, "one waits for Redis")
        with deployment.worker("two"):
            wait_until(lambda: len(one.owned) < deployment.partitions, "one gave some away")
        redis_server.restart()
        wait_until(lambda: len(one.owned) == deployment.partitions, "one owns all again")
        deployment.produce(traffic(deployment, 40))
        deployment.wait_until_counted()
    assert deployment.verify().verified


def test_a_worker_that_hangs_with_redis_says_where_and_resumes(
    deployment: Deployment, redis_server: Redis
) -> None:
    deployment.settings.aggregate.stuck_after = "1s"
    deployment.produce(traffic(deployment, 5))
    with capture_logs() as logged, deployment.worker() as worker:
        deployment.wait_until_counted()
        os.kill(redis_server.server.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: any(line["event"] == "stuck" for line in logged), "it is noticed")
        finally:
            os.kill(redis_server.server.pid, signal.SIGCONT)
        wait_until(lambda: any(line["event"] == "resumed" for line in logged), "it resumes")
        deployment.produce(traffic(deployment, 5, seed=1))
        deployment.wait_until_counted()
        stuck = next(line for line in logged if line["event"] == "stuck")
        assert stuck["step"] == "committing"
        assert "in _commit" in stuck["stack"]
        assert worker.owned
    assert deployment.store.registry.stuck_workers(0) == {}


def test_what_a_batch_in_an_open_pane_is_said_to_take_is_what_it_takes() -> None:
    program = """
import ctypes, os, sys
from tests.support.reports.messages import EPOCH, batch, log
from tests.support.reports.partitions import DELAY, METRICS
from aggregator.state.partition import Partition
state = Partition(METRICS, 10**9)
def rss():
    ctypes.CDLL(None).malloc_trim(0)  # of what was freed, the allocator keeps up to two megabytes
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
first_id = (2**128 - 1).to_bytes(16, "big")
template = batch(DELAY, [1.0], 1.0, EPOCH, 0)
template.batch_id = first_id
payload = template.SerializeToString()  # of one message: its arena grows with each id that it gets
assert payload.count(first_id) == 1
def some(first, count):
    for n in range(first, first + count):
        yield payload.replace(first_id, n.to_bytes(16, "big"))
def count(first, last):
    for start in range(first, last, 1000):
        state.count(log(*some(start, 1000), first=start))
        state.mark_committed()
    (pane,) = (pane for pane in state.panes.values() if pane.batch_ids)
    return rss(), pane.batch_ids.nbytes
before, few = count(0, 300_000)  # what a poll needs meanwhile is there by then
after, many = count(300_000, 1_200_000)
print((after - before) / 900_000, (many - few) / 900_000)
"""
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    taken, said = map(float, told.stdout.split())
    assert 0.9 * said < taken <= 1.1 * said
    assert taken <= 24
