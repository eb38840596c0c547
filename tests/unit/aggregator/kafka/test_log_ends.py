"""Asking Kafka for the ends of partitions, whatever a client takes the leader for."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from aggregator.config.settings import Settings
from aggregator.kafka.log_ends import KafkaLog


class Client:
    """A client; one that knew the leader before a broker was replaced never asks again."""

    def __init__(self, *, is_outdated: bool) -> None:
        self.is_outdated = is_outdated

    def list_topics(self, **_: Any) -> Any:
        reports = SimpleNamespace(error=None, partitions={0: None, 1: None})
        return SimpleNamespace(topics={"dither.reports": reports})

    def list_offsets(self, wanted: Mapping[TopicPartition, Any], **_: Any) -> dict[Any, Any]:
        found: dict[Any, Future[Any]] = {place: Future() for place in wanted}
        for place, answer in found.items():
            if self.is_outdated:
                answer.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
            else:
                answer.set_result(TopicPartition("reports", place.partition, 7))
        return found


def test_a_client_that_is_refused_gives_way_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [Client(is_outdated=True), Client(is_outdated=False)]
    monkeypatch.setattr(KafkaLog, "_connected", lambda _: clients.pop(0))
    log = KafkaLog(Settings())
    looks = [log.ask().ends(2) for _ in range(3)]
    assert looks == [{0: None, 1: None}, {0: 7, 1: 7}, {0: 7, 1: 7}]
