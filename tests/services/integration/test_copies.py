"""The same batch again: once in each partition, and honest senders stay in one."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, as_json


def places(deployment: Deployment, messages: list[tuple[bytes, bytes]]) -> list[int]:
    """Send keys and payloads as reporters and the gateway do; return their partitions."""
    found: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        found.append(message.partition())

    producer = Producer({"bootstrap.servers": deployment.kafka.bootstrap_servers})
    for key, payload in messages:
        producer.produce(deployment.topic, payload, key=key, on_delivery=delivered)
        assert producer.flush(30) == 0
    producer.close()
    return found


def test_a_copy_counts_once_in_each_partition_that_somebody_chooses_for_it(
    deployment: Deployment,
) -> None:
    payload = batch(deployment.metrics["delay"], [1.0] * 7, seed=1).SerializeToString()
    everywhere = [(number, payload) for number in range(deployment.partitions)]
    deployment.produce(everywhere * 5)
    with deployment.worker():
        deployment.wait_until_counted()
    copies = 7 * deployment.partitions
    assert deployment.counts() == {"accepted:delay": copies, "duplicate:delay": 4 * copies}
    assert deployment.verify().verified


def test_an_honest_retry_and_a_replayed_dead_letter_stay_in_their_partition(
    deployment: Deployment,
) -> None:
    delay = deployment.metrics["delay"]
    sent = [batch(delay, [1.0], seed=seed) for seed in range(20)]
    messages = [(one.batch_id, one.SerializeToString()) for one in sent]
    old = batch(delay, [1.0], time_ms=EPOCH - 1, seed=99)
    first = places(deployment, [*messages, (old.batch_id, old.SerializeToString())])
    deployment.settings.aggregate.past = "1d"
    with deployment.worker():
        deployment.wait_until_counted()
    assert deployment.counts() == {"too_old:delay": 21}
    deployment.settings.aggregate.past = "36500d"
    assert as_json(deployment.dither("deadletters", "replay", "--json"))["sent"] == 21
    assert places(deployment, messages) == first[:20], "a retry has the same key"
    with deployment.worker():
        deployment.wait_until_counted()
    found = deployment.counts()
    assert (found["accepted:delay"], found["duplicate:delay"]) == (21, 20)
