"""Whether Redis may evict what it holds: sums would then be lost without a word."""

from __future__ import annotations

from typing import Any

import redis
from redis.cluster import RedisCluster

from aggregator.errors import StoreEvicts

KEEPS_ALL = "noeviction"


def refuse_eviction(client: redis.Redis) -> None:
    """Raise StoreEvicts if a server of a store deletes keys when its memory is full."""
    for info in _memory_of_all(client):
        policy, limit = str(info.get("maxmemory_policy", KEEPS_ALL)), int(info.get("maxmemory", 0))
        if limit and policy != KEEPS_ALL:
            raise StoreEvicts(
                f"Redis has maxmemory-policy = {policy} with maxmemory = {limit}: when its memory "
                "is full it deletes sums that were counted. Set it with `redis-cli CONFIG SET "
                "maxmemory-policy noeviction`, and in redis.conf, then start the workers again"
            )


def _memory_of_all(client: redis.Redis) -> list[dict[str, Any]]:
    """Return what each server says of its memory: of a Redis Cluster, each primary."""
    if isinstance(client, RedisCluster):
        found: Any = client.execute_command("INFO memory", target_nodes=RedisCluster.PRIMARIES)
        return list(found.values()) if "maxmemory" not in found else [found]
    one: Any = client.info("memory")
    return [one]
