"""Offsets that belong to no report: markers of transactions, and what was aborted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Producer

from aggregator.dead_letters.reader import DeadLetterTopic
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.servers import Kafka

Messages = Sequence[tuple[int, bytes | None]]


@pytest.fixture
def transactional(apache_kafka: Kafka, deployment: Deployment) -> Iterator[Producer]:
    producer = Producer(
        {"bootstrap.servers": apache_kafka.bootstrap_servers, "transactional.id": deployment.topic}
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


def test_nothing_waits_behind_markers_and_what_was_aborted_also_where_the_log_was_emptied(
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


def test_an_open_transaction_holds_what_comes_after_it_until_it_is_over(
    deployment: Deployment, transactional: Producer
) -> None:
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
