"""Logs that lost what was counted halt; offsets of transactions hold nothing up."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from aggregator.dead_letters.reader import DeadLetterTopic
from deploy.kafka.cluster import KafkaCluster
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.traffic import traffic
from tests.support.rows import row
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.servers import Kafka


def gaps(deployment: Deployment) -> dict[int, int]:
    return {number: int(gap or 0) for number, gap in enumerate(deployment.owners("gap"))}


def wait_until_halted(deployment: Deployment) -> None:
    wait_until(lambda: all(deployment.owners("halted")), "all are halted")


@pytest.mark.usefixtures("apache_kafka")
def test_an_emptied_or_older_redis_is_filled_from_the_log_or_halts(deployment: Deployment) -> None:
    """With a running worker, and with one that comes later."""
    deployment.produce(traffic(deployment, 40))
    deployment.cut(dict.fromkeys(range(deployment.partitions), 2))
    with deployment.worker():
        deployment.wait_until_counted()
        before = deployment.state()
        deployment.store.client.flushdb()
        wait_until(lambda: deployment.state() == before, "all is counted again")
        client: Any = deployment.store.client
        older = [(key, client.dump(key)) for key in client.scan_iter()]
        deployment.produce(traffic(deployment, 30, seed=1))
        deployment.wait_until_counted()
        before = deployment.state()
        with client.pipeline() as restored:  # at once: the worker must not find it half-way
            restored.flushdb()
            for key, value in older:
                restored.restore(key, 0, value)
            restored.execute()
        wait_until(lambda: deployment.state() == before, "it has counted on")
        halves = {number: end // 2 for number, end in deployment.log_ends().items()}
        deployment.cut(halves)
        deployment.store.client.flushdb()
        wait_until_halted(deployment)
    deployment.store.client.flushdb()
    with deployment.worker():
        wait_until_halted(deployment)
    for number, reason in enumerate(deployment.owners("halted")):
        assert f"{halves[number] - 2} of its offsets are gone from the log" in reason
        assert "aggregate.on_gap=skip" in reason
    assert deployment.counts() == {}

    deployment.settings.aggregate.on_gap = "skip"
    deployment.count()
    assert not any(deployment.owners("halted"))
    assert gaps(deployment) == {number: half - 2 for number, half in halves.items()}
    assert deployment.verify().verified


def copied(cluster: KafkaCluster, topics: Iterable[str]) -> dict[Path, Path]:
    """Copy the folders of topics to which nobody writes; return where the copies are."""
    folders = [
        one for topic in topics for one in cluster.folder.rglob(f"{topic}-*") if one.is_dir()
    ]
    copies = {one: one.parent.parent / f"saved-{one.name}" for one in folders}
    for folder, copy in copies.items():
        shutil.copytree(folder, copy)
    return copies


def restore(cluster: KafkaCluster, copies: dict[Path, Path]) -> None:
    """Bring the folders of topics back as they were copied, under a broker that is stopped."""
    cluster.kill(1)
    for folder, copy in copies.items():
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
    cluster.restart(1)


def outcomes(deployment: Deployment) -> int:
    """Return how many reports have an outcome, whichever."""
    return sum(deployment.counts().values())


@pytest.mark.more
def test_truncated_logs_halt(own_kafka: KafkaCluster, redis_url: str, metrics_file: Path) -> None:
    """Under a running worker and while nobody counts, with fewer and with more new batches."""
    kafka = Kafka(own_kafka.bootstrap_servers, "apache", "for itself")
    cases = [(running, more) for running in (True, False) for more in (10, 60)]
    logs = {case: Deployment(kafka, redis_url, metrics_file, 2) for case in cases}
    with ExitStack() as stack:
        for deployment in logs.values():
            stack.enter_context(deployment.store)
            deployment.produce(traffic(deployment, 20))
        saved = copied(own_kafka, [deployment.topic for deployment in logs.values()])
        forks = {case: deployment.log_ends() for case, deployment in logs.items()}
        workers = stack.enter_context(ExitStack())
        for (running, _), deployment in logs.items():
            deployment.produce(traffic(deployment, 20, seed=1))
            if running:
                workers.enter_context(deployment.worker())
                deployment.wait_until_counted()
            else:
                deployment.count()
        counted = {case: deployment.log_ends() for case, deployment in logs.items()}
        before = {case: outcomes(deployment) for case, deployment in logs.items()}
        restore(own_kafka, saved)
        for case, deployment in logs.items():
            running, more = case
            assert deployment.log_ends() == forks[case]
            new = traffic(deployment, more, seed=2)
            deployment.produce(new)
            ends = deployment.log_ends()
            assert all((ends[n] > counted[case][n]) == (more > 20) for n in ends)
            if not running:
                workers.enter_context(deployment.worker())
        for deployment in logs.values():
            wait_until_halted(deployment)
        workers.close()
        for case, deployment in logs.items():
            with row(*case):
                assert all("truncated" in reason for reason in deployment.owners("halted"))
                assert outcomes(deployment) == before[case]
                new = traffic(deployment, case[1], seed=2)
                reports = sum(len(ReportBatch.FromString(one).levels) for _, one in new)
                deployment.settings.aggregate.on_gap = "skip"
                told = [str(end) for end in deployment.log_ends().values()]
                with deployment.worker():
                    wait_until(lambda d=deployment, told=told: d.owners("next") == told, "its end")  # type: ignore[misc]
                lost = {number: counted[case][number] - at for number, at in forks[case].items()}
                assert gaps(deployment) == lost
                assert outcomes(deployment) == before[case] + reports
                deployment.count()
                assert deployment.owners("halted") == ["", ""]


Messages = Sequence[tuple[int, bytes | None]]


@pytest.fixture
def transactional(apache_kafka: Kafka, deployment: Deployment) -> Iterator[Producer]:
    producer = Producer(
        {
            **deployment.properties,
            "transactional.id": deployment.topic,
            "transaction.timeout.ms": 300_000,  # else Kafka ends it after a minute
        }
    )
    producer.init_transactions(PATIENCE)
    yield producer
    producer.close()


def send(producer: Producer, topic: str, messages: Messages, *, commit: bool) -> None:
    producer.begin_transaction()
    for partition, payload in messages:
        producer.produce(topic, payload, partition=partition)
    producer.flush(PATIENCE)
    if commit:
        producer.commit_transaction(PATIENCE)
    else:
        producer.abort_transaction(PATIENCE)


@pytest.mark.more
def test_nothing_waits_behind_markers(deployment: Deployment, transactional: Producer) -> None:
    messages = traffic(deployment, 40)
    send(transactional, deployment.topic, messages, commit=True)
    with deployment.worker():
        deployment.wait_until_counted()
        send(transactional, deployment.topic, messages, commit=False)
        deployment.wait_until_counted()
        send(transactional, deployment.topic, traffic(deployment, 20, seed=1), commit=True)
        deployment.wait_until_counted()
    send(transactional, deployment.topic, messages, commit=False)
    deployment.count()
    ends = deployment.log_ends()
    expected = [str(end) for end in ends.values()]
    assert deployment.owners("next") == deployment.owners("high") == expected
    verification = deployment.verify()
    assert verification.verified, verification.differences
    assert verification.messages == 180
    deployment.cut(ends)
    deployment.count(traffic(deployment, 20, seed=2))
    assert not any(deployment.owners("halted"))


def is_refused(deployment: Deployment) -> bool:
    with DeadLetterTopic(deployment.settings) as letters:
        return [letter.value for letter in letters.letters()] == [b"refused"]


def test_who_follows_a_transaction_waits(deployment: Deployment, transactional: Producer) -> None:
    deployment.produce(traffic(deployment, 20))
    transactional.begin_transaction()
    transactional.produce(deployment.topic, b"", partition=0)
    transactional.produce(deployment.deadletters, b"")
    transactional.flush(PATIENCE)
    deployment.produce([*traffic(deployment, 20, seed=1), (1, b"refused")])

    def waits() -> bool:
        owner = deployment.store.owner(0)
        return 0 <= int(owner.get("next", 0)) < int(owner.get("high", 0))

    with deployment.worker():
        wait_until(waits, "the partition is behind")
        wait_until(lambda: is_refused(deployment), "the letter is behind a transaction, too")
        verification = deployment.verify()
        assert verification.verified, verification.differences
        assert 0 in verification.uncounted
        transactional.abort_transaction(PATIENCE)
        deployment.wait_until_counted()
