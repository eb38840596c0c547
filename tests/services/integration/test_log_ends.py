"""How much waits in Kafka, asked of Kafka: also while nobody counts, and never guessed."""

from __future__ import annotations

import time

import pytest

from aggregator.config.settings import Settings
from aggregator.kafka.log_ends import FRESH_SECONDS, NO_ANSWER, UNSEEN, KafkaLog, LogEnds
from aggregator.reading.status import Rates, status
from tests.support.running.deployment import Deployment, wait_until

NOWHERE = "127.0.0.1:9"


def lags(deployment: Deployment, ends: LogEnds) -> dict[int, int | None]:
    found = status(deployment.store.overview(), deployment.metrics, Rates(), ends)
    return {one.partition: one.lag for one in found.partitions}


def test_what_waits_is_told_while_nobody_counts(deployment: Deployment) -> None:
    log = KafkaLog(deployment.settings)
    deployment.produce([(0, b"one"), (0, b"two"), (1, b"three")])
    none = dict.fromkeys(range(deployment.partitions), 0)
    ends = log.ask()
    assert ends.unknown == ""
    assert lags(deployment, ends) == {**none, 0: 2, 1: 1}, "also where nobody ever counted"
    with deployment.worker():
        deployment.wait_until_counted()
    assert lags(deployment, log.ask()) == none
    deployment.produce([(0, b"four")] * 5)
    assert lags(deployment, log.ask()) == {**none, 0: 5}, "all workers are gone"


def test_an_answer_is_kept_for_a_second_and_renewed_beside_whoever_asks(
    deployment: Deployment,
) -> None:
    now = [100.0]
    log = KafkaLog(deployment.settings, clock=lambda: now[0])
    wait_until(lambda: log().unknown == "", "it has answered")
    deployment.produce([(0, b"x")])
    high = log().ranges[0][1]
    now[0] += FRESH_SECONDS
    wait_until(lambda: log().ranges[0][1] == high + 1, "it was asked again")


@pytest.mark.parametrize(
    ("topic", "servers", "why"), [("nowhere", "", UNSEEN), ("reports", NOWHERE, NO_ANSWER)]
)
def test_what_is_not_known_says_why_and_holds_up_nobody(
    deployment: Deployment, topic: str, servers: str, why: str
) -> None:
    settings = Settings(kafka=dict(deployment.settings.kafka))
    settings.topics.reports = topic
    if servers:
        settings.kafka["bootstrap.servers"] = servers
    log = KafkaLog(settings)
    wait_until(lambda: log().unknown == why, "it is known that it is not known")
    began = time.monotonic()
    for _ in range(20):
        assert log().ranges == {}
    assert time.monotonic() - began < 1.0
    other = KafkaLog(deployment.settings)
    if deployment.kafka.is_real:
        listed = other._connected().list_topics(timeout=10).topics
        assert "nowhere" not in listed, "asking creates no topic"
