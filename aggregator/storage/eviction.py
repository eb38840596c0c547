"""Checks that Redis does not evict keys when its memory is full, which would lose sums silently."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis
from redis.cluster import RedisCluster

from aggregator.errors import DitherError

KEEPS_ALL = "noeviction"
CHECK_SECONDS = 60.0
"""The time between two checks of a server in use."""


def refuse_eviction(client: redis.Redis) -> None:
    """Raise DitherError, with the policy, if Redis deletes keys when its memory is full."""
    if why := eviction_problem(client):
        raise DitherError(why)


class EvictionWatch:
    """Checks once a minute whether Redis may evict keys, as its policy can change at any time.

    Calling it returns why this Redis must not be used; "" if it evicts nothing, or if the user has
    no right to ask.
    """

    def __init__(self, client: redis.Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._why, self._next_look = "", float("-inf")

    def __call__(self) -> str:
        """Return the result of the last check; check again if it is older than a minute."""
        if self._clock() >= self._next_look:
            try:
                self._why = eviction_problem(self._client)
            except redis.exceptions.NoPermissionError:
                self._why = ""
            self._next_look = self._clock() + CHECK_SECONDS
        return self._why

    def recheck(self) -> None:
        """Check at the next call, because after an outage this may be another Redis."""
        self._next_look = float("-inf")


def eviction_problem(client: redis.Redis) -> str:
    """Return a message if a server deletes keys when its memory is full; "" if no server does."""
    for info in _memory_infos(client):
        policy, limit = str(info.get("maxmemory_policy", KEEPS_ALL)), int(info.get("maxmemory", 0))
        if limit and policy != KEEPS_ALL:
            return (
                f"Redis has maxmemory-policy = {policy} with maxmemory = {limit}: when its memory "
                "is full it deletes sums. Set it with `redis-cli CONFIG SET "
                "maxmemory-policy noeviction`, and in redis.conf, then start the workers again"
            )
    return ""


def _memory_infos(client: redis.Redis) -> list[dict[str, Any]]:
    """Return the memory section of INFO of each server, or of each primary of a Redis Cluster."""
    if isinstance(client, RedisCluster):
        infos: Any = client.info("memory", target_nodes=RedisCluster.PRIMARIES)
        return list(infos.values()) if "maxmemory" not in infos else [infos]
    info: Any = client.info("memory")
    return [info]
