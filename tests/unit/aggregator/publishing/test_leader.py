"""What a publisher logs while Redis is down."""

import functools
import threading
from types import SimpleNamespace

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from structlog.testing import capture_logs

from aggregator.config.settings import Settings
from aggregator.publishing import leader
from aggregator.publishing.publisher import Publisher
from aggregator.reading.reader import MetricReader
from aggregator.storage.store import Store
from tests.support.running.redis_nodes import RedisNode


class Stopping(threading.Event):
    """An event whose waits take no time; it is set after ten minutes of them."""

    now = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0
        return self.is_set()

    def is_set(self) -> bool:
        return self.now >= 600


def test_an_outage_is_logged_as_it_begins_and_then_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping = Stopping()
    monkeypatch.setattr(leader, "time", SimpleNamespace(monotonic=lambda: stopping.now))
    with RedisNode() as node:
        client = redis.Redis.from_url(node.url, retry=Retry(NoBackoff(), 0))
        client.ping()
    publisher = Publisher(Settings(), MetricReader(Store(client, "reports"), {}))
    publisher._stopping = stopping
    start = functools.partial(publisher._log_start, "started", "estimates")
    monkeypatch.setattr(publisher, "_has_task", lambda: start() is None)
    with capture_logs() as logs:
        publisher.run()
        assert publisher.failing == "Redis fails"
        publisher._still_leads({})
        publisher._still_leads({})
    assert [log["event"] for log in logs] == [*["started", "cannot publish"] * 13, "started"]
    failures = logs[1::2]
    assert [log["again_in"] for log in failures] == [0.5, 1.0, 2.0, 4.0, *[5.0] * 9]
    assert all(log["error"].startswith("Redis does not answer") for log in failures)
