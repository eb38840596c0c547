"""A commit of which Redis has logged a part when the power fails is never taken for a whole one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.config.settings import Aggregate
from aggregator.counting.continuity import Log
from aggregator.counting.takeover import acquire_partition
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.store import Store
from estimators import define
from tests.support.reports.messages import DAY, EPOCH, batch, log
from tests.support.running.deployment import wait_until
from tests.support.running.placed_redis import PlacedRedis

DELAY = define(
    name="delay", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[1], pane="1d"
)
FIRST, SECOND, THIRD = (batch(DELAY, [0.5], 1, EPOCH + i * DAY, i) for i in range(3))


@pytest.fixture
def redis_log(tmp_path: Path) -> Iterator[PlacedRedis]:
    with PlacedRedis(tmp_path / "redis") as server:
        yield server


def counted(store: Store, upto: int) -> Partition:
    """Take partition 0 over and count the log from where the store stands up to an offset."""
    snapshot = store.partition.acquire(0, "worker")
    partition = snapshot.partition({"delay": DELAY}, 0)
    partition.count(log(FIRST, SECOND, THIRD)[:upto])
    store.partition.commit(0, int(snapshot.owner["epoch"]), snapshot.next_offset, partition, {})
    return partition


def log_everything(store: Store) -> None:
    """Wait until every write is in the file: Redis makes them later where the disk is busy."""
    wait_until(lambda: store.client.info("persistence")["aof_buffer_length"] == 0, "it is logged")


@pytest.mark.parametrize("cut", ["begun", "pane:delay", "next", "EXEC"])
def test_after_two_power_failures_a_commit_is_whole_or_gone_or_marked(
    redis_log: PlacedRedis, cut: str
) -> None:
    with Store(connect(redis_log.url), "topic") as store:
        assert store.partition.snapshot(0).next_offset == UNSET
        counted(store, 1)
        log_everything(store)
        before = store.partition.snapshot(0)
        (file,) = (redis_log.folder or Path()).glob("appendonlydir/*.incr.aof")
        whole = file.stat().st_size
        counted(store, 3)
        log_everything(store)
        redis_log.kill()
        data = file.read_bytes()
        os.truncate(file, data.lower().rindex(cut.lower().encode()) + 2)
        assert file.stat().st_size > whole, "the first commit is all there"

        redis_log.start()
        store.client.connection_pool.disconnect()
        again = store.partition.snapshot(0)
        assert (again.next_offset, again.open) == (before.next_offset, before.open)
        partition = counted(store, 2)
        log_everything(store)
        now = store.partition.snapshot(0)
        assert len(now.open) == len(partition.panes) == 2

        redis_log.kill()
        redis_log.start()  # here some versions run what they have of the second commit
        store.client.connection_pool.disconnect()
        then = store.partition.snapshot(0)
        assert then.next_offset == TORN or (then.next_offset, then.open) == (2, now.open)
        if then.next_offset == TORN:
            taken = acquire_partition(
                store, 0, "next", Log(lambda: (0, 3)), {"delay": DELAY}, Aggregate()
            )
            assert "applied only in part" in taken.halted
            assert store.owner(0)["next"] == str(TORN), "for those who watch"
