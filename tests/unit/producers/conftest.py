from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from producers.populations.flights import flight_metrics, flights
from tests.support.running.broker import Broker

if TYPE_CHECKING:
    from estimators import Metric
    from producers.populations.population import Population


@pytest.fixture(scope="session")
def broker() -> Broker:
    """The in-process broker."""
    return Broker()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of the test's own."""
    return broker.topic()


@pytest.fixture(scope="session")
def flight_population() -> Population:
    """All flights, read once."""
    try:
        return flights()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def flight_definitions() -> dict[str, Metric]:
    """The metrics of the flights."""
    return flight_metrics()
