"""Redis that dies and comes back: the worker waits, reads again what was lost, and goes on."""

from __future__ import annotations

import pytest

from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Redis


def test_a_worker_leaves_without_redis_and_the_next_one_counts_what_it_could_not_commit(
    deployment: Deployment, redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.counting.worker.LEAVE_SECONDS", 1.0)
    deployment.settings.aggregate.commit_interval = "1h"
    with deployment.worker() as worker:
        wait_until(lambda: len(worker.owned) == deployment.partitions, "it owns all")
        deployment.produce(traffic(deployment, 40))
        wait_until(lambda: any(o.state.unsaved for o in worker.owned.values()), "it counts")
        redis_server.kill()
    redis_server.restart()
    deployment.settings.aggregate.commit_interval = "200ms"
    with deployment.worker("next"):
        deployment.wait_until_counted()
    assert deployment.verify().verified
