"""Logs that lost what was counted: noticed by all the evidence there is, and halted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.kafka import launcher
from deploy.kafka.cluster import KafkaCluster
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.metrics import METRICS
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.servers import Kafka, missing


def cut(deployment: Deployment, before: dict[int, int]) -> None:
    """Delete the records of each partition before an offset."""
    admin = AdminClient({"bootstrap.servers": deployment.kafka.bootstrap_servers})
    places = [TopicPartition(deployment.topic, number, at) for number, at in before.items()]
    for done in admin.delete_records(places).values():
        done.result(timeout=PATIENCE)


def reasons(deployment: Deployment) -> list[str]:
    numbers = range(deployment.partitions)
    return [deployment.store.owner(number).get("halted", "") for number in numbers]


def positions(deployment: Deployment) -> dict[int, int]:
    numbers = range(deployment.partitions)
    return {number: int(deployment.store.owner(number)["next"]) for number in numbers}


def gaps(deployment: Deployment) -> dict[int, int]:
    numbers = range(deployment.partitions)
    return {number: int(deployment.store.owner(number).get("gap", 0)) for number in numbers}


def outcomes(deployment: Deployment) -> int:
    """Return how many reports have an outcome, whichever."""
    return sum(deployment.counts().values())


@pytest.mark.parametrize("running", [True, False], ids=["a running worker", "the group"])
def test_a_redis_that_was_emptied_halts_counting_where_the_logs_head_is_gone(
    apache_kafka: Kafka, deployment: Deployment, running: bool
) -> None:
    deployment.produce(traffic(deployment, 40))
    with deployment.worker():
        deployment.wait_until_counted()
        halves = {number: end // 2 for number, end in deployment.log_ends().items()}
        cut(deployment, halves)
        if running:
            deployment.store.client.flushdb()
            wait_until(lambda: all(reasons(deployment)), "all are halted")
    if not running:
        deployment.store.client.flushdb()
        with deployment.worker():
            wait_until(lambda: all(reasons(deployment)), "all are halted")
    for number, reason in enumerate(reasons(deployment)):
        assert f"{halves[number]} of its offsets are gone from the log" in reason
        assert "aggregate.on_gap=skip" in reason
    assert deployment.counts() == {}

    deployment.settings.aggregate.on_gap = "skip"
    with deployment.worker():
        deployment.wait_until_counted()
    assert reasons(deployment) == [""] * deployment.partitions
    assert gaps(deployment) == halves
    assert deployment.verify().verified


def test_a_redis_that_was_emptied_is_filled_again_from_a_log_that_has_all(
    apache_kafka: Kafka, deployment: Deployment
) -> None:
    deployment.produce(traffic(deployment, 20))
    cut(deployment, dict.fromkeys(range(deployment.partitions), 2))
    with deployment.worker():
        deployment.wait_until_counted()
        before = deployment.state()
        deployment.store.client.flushdb()
        wait_until(lambda: bool(deployment.store.partitions()), "they are taken again")
        deployment.wait_until_counted()
    assert deployment.state() == before
    with deployment.worker():
        deployment.wait_until_counted()
    assert deployment.state() == before


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, KafkaCluster]]:
    """A broker whose data a test may change."""
    if lacking := launcher.missing():
        missing("Apache Kafka", lacking)
    with KafkaCluster(tmp_path_factory.mktemp("broken"), brokers=1) as cluster:
        yield Kafka(cluster.bootstrap_servers, "apache", "for itself"), cluster


def restored(cluster: KafkaCluster, topic: str, saved: dict[Path, Path] | None) -> dict[Path, Path]:
    """Stop the broker, keep or bring back the folders of a topic, start it; return the copies."""
    cluster.kill(1)
    if saved is None:
        folders = [found for found in cluster.folder.rglob(f"{topic}-*") if found.is_dir()]
        saved = {one: one.parent.parent / f"saved-{one.name}" for one in folders}
        for folder, copy in saved.items():
            shutil.copytree(folder, copy)
    else:
        for folder, copy in saved.items():
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
    cluster.restart(1)
    return saved


@pytest.mark.parametrize("more", [10, 60], ids=["shorter", "longer"])
def test_a_log_that_was_truncated_while_nobody_counted_halts_and_can_be_skipped_exactly(
    own_kafka: tuple[Kafka, KafkaCluster], redis_url: str, tmp_path: Path, more: int
) -> None:
    kafka, cluster = own_kafka
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    deployment = Deployment(kafka, redis_url, file, partitions=2)
    with deployment.store:
        deployment.produce(traffic(deployment, 20))
        saved = restored(cluster, deployment.topic, None)
        forks = deployment.log_ends()
        deployment.produce(traffic(deployment, 20, seed=1))
        with deployment.worker():
            deployment.wait_until_counted()
        counted, before = deployment.log_ends(), outcomes(deployment)
        restored(cluster, deployment.topic, saved)
        assert deployment.log_ends() == forks
        new = traffic(deployment, more, seed=2)
        deployment.produce(new)
        ends = deployment.log_ends()
        assert all((ends[n] > counted[n]) == (more > 20) for n in ends)
        with deployment.worker():
            wait_until(lambda: all(reasons(deployment)), "both are halted")
        assert all(re.search("truncated", reason) for reason in reasons(deployment))
        assert outcomes(deployment) == before

        deployment.settings.aggregate.on_gap = "skip"
        with deployment.worker():
            wait_until(lambda: positions(deployment) == ends, "the new log is counted to its end")
        assert gaps(deployment) == {n: counted[n] - forks[n] for n in forks}
        assert outcomes(deployment) == before + sum(
            len(ReportBatch.FromString(payload).levels) for _, payload in new
        )
        with deployment.worker():
            deployment.wait_until_counted()
        assert reasons(deployment) == ["", ""]


@pytest.mark.parametrize("more", [10, 60], ids=["shorter", "longer"])
def test_a_log_that_is_truncated_under_a_running_worker_halts(
    own_kafka: tuple[Kafka, KafkaCluster], redis_url: str, tmp_path: Path, more: int
) -> None:
    kafka, cluster = own_kafka
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    deployment = Deployment(kafka, redis_url, file, partitions=2)
    with deployment.store:
        deployment.produce(traffic(deployment, 20))
        saved = restored(cluster, deployment.topic, None)
        forks = deployment.log_ends()
        deployment.produce(traffic(deployment, 20, seed=1))
        with deployment.worker():
            deployment.wait_until_counted()
            counted, before = deployment.log_ends(), outcomes(deployment)
            restored(cluster, deployment.topic, saved)
            new = traffic(deployment, more, seed=2)
            deployment.produce(new)
            wait_until(lambda: all(reasons(deployment)), "both are halted")
        assert all(re.search("truncated", reason) for reason in reasons(deployment))
        assert outcomes(deployment) == before

        deployment.settings.aggregate.on_gap = "skip"
        ends = deployment.log_ends()
        with deployment.worker():
            wait_until(lambda: positions(deployment) == ends, "the new log is counted to its end")
        assert gaps(deployment) == {n: counted[n] - forks[n] for n in forks}
        assert outcomes(deployment) == before + sum(
            len(ReportBatch.FromString(payload).levels) for _, payload in new
        )
