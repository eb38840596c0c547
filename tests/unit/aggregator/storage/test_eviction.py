"""A Redis that may evict sums is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from aggregator.errors import StoreEvicts
from aggregator.storage.eviction import LOOK_SECONDS, EvictionWatch, refuse_eviction
from tests.support.running.servers import Redis


@pytest.fixture
def client(redis_server: Redis, redis_url: str) -> Iterator[redis.Redis]:
    assert redis_server.server.running
    with redis.Redis.from_url(redis_url) as client:
        yield client
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")


def test_a_server_that_evicts_is_refused_with_what_mends_it(client: redis.Redis) -> None:
    for policy in ("allkeys-lru", "allkeys-random", "volatile-ttl"):
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", policy)
        refuse_eviction(client)
        client.config_set("maxmemory", "100mb")
        told = f"maxmemory-policy = {policy} with maxmemory = 104857600"
        with pytest.raises(StoreEvicts, match=told):
            refuse_eviction(client)
    client.config_set("maxmemory-policy", "noeviction")
    refuse_eviction(client)


def test_a_server_is_looked_at_each_minute_and_when_it_was_away(client: redis.Redis) -> None:
    now = 0.0
    watch = EvictionWatch(client, lambda: now)
    assert watch() == ""
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    assert watch() == ""
    watch.look_again()
    assert "maxmemory-policy = allkeys-lru" in watch()
    client.config_set("maxmemory-policy", "noeviction")
    assert "maxmemory-policy = allkeys-lru" in watch()
    now = LOOK_SECONDS
    assert watch() == ""
