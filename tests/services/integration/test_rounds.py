"""Minimum and maximum through the whole service: rounds, answers, decisions, and who sees them."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from aggregator.config.live_metrics import LiveMetrics
from aggregator.features.reader import Reader
from aggregator.features.rounds.coordinator import Coordinator
from aggregator.features.rounds.plan import SearchPlan
from aggregator.state.pane_keys import metric_key
from aggregator.storage.redis_keys import coordinator_key
from aggregator.storage.store import Store
from estimators import SearchMetric
from producers.wire.batch import encode_batch
from tests.support.events import coordinating
from tests.support.reports.searching import (
    DEVICES,
    FOUND,
    METRICS,
    ROUNDS,
    assert_found,
    devices,
    told,
)
from tests.support.running.deployment import Deployment, as_json, wait_until
from tests.support.running.servers import Kafka


@pytest.fixture
def searching(apache_kafka: Kafka, defined: Callable[..., Deployment]) -> Deployment:
    return defined(METRICS)


def wait_until_over(deployment: Deployment) -> None:
    reader = deployment.reader()
    wait_until(lambda: reader.estimate("longest").status == "final", "the search is over")


def test_a_maximum_is_found_by_single_answers(searching: Deployment, tmp_path: Path) -> None:
    metric, reader = SearchMetric.require(searching.metrics["longest"]), searching.reader()
    assert reader.estimate("longest").status == "not_ready"
    ledgers = [tmp_path / str(number) for number in range(5)]
    with searching.worker(), coordinating(searching, 2):
        with devices(searching, metric, ledgers) as given:
            wait_until_over(searching)
        searching.wait_until_counted()
    assert given == dict.fromkeys(ledgers, 1)
    assert searching.counts()["accepted:longest"] == DEVICES + 5
    assert_found(searching)
    shown: Any = as_json(searching.dither("estimate", "longest", "--json"))
    assert shown["search"]["bisection"] == list(FOUND)
    assert shown["search"]["threshold"] is None
    listed: Any = as_json(searching.dither("metrics", "--json"))
    assert {row["event_time"] for row in listed if row["metric"] == "longest"} == {None}
    lines = searching.dither("estimate", "longest").stdout
    assert "certified  at least 44 minutes, with probability 99.9999%" in lines

    client: Any = searching.store.client
    key = f"{coordinator_key(searching.topic)}:stored"
    stored = client.hget(key, metric_key(metric.name, metric.revision))
    late = encode_batch(metric, [1] * 500, [0] * 500, 0, number=2)
    beyond = bytearray(encode_batch(metric, [1], [1], 0, number=4))
    beyond[-1] = ROUNDS + 1
    with coordinating(searching):
        searching.count([(0, late), (0, bytes(beyond))])
    assert searching.counts()["bad_round:longest"] == 1
    assert client.hget(key, metric_key(metric.name, metric.revision)) == stored
    assert_found(searching)
    elsewhere = copy.deepcopy(searching.settings)
    elsewhere.topics.reports = f"{searching.topic}-elsewhere"
    store = Store(searching.store.client, elsewhere.topics.reports)
    other = Coordinator(elsewhere, Reader(store, searching.metrics))
    other.start()
    wait_until(lambda: f"from '/dither/{searching.topic}'" in other.failing, "it refuses")
    other.stop()
    assert not store.registry.rounds(), "another deployment's search is not its own"
    before = told(searching)[ROUNDS]
    searching.rounds = searching.settings.topics.rounds = f"{searching.rounds}-anew"
    with coordinating(searching):
        assert told(searching) == {ROUNDS: before}, "a lost topic is written again"


@pytest.mark.more
def test_redis_that_is_emptied_goes_on_from_the_topic(searching: Deployment) -> None:
    metric, reader = SearchMetric.require(searching.metrics["longest"]), searching.reader()
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


def test_without_a_search_a_coordinator_waits_for_a_definition(searching: Deployment) -> None:
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
        assert (coordinator.trouble(), searching.store.registry.leaders()[1]) == ("", False)
        file.write_text(with_searches)
        assert metrics.refresh()
        wait_until(lambda: bool(searching.store.registry.rounds()), "a round is open")
        file.write_text(without)
        assert metrics.refresh()
        wait_until(
            lambda: [line["event"] for line in logged].count("waiting") == 2, "it waits again"
        )
        assert not searching.store.registry.leaders()[1], "it has left the lease"
        coordinator.stop()
        wait_until(lambda: coordinator.trouble() == "its thread has ended", "it tells of its end")
    whys = {line["why"] for line in logged if line["event"] == "waiting"}
    assert whys == {"no metric is a minimum or maximum"}
