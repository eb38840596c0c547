"""A worker that is frozen and woken up after its partitions have another owner changes no byte."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from aggregator.counting.measurements import Measurements
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Kafka

pytestmark = pytest.mark.more


def measured(deployment: Deployment) -> int:
    """Return how many messages are in the histogram of latencies, over all partitions."""
    owners = [deployment.store.owner(number) for number in deployment.store.partitions()]
    return sum(sum(Measurements.stored(owner).latencies.counts) for owner in owners)


@pytest.mark.timeout(300)
def test_a_worker_that_slept_past_its_session_cannot_change_the_sums(
    apache_kafka: Kafka, redis_url: str, metrics_file: Path
) -> None:
    deployment = Deployment(apache_kafka, redis_url, metrics_file)
    deployment.settings.aggregate.commit_interval = "5s"
    sleeper = deployment.start_worker()
    try:
        wait_until(lambda: all(deployment.owners("epoch")), "the sleeper owns all")
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
