"""What a publisher keeps of its log."""

from collections.abc import Iterator

import pytest

from aggregator.config.settings import Settings
from aggregator.publishing.published_log import PublishedLog
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store


@pytest.fixture
def published(store: Store) -> Iterator[PublishedLog]:
    key = publisher_key(store.topic)
    lease = Lease(store.client, key, "publisher", 600)
    assert lease.acquire()
    yield PublishedLog(store.client, lease, key, Settings())
    lease.release()
