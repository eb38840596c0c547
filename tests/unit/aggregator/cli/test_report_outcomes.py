"""What became of the reports that `dither produce` has sent."""

import itertools

import pytest

from aggregator.cli import report_outcomes
from aggregator.cli.report_outcomes import RedisState, await_outcome, read_redis
from aggregator.config.settings import Settings
from aggregator.storage.store import Store
from estimators import define
from tests.support.reports.counted import Counting

LATE = define(name="late", kind="mean", range=(0, 1), levels=[1], pane="10m")


def test_a_worker_that_starts_after_the_first_report_is_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, counting = Settings(), Counting(store, {LATE.name: LATE})
    settings.redis.url = "unix://" + store.client.connection_pool.connection_kwargs["path"]
    before = read_redis(settings)
    assert before is not None and not before.progress.partitions  # noqa: PT018
    batches = [counting.batch(LATE.name, [0, 1, 1]) for _ in range(50)]
    looks = itertools.count(1)

    def read(given: Settings) -> RedisState | None:
        if next(looks) == 2:
            counting.count(0, *batches)
        return read_redis(given)

    monkeypatch.setattr(report_outcomes, "read_redis", read)
    assert await_outcome(settings, LATE, before, 150) == {"accepted": 150}
