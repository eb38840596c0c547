"""Questions about a log, through a client that finds no broker any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from aggregator.config.settings import Settings
from aggregator.counting.log_inspector import LogInspector
from aggregator.errors import BrokerUnreachable
from aggregator.kafka import clients
from aggregator.kafka.renewed_consumer import RenewedConsumer
from aggregator.local.embedded import EmbeddedBroker


@pytest.fixture
def lost_then_well() -> Iterator[RenewedConsumer]:
    """A client that never finds a broker, whatever comes back; the next one finds it."""
    with EmbeddedBroker() as broker:
        broker.create_topic("dither.reports")
        places = ["127.0.0.1:1", broker.bootstrap_servers]
        renewed = RenewedConsumer(
            lambda: Consumer(
                {"bootstrap.servers": places.pop(0), "group.id": "workers", "log_level": 0}
            )
        )
        yield renewed
        renewed.close()


def test_a_client_without_an_answer_gives_way_to_another(
    lost_then_well: RenewedConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ANSWER_SECONDS", 0.5)
    inspector = LogInspector(lost_then_well, Settings())
    with pytest.raises(BrokerUnreachable):
        inspector.log(0).range()
    monkeypatch.setattr(clients, "ANSWER_SECONDS", 10.0)
    assert inspector.log(0).range() == (0, 0)
