"""What a running worker meets: Redis away or spoilt, its topic gone, itself asleep."""

import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from aggregator.counting.measurements import Measurements
from aggregator.storage.redis_keys import tag
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.fleet import Fleet
from tests.support.running.processes import run
from tests.support.running.servers import Kafka, Redis

pytestmark = pytest.mark.more

SILENCE_MS, AWAY_SECONDS = 8_000, 10.0


@pytest.fixture
def strict(deployment: Deployment, apache_kafka: object) -> Deployment:
    """A deployment whose group expels whoever does not poll for eight seconds."""
    deployment.settings.kafka["max.poll.interval.ms"] = SILENCE_MS
    return deployment


def test_a_long_outage_costs_no_place_or_report(strict: Deployment, redis_server: Redis) -> None:
    """It begins before partitions come, and again while they are counted."""
    strict.produce(traffic(strict, 20))
    redis_server.kill()
    with capture_logs() as logged, strict.worker() as worker:
        wait_until(lambda: any(line["event"] == "assigned" for line in logged), "assigned")
        threading.Event().wait(AWAY_SECONDS)
        assert not worker.owned
        redis_server.restart()
        strict.wait_until_counted()
        epochs = strict.owners("epoch")
        redis_server.kill()
        strict.produce(traffic(strict, 20, seed=1))
        threading.Event().wait(AWAY_SECONDS)
        assert worker.owned.keys() == set(range(strict.partitions))
        redis_server.restart()
        strict.wait_until_counted()
        assert strict.owners("epoch") == epochs, "nobody moved"
    events = [line["event"] for line in logged]
    assert "lost" not in events
    assert 2 <= events.count("waiting") <= 10, "it says so, and does not repeat itself"
    assert "recovered" in events
    outcome = strict.verify()
    assert outcome.verified, outcome.differences


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


def test_a_hanging_worker_says_where(deployment: Deployment, redis_server: Redis) -> None:
    def is_stuck(line: Mapping[str, Any]) -> bool:
        return (line["event"], line.get("step")) == ("stuck", "committing")

    deployment.settings.aggregate.stuck_after = "1s"
    deployment.produce(traffic(deployment, 5))
    with capture_logs() as logged, deployment.worker() as worker:
        deployment.wait_until_counted()
        os.kill(redis_server.server.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: any(is_stuck(line) for line in logged), "it is noticed")
        finally:
            os.kill(redis_server.server.pid, signal.SIGCONT)
        wait_until(lambda: any(line["event"] == "resumed" for line in logged), "it resumes")
        deployment.produce(traffic(deployment, 5, seed=1))
        deployment.wait_until_counted()
        assert any(is_stuck(line) and "in _commit" in line["stack"] for line in logged)
        assert worker.owned
    wait_until(lambda: deployment.store.registry.stuck_workers(0) == {}, "none is stuck")


def test_a_partition_whose_state_is_spoilt_halts_alone_and_goes_on_when_it_is_mended(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.counting.assignment.UNREADABLE_RETRY_SECONDS", 0.3)
    client: Any = deployment.store.client
    prefix = tag(deployment.topic, 0)
    deployment.produce(traffic(deployment, 40))
    with deployment.worker(), capture_logs() as told:
        deployment.wait_until_counted()
        client.set(f"{prefix}:open", "spoilt")
        deployment.produce(traffic(deployment, 40, seed=2))
        wait_until(lambda: any(entry["event"] == "halted" for entry in told), "it is told")
        assert f"{prefix}:open" in deployment.store.owner(0)["halted"]
        others = range(1, deployment.partitions)
        ends = deployment.log_ends()
        wait_until(
            lambda: all(int(deployment.store.owner(p)["next"]) == ends[p] for p in others),
            "the others are counted",
        )
        client.delete(*client.scan_iter(match=f"{prefix}:*"))
        deployment.wait_until_counted()
    halts = [entry for entry in told if entry["event"] == "halted"]
    assert 1 <= len(halts) <= 2, "told when it changes, not each time it is looked at"
    assert deployment.verify().verified


def measured(deployment: Deployment) -> int:
    """Return how many messages are in the histogram of latencies, over all partitions."""
    owners = [deployment.store.owner(number) for number in deployment.store.partitions()]
    return sum(sum(Measurements.stored(owner).latencies.counts) for owner in owners)


def test_a_worker_that_slept_changes_no_sum(apache_kafka: Kafka, deployment: Deployment) -> None:
    deployment.settings.aggregate.commit_interval = "5s"
    sleeper = deployment.start_worker()
    try:
        wait_until(lambda: all(deployment.owners("epoch")), "the sleeper owns all")
        deployment.produce(traffic(deployment, 60))
        threading.Event().wait(2)  # it has counted, but not committed
        os.kill(sleeper.pid or 0, signal.SIGSTOP)
        deployment.settings.aggregate.commit_interval = "200ms"
        with deployment.worker("heir"):
            deployment.wait_until_counted()
            before = deployment.state()
            os.kill(sleeper.pid or 0, signal.SIGCONT)
            told = deployment.log("aggregate").read_text
            wait_until(lambda: "fenced" in told() or "lost" in told(), "it wakes")
            deployment.produce(traffic(deployment, 30, seed=2))
            deployment.wait_until_counted()
            assert deployment.verify().verified
        sums = {key for key in before if ":seen:" not in key}  # ids go when their pane closes
        assert sums <= deployment.state().keys()
        messages = sum(deployment.log_ends().values())
        assert measured(deployment) == messages, "what a fenced worker measured is dropped"
    finally:
        os.kill(sleeper.pid or 0, signal.SIGCONT)
        sleeper.terminate()
        sleeper.join(60)
    assert sleeper.exitcode == 0
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences


def test_a_topic_made_anew_halts_its_worker(apache_kafka: Kafka, deployment: Deployment) -> None:
    deployment.produce(traffic(deployment, 20))
    patient = ["--set", "kafka.session.timeout.ms=40000"]  # no rebalance tells it
    fleet = Fleet([*deployment.flags, *patient], deployment.log("aggregate"))
    try:
        fleet.join()
        deployment.wait_until_counted()
        with fleet.frozen(0):
            deployment.recreate_topic()
            deployment.produce(traffic(deployment, 80, seed=1))
        wait_until(
            lambda: all("created again" in why for why in deployment.owners("halted")),
            "all partitions are halted",
        )
    finally:
        fleet.stop()


def test_a_topic_deleted_meanwhile_is_told(apache_kafka: Kafka, deployment: Deployment) -> None:
    admin = AdminClient(deployment.properties)
    deployment.produce(traffic(deployment, 20))
    with deployment.worker(), capture_logs() as told:
        deployment.wait_until_counted()
        admin.delete_topics([deployment.topic])[deployment.topic].result(timeout=60)

        def reasons() -> list[str]:
            return [str(entry["error"]) for entry in told if entry["event"] == "waiting"]

        wait_until(lambda: any("is gone" in why for why in reasons()), "it is told")
        assert not any("no Kafka broker answers" in why for why in reasons())
        assert f"topic {deployment.topic!r} is gone" in reasons()[-1]


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
    taken, said = map(float, run([sys.executable, "-c", program]).split())
    assert 0.9 * said < taken <= 1.1 * said
    assert taken <= 24
