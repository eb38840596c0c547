"""Logs that lost what was counted: noticed by all the evidence there is, and halted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
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


@pytest.fixture
def both(
    own_kafka: tuple[Kafka, KafkaCluster], redis_url: str, tmp_path: Path
) -> Iterator[dict[int, Deployment]]:
    """Deployments by the batches that come after a cut: fewer than it takes away, and more."""
    kafka, _ = own_kafka
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    with ExitStack() as stack:
        found = {more: Deployment(kafka, redis_url, file, partitions=2) for more in (10, 60)}
        for deployment in found.values():
            stack.enter_context(deployment.store)
        yield found


Saved = dict[Path, Path]


def restored(
    cluster: KafkaCluster, deployments: Iterable[Deployment], saved: Saved | None
) -> Saved:
    """Stop the broker, keep or bring back the folders of topics, start it; return the copies."""
    cluster.kill(1)
    if saved is None:
        topics = [deployment.topic for deployment in deployments]
        places = [found for topic in topics for found in cluster.folder.rglob(f"{topic}-*")]
        folders = [found for found in places if found.is_dir()]
        saved = {one: one.parent.parent / f"saved-{one.name}" for one in folders}
        for folder, copy in saved.items():
            shutil.copytree(folder, copy)
    else:
        for folder, copy in saved.items():
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
    cluster.restart(1)
    return saved


def reports_of(written: Iterable[tuple[int, bytes]]) -> int:
    return sum(len(ReportBatch.FromString(payload).levels) for _, payload in written)


def test_logs_that_were_truncated_while_nobody_counted_halt_and_can_be_skipped_exactly(
    own_kafka: tuple[Kafka, KafkaCluster], both: dict[int, Deployment]
) -> None:
    _, cluster = own_kafka
    for deployment in both.values():
        deployment.produce(traffic(deployment, 20))
    saved = restored(cluster, both.values(), None)
    forks = {more: deployment.log_ends() for more, deployment in both.items()}
    for deployment in both.values():
        deployment.produce(traffic(deployment, 20, seed=1))
        with deployment.worker():
            deployment.wait_until_counted()
    ends_counted = {more: deployment.log_ends() for more, deployment in both.items()}
    restored(cluster, both.values(), saved)
    for more, deployment in both.items():
        fork, counted, before = forks[more], ends_counted[more], outcomes(deployment)
        assert deployment.log_ends() == fork
        new = traffic(deployment, more, seed=2)
        deployment.produce(new)
        ends = deployment.log_ends()
        assert all((ends[n] > counted[n]) == (more > 20) for n in ends)
        with deployment.worker():
            halted(deployment)
        assert all(re.search("truncated", reason) for reason in reasons(deployment))
        assert outcomes(deployment) == before

        deployment.settings.aggregate.on_gap = "skip"
        skipped_to(deployment, ends)
        assert gaps(deployment) == {n: counted[n] - fork[n] for n in fork}
        assert outcomes(deployment) == before + reports_of(new)
        with deployment.worker():
            deployment.wait_until_counted()
        assert reasons(deployment) == ["", ""]


def test_logs_that_are_truncated_under_running_workers_halt(
    own_kafka: tuple[Kafka, KafkaCluster], both: dict[int, Deployment]
) -> None:
    _, cluster = own_kafka
    for deployment in both.values():
        deployment.produce(traffic(deployment, 20))
    saved = restored(cluster, both.values(), None)
    forks = {more: deployment.log_ends() for more, deployment in both.items()}
    for deployment in both.values():
        deployment.produce(traffic(deployment, 20, seed=1))
    with ExitStack() as workers:
        for deployment in both.values():
            workers.enter_context(deployment.worker())
            deployment.wait_until_counted()
        ends_counted = {more: deployment.log_ends() for more, deployment in both.items()}
        before = {more: outcomes(deployment) for more, deployment in both.items()}
        restored(cluster, both.values(), saved)
        new = {more: traffic(deployment, more, seed=2) for more, deployment in both.items()}
        for more, deployment in both.items():
            deployment.produce(new[more])
        for deployment in both.values():
            halted(deployment)
    for more, deployment in both.items():
        fork, counted = forks[more], ends_counted[more]
        assert all(re.search("truncated", reason) for reason in reasons(deployment))
        assert outcomes(deployment) == before[more]

        deployment.settings.aggregate.on_gap = "skip"
        skipped_to(deployment, deployment.log_ends())
        assert gaps(deployment) == {n: counted[n] - fork[n] for n in fork}
        assert outcomes(deployment) == before[more] + reports_of(new[more])


def halted(deployment: Deployment) -> None:
    wait_until(lambda: all(reasons(deployment)), "both are halted")


def skipped_to(deployment: Deployment, ends: dict[int, int]) -> None:
    with deployment.worker():
        wait_until(lambda: positions(deployment) == ends, "the new log is counted to its end")
