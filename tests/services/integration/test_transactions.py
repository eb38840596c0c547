"""Offsets that belong to no report: markers of transactions, and what was aborted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.reports.traffic import traffic
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.servers import Kafka

Messages = Sequence[tuple[int, bytes | None]]


@pytest.fixture
def transactional(apache_kafka: Kafka, deployment: Deployment) -> Iterator[Producer]:
    producer = Producer(
        {
            "bootstrap.servers": apache_kafka.bootstrap_servers,
            "transactional.id": deployment.topic,
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


def test_nothing_waits_behind_the_markers_at_the_end_of_a_log(
    deployment: Deployment, transactional: Producer
) -> None:
    messages = traffic(deployment, 40)
    send(transactional, deployment.topic, messages, commit=True)
    with deployment.worker():
        deployment.wait_until_counted()
        send(transactional, deployment.topic, messages, commit=False)
        deployment.wait_until_counted()
        send(transactional, deployment.topic, traffic(deployment, 20, seed=1), commit=True)
        deployment.wait_until_counted()
    send(transactional, deployment.topic, messages, commit=False)
    with deployment.worker():
        deployment.wait_until_counted()
    ends = deployment.log_ends()
    for number in range(deployment.partitions):
        owner = deployment.store.owner(number)
        assert int(owner["next"]) == int(owner["high"]) == ends[number]
    verification = deployment.verify()
    assert verification.verified, verification.differences
    assert verification.messages == 180


def test_a_log_that_ended_in_an_aborted_transaction_and_was_emptied_goes_on(
    apache_kafka: Kafka, deployment: Deployment, transactional: Producer
) -> None:
    send(transactional, deployment.topic, traffic(deployment, 40), commit=True)
    send(transactional, deployment.topic, traffic(deployment, 40, seed=1), commit=False)
    with deployment.worker():
        deployment.wait_until_counted()
    ends = deployment.log_ends()
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap_servers})
    emptied = [TopicPartition(deployment.topic, number, end) for number, end in ends.items()]
    for done in admin.delete_records(emptied).values():
        done.result(timeout=PATIENCE)
    deployment.produce(traffic(deployment, 20, seed=2))
    with deployment.worker() as worker:
        deployment.wait_until_counted()
        assert not any(owned.halted for owned in worker.owned.values())


def test_an_open_transaction_holds_what_comes_after_it_until_it_is_over(
    deployment: Deployment, transactional: Producer
) -> None:
    deployment.produce(traffic(deployment, 20))
    transactional.begin_transaction()
    transactional.produce(deployment.topic, b"", partition=0)
    transactional.flush(PATIENCE)
    deployment.produce(traffic(deployment, 20, seed=1))

    def waits() -> bool:
        owner = deployment.store.owner(0)
        return 0 <= int(owner.get("next", 0)) < int(owner.get("high", 0))

    with deployment.worker():
        wait_until(waits, "the partition is behind")
        transactional.abort_transaction(PATIENCE)
        deployment.wait_until_counted()
