"""Redis that dies and comes back: the worker waits, reads again what was lost, and goes on."""

from __future__ import annotations

import pytest

from aggregator.errors import Fenced
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from tests.support.reports.messages import batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Redis


def test_redis_that_is_killed_and_started_again_ends_with_the_sums_of_the_log(
    deployment: Deployment, redis_server: Redis
) -> None:
    deployment.produce(traffic(deployment, 40))
    with deployment.worker() as worker:
        deployment.wait_until_counted()
        for seed in (1, 2, 3):
            deployment.produce(traffic(deployment, 40, seed=seed))
            redis_server.kill()
            deployment.produce(traffic(deployment, 40, seed=10 + seed))
            redis_server.restart()
            deployment.wait_until_counted()
        owned = set(range(deployment.partitions))
        wait_until(lambda: worker.owned.keys() == owned, "the worker has its partitions again")
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
    assert outcome.messages == 3 * 40 * 7


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


def test_an_owner_of_before_redis_was_emptied_is_fenced_though_its_epoch_comes_again(
    redis_url: str,
) -> None:
    with Store(connect(redis_url), "reports") as old, Store(connect(redis_url), "reports") as new:
        before = old.partition.acquire(0, "old")
        state = before.partition(METRICS, FUTURE_MS)
        state.count(log(batch(DELAY, [1.0])))
        old.client.flushdb()
        owner = new.partition.acquire(0, "new").owner
        assert owner["epoch"] == before.owner["epoch"]
        with pytest.raises(Fenced):
            old.partition.commit(0, int(owner["epoch"]), UNSET, state, {})
        assert new.counts(0) == {}
