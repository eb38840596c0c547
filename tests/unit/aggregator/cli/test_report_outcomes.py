"""What became of the reports that `dither produce` has sent."""

from __future__ import annotations

import threading

from aggregator.cli.report_outcomes import await_outcome, read_redis
from aggregator.config.settings import Settings
from aggregator.storage.store import Store
from tests.unit.aggregator.reading.test_slices import LATE, Counting, devices, message


def test_a_worker_that_starts_after_the_first_report_is_waited_for(store: Store) -> None:
    settings, sent = Settings(), [message(LATE, one, n) for n, one in enumerate(devices(30))]
    settings.redis.url = "unix://" + store.client.connection_pool.connection_kwargs["path"]
    before = read_redis(settings)
    assert before is not None and not before.progress.partitions  # noqa: PT018
    counting = Counting(store, {LATE.name: LATE})
    worker = threading.Timer(0.5, counting.count_all, [sent])
    worker.start()
    assert await_outcome(settings, LATE, before, 150) == {"accepted": 150}
    worker.join()
