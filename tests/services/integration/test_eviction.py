"""A Redis that may evict sums, by a setting that was changed while workers run."""

from __future__ import annotations

import pytest

from aggregator.storage import eviction
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until


def test_workers_halt_when_redis_may_evict_by_now(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "LOOK_SECONDS", 0.2)
    client, numbers = deployment.store.client, range(deployment.partitions)

    def halted(number: int) -> bool:
        return "maxmemory-policy = allkeys-lru" in deployment.store.owner(number).get("halted", "")

    deployment.produce(traffic(deployment, 10))
    client.config_set("maxmemory", "1gb")
    try:
        with deployment.worker():
            deployment.wait_until_counted()
            client.config_set("maxmemory-policy", "allkeys-lru")
            wait_until(lambda: all(map(halted, numbers)), "all partitions are halted")
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")
    with deployment.worker():
        wait_until(lambda: not any(map(halted, numbers)), "counting goes on")
