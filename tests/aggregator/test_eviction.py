"""A Redis that may evict sums is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from aggregator.errors import StoreEvicts
from aggregator.eviction import refuse_eviction
from tests.servers import Redis


@pytest.fixture
def client(redis_server: Redis, redis_url: str) -> Iterator[redis.Redis]:
    assert redis_server.server.running
    with redis.Redis.from_url(redis_url) as client:
        yield client
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-ttl"])
def test_a_server_that_evicts_is_refused_with_the_command_that_mends_it(
    client: redis.Redis, policy: str
) -> None:
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", policy)
    with pytest.raises(
        StoreEvicts, match=f"maxmemory-policy = {policy} with maxmemory = 104857600"
    ):
        refuse_eviction(client)
    client.config_set("maxmemory-policy", "noeviction")
    refuse_eviction(client)


def test_a_server_without_a_limit_evicts_nothing(client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    refuse_eviction(client)
