"""A partition that was paused when it was taken away is fetched when it comes back."""

from __future__ import annotations

import pytest

from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Redis


@pytest.mark.more
def test_partitions_that_go_and_come_back_while_redis_is_away_are_counted_afterwards(
    deployment: Deployment, redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.counting.worker.LEAVE_SECONDS", 1.0)
    with deployment.worker("one") as one:
        wait_until(lambda: len(one.owned) == deployment.partitions, "one owns all")
        redis_server.kill()
        wait_until(lambda: one._backoff.is_waiting, "one waits for Redis")
        with deployment.worker("two"):
            wait_until(lambda: len(one.owned) < deployment.partitions, "one gave some away")
        redis_server.restart()
        wait_until(lambda: len(one.owned) == deployment.partitions, "one owns all again")
        deployment.produce(traffic(deployment, 40))
        deployment.wait_until_counted()
    assert deployment.verify().verified
