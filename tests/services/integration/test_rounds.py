"""Minimum and maximum through the whole service: rounds, answers, decisions, and who sees them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from aggregator.config.live_metrics import LiveMetrics
from aggregator.reading.plans import SearchPlan
from aggregator.reading.reader import Reader
from aggregator.rounds.coordinator import Coordinator
from aggregator.state.pane_keys import metric_key
from aggregator.storage.redis_keys import coordinator_key
from estimators import SearchMetric
from estimators.extremes import Decision
from producers.wire.batch import encode_batch
from tests.support.reports.searching import (
    DEVICES,
    FOUND,
    METRICS,
    ROUNDS,
    devices,
    forgetful_devices,
    told,
)
from tests.support.running.deployment import Deployment, as_json, wait_until
from tests.support.running.servers import Kafka


@pytest.fixture
def searching(apache_kafka: Kafka, redis_url: str, tmp_path: Path) -> Iterator[Deployment]:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    deployment = Deployment(apache_kafka, redis_url, file)
    deployment.settings.coordinate.lease = "2s"
    with deployment.store:
        yield deployment


def reader_of(deployment: Deployment) -> Reader:
    return Reader(deployment.store, deployment.metrics)


@contextlib.contextmanager
def coordinating(deployment: Deployment, coordinators: int = 1) -> Iterator[list[Coordinator]]:
    running = [Coordinator(deployment.settings, reader_of(deployment)) for _ in range(coordinators)]
    for coordinator in running:
        coordinator.start()
    try:
        yield running
    finally:
        for coordinator in running:
            coordinator.stop()


def wait_until_over(deployment: Deployment) -> None:
    reader = reader_of(deployment)
    wait_until(lambda: reader.estimate("longest").status == "final", "the search is over")


def assert_found(deployment: Deployment) -> None:
    """Check the answer, that no round was told or decided in two ways, and the sums."""
    found = reader_of(deployment).estimate("longest")
    assert (found.status, found.lower, found.upper) == ("final", FOUND[0], 64.0)
    rounds = told(deployment)
    assert {number: len(one) for number, one in rounds.items()} == dict.fromkeys(
        range(ROUNDS + 1), 1
    )
    assert deployment.verify().verified


def test_a_maximum_is_found_and_each_device_answers_once(
    searching: Deployment, tmp_path: Path
) -> None:
    metric, reader = SearchMetric.require(searching.metrics["longest"]), reader_of(searching)
    assert reader.estimate("longest").status == "not_ready"
    insistent = forgetful_devices(searching, metric, tmp_path, 5)
    with searching.worker(), coordinating(searching, 2):
        with insistent as given, devices(searching, metric):
            wait_until_over(searching)
        searching.wait_until_counted()
    assert given == [1] * 5
    assert searching.counts()["accepted:longest"] == DEVICES + 5
    assert_found(searching)
    shown: Any = as_json(searching.dither("estimate", "longest", "--json"))
    assert shown["search"]["bisection"] == list(FOUND)
    assert shown["search"]["threshold"] is None
    lines = searching.dither("estimate", "longest").stdout
    assert "certified  at least 44 minutes, with probability 99.9999%" in lines


def test_redis_that_is_emptied_goes_on_from_the_topic(searching: Deployment) -> None:
    metric, reader = SearchMetric.require(searching.metrics["longest"]), reader_of(searching)
    client: Any = searching.store.client

    def decided() -> int:
        asked = SearchPlan(reader.sums, metric).open_round(searching.store.registry.rounds())
        return 0 if asked is None else len(asked.decisions)

    with searching.worker(), coordinating(searching):
        with devices(searching, metric):
            wait_until(lambda: decided() >= 2, "two rounds are decided")
            client.flushdb()
            wait_until_over(searching)
        searching.wait_until_counted()
    assert_found(searching)


def test_what_is_decided_stays_whatever_comes_later_and_a_lost_topic_is_written_again(
    searching: Deployment,
) -> None:
    metric = SearchMetric.require(searching.metrics["longest"])
    with searching.worker(), coordinating(searching), devices(searching, metric):
        wait_until_over(searching)
    client: Any = searching.store.client
    key = f"{coordinator_key(searching.topic)}:stored"
    stored = client.hget(key, metric_key(metric.name, metric.revision))
    late = encode_batch(metric, [1] * 500, [0] * 500, 0, number=2)
    beyond = bytearray(encode_batch(metric, [1], [1], 0, number=4))
    beyond[-1] = ROUNDS + 1
    with searching.worker(), coordinating(searching):
        searching.produce([(0, late), (0, bytes(beyond))])
        searching.wait_until_counted()
    assert searching.counts()["bad_round:longest"] == 1
    assert client.hget(key, metric_key(metric.name, metric.revision)) == stored
    assert_found(searching)
    before = told(searching)[ROUNDS]
    searching.rounds = searching.settings.topics.rounds = f"{searching.rounds}-anew"
    with coordinating(searching):
        assert told(searching) == {ROUNDS: before}


def test_a_round_waits_for_answers_that_nobody_has_counted_yet(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS.replace("round_reports = 200", 'round_time = "1s"'))
    deployment = Deployment(apache_kafka, redis_url, file)
    metric, reader = SearchMetric.require(deployment.metrics["longest"]), reader_of(deployment)

    def decided() -> Sequence[Decision]:
        asked = SearchPlan(reader.sums, metric).open_round(deployment.store.registry.rounds())
        return () if asked is None else asked.progress.decisions

    def answers(number: int) -> bytes:
        return encode_batch(metric, [1] * number, [0] * number, 0, number=1)

    with deployment.store:
        with coordinating(deployment):
            wait_until(
                lambda: bool(deployment.store.registry.rounds()), "the first round is opened"
            )
        with deployment.worker():
            deployment.produce([(0, answers(200))])
            deployment.wait_until_counted()
            time.sleep(1.5)  # the round's time is over
            deployment.produce([(number, answers(1)) for number in range(deployment.partitions)])
            deployment.wait_until_counted()
        deployment.produce([(0, answers(300))])
        with coordinating(deployment):
            time.sleep(2.0)
            assert not decided()
            with deployment.worker():
                wait_until(lambda: bool(decided()), "the first round is decided")
        assert sum(decided()[0].answers) == 500 + deployment.partitions


def test_without_a_search_a_coordinator_waits_for_definitions_that_have_one(
    searching: Deployment,
) -> None:
    file = Path(searching.settings.metrics)
    with_searches = file.read_text()
    without = (
        '[metrics.delay]\nkind = "mean"\nmechanism = "laplace"\nrange = [0, 9]\nlevels = [1]\n'
    )
    file.write_text(without)
    metrics = LiveMetrics(file)
    coordinator = Coordinator(searching.settings, Reader(searching.store, metrics))
    with capture_logs() as logged:
        coordinator.start()
        wait_until(lambda: bool(logged), "it says that it waits")
        assert (coordinator.trouble(), searching.store.registry.coordinating()) == ("", False)
        file.write_text(with_searches)
        assert metrics.refresh()
        wait_until(lambda: bool(searching.store.registry.rounds()), "a round is open")
        file.write_text(without)
        assert metrics.refresh()
        wait_until(
            lambda: [line["event"] for line in logged].count("waiting") == 2, "it waits again"
        )
        assert not searching.store.registry.coordinating(), "it has left the lease"
        coordinator.stop()
    whys = {line["why"] for line in logged if line["event"] == "waiting"}
    assert whys == {"no metric is a minimum or maximum"}
    assert coordinator.trouble() == "its thread has ended"


def test_a_round_is_not_decided_on_answers_that_were_read_while_redis_was_emptied(
    searching: Deployment,
) -> None:
    metric, reader = SearchMetric.require(searching.metrics["longest"]), reader_of(searching)
    client: Any = searching.store.client
    searching.produce([(0, encode_batch(metric, [1] * 50, [0] * 50, 0, number=1))])
    with searching.worker():
        searching.wait_until_counted()
    coordinator = Coordinator(searching.settings, reader)
    before = searching.store.overview()
    assert coordinator._is_counted(before, metric)
    client.flushdb()
    assert not coordinator._is_counted(before, metric), (
        "the same positions, of a state that is gone"
    )
