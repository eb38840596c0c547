"""Minimum and maximum through the whole service: rounds, answers, decisions, and who sees them."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aggregator.coordinator import Coordinator
from aggregator.keys import coordinator_key, metric_key
from aggregator.reader import Reader
from estimators import Metric
from estimators.randomness import SeededBits
from producers import Ledger, Reporter, Rounds
from producers.batch import encode_batch
from tests.integration.deployment import Deployment, wait_until
from tests.servers import Kafka

METRICS = """
[metrics.longest]
kind = "maximum"
range = [0, 64]
levels = [2, 8]
rounds = 4
round_reports = 200
unit = "minutes"

[metrics.delay]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [1]
"""
DEVICES = 1_000
VALUES = np.linspace(5, 45, DEVICES)


@pytest.fixture
def searching(kafka: Kafka, redis_url: str, tmp_path: Path) -> Iterator[Deployment]:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    deployment = Deployment(kafka, redis_url, file)
    deployment.settings.coordinate.lease = "1s"
    if not kafka.is_real:
        deployment.kafka.partitions(kafka.topic(1))
    with deployment.store:
        yield deployment


def reader_of(deployment: Deployment) -> Reader:
    return Reader(deployment.store, deployment.metrics)


@contextlib.contextmanager
def coordinating(deployment: Deployment) -> Iterator[Coordinator]:
    settings = copy.deepcopy(deployment.settings)
    coordinator = Coordinator(settings, reader_of(deployment))
    coordinator.start()
    try:
        yield coordinator
    finally:
        coordinator.stop()


def properties(deployment: Deployment) -> dict[str, str]:
    return {"bootstrap.servers": deployment.kafka.bootstrap_servers}


@contextlib.contextmanager
def devices(deployment: Deployment, metric: Metric) -> Iterator[threading.Thread]:
    """Let a thousand devices answer, each the round that it drew for itself."""
    level = np.arange(DEVICES) % len(metric.levels)
    epsilons = np.array(metric.levels)[level]
    own = 1 + metric.search.own_round(DEVICES, SeededBits(5))

    def answer() -> None:
        config = properties(deployment)
        with (
            Reporter(metric, config, topic=deployment.topic, batch_reports=50) as reporter,
            Rounds(config, deployment.rounds) as rounds,
        ):
            for asked in rounds.follow(metric, timeout=60):
                mine = own == asked.number
                reporter.answer(asked, VALUES[mine], epsilons[mine])
                reporter.flush()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(90)
        assert not thread.is_alive()


def test_a_maximum_is_found_round_by_round(searching: Deployment) -> None:
    metric, reader = searching.metrics["longest"], reader_of(searching)
    assert reader.estimate("longest").status == "not_ready"
    with searching.worker(), coordinating(searching), devices(searching, metric):
        wait_until(lambda: reader.estimate("longest").status == "final", "the search is over", 60)
    found = reader.estimate("longest")
    assert found.lower == 44.0
    assert found.upper == 64.0
    assert searching.verify().verified
