import pytest

from tests.support.clocks import Clock
from tests.support.running.broker import Broker


@pytest.fixture(scope="session")
def broker() -> Broker:
    """The in-process broker."""
    return Broker()


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of the test's own."""
    return broker.topic()
