"""A client of the application."""

import pytest

from aggregator.config.settings import Access, Settings
from aggregator.storage.store import Store
from estimators import Metric
from tests.support.reports.counted import Client


@pytest.fixture
def client(store: Store, metrics: dict[str, Metric]) -> Client:
    return Client(store, metrics, Settings(access=Access(anonymous=["read", "report", "admin"])))
