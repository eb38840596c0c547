"""Asking Kafka for the ends of partitions, whatever a client takes the leader for."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer, TopicPartition

from aggregator.config.settings import Settings
from aggregator.kafka import clients
from aggregator.kafka.log_ends import NO_LEADER, KafkaLog


class Client:
    """A client that answers with an offset or fails."""

    def __init__(self, offset: int, fault: KafkaError | None = None) -> None:
        self.offset, self.fault, self.leaders = offset, fault, {0: 1, 1: 1}

    def list_topics(self, **_: Any) -> Any:
        partitions = {n: SimpleNamespace(leader=leader) for n, leader in self.leaders.items()}
        reports = SimpleNamespace(error=None, partitions=partitions)
        return SimpleNamespace(topics={"dither.reports": reports})

    def list_offsets(self, wanted: Mapping[TopicPartition, Any], **_: Any) -> dict[Any, Any]:
        found: dict[Any, Future[Any]] = {place: Future() for place in wanted}
        for place, answer in found.items():
            assert self.leaders[place.partition] != NO_LEADER
            if self.fault is not None:
                answer.set_exception(KafkaException(self.fault))
            else:
                answer.set_result(TopicPartition("reports", place.partition, self.offset))
        return found


@pytest.mark.more
@pytest.mark.parametrize("rtt_ms", [90, 300])
def test_a_broker_that_is_far_away_is_asked_with_patience(rtt_ms: int) -> None:
    """Scrapes that are far apart have a value each."""
    properties = {"test.mock.num.brokers": 1, "test.mock.broker.rtt": rtt_ms}
    broker = Producer(properties, logger=clients.LIBRDKAFKA_LOG)
    (found,) = broker.list_topics(timeout=30).brokers.values()
    settings = Settings(kafka={"bootstrap.servers": f"127.0.0.1:{found.port}"})
    broker.produce(settings.topics.reports, b"", partition=0)
    assert broker.flush(30) == 0
    now = [0.0]
    log = KafkaLog(settings, lambda: time.monotonic() + now[0])
    for _ in range(3):
        ends = log()
        assert (ends.unknown, ends.lag(0, 0)) == ("", 1)
        now[0] += 7.0
    broker.close()


def test_a_client_without_an_answer_gives_way_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knew the leader before a broker was replaced, or its query timed out."""
    made = [
        Client(7, KafkaError(KafkaError.FENCED_LEADER_EPOCH)),
        Client(OFFSET_INVALID),
        Client(7),
    ]
    monkeypatch.setattr(KafkaLog, "_connected", lambda _: made.pop(0))
    log = KafkaLog(Settings())
    looks = [log.ask().ends(2) for _ in range(4)]
    assert looks == [{0: None, 1: None}] * 2 + [{0: 7, 1: 7}] * 2


def test_a_partition_that_no_broker_leads_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(7)
    monkeypatch.setattr(KafkaLog, "_connected", lambda _: client)
    log = KafkaLog(Settings())
    answers = {}
    for leader in (NO_LEADER, 1):
        client.leaders[1] = leader
        ends = log.ask()
        answers[leader] = ends.ends(2), ends.unknown
    assert answers == {
        NO_LEADER: ({0: 7, 1: None}, "no broker leads partition 1"),
        1: ({0: 7, 1: 7}, ""),
    }
