from __future__ import annotations

import pytest

from tests.support.running.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Broker:
    """The in-process broker."""
    return Broker()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of the test's own."""
    return broker.topic()
