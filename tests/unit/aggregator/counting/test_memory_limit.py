"""The open panes of all of a worker's partitions fit in its memory, whatever their logs have."""

import dataclasses

import pytest

from aggregator.config.settings import Aggregate
from aggregator.counting import assigned_partition
from aggregator.counting.assigned_partition import AssignedPartition, limit_memory
from aggregator.counting.continuity import Log
from aggregator.counting.takeover import acquire_partition
from aggregator.state.partition import Partition
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from tests.support.metrics import frequency_metric
from tests.support.reports.messages import EPOCH, batch, log
from tests.support.reports.partitions import FUTURE_MS, HOUR, VOTE, everything

WIDE = frequency_metric("wide", "rappor", 2_000, [1], pane="1h", hold_open=True)
PANES, PARTITIONS = 10, 4
MEMORY = 2 * PANES * WIDE.zero().nbytes
"""Seven eighths of it are those of one partition, and of most of another."""


def taken(store: Store, number: int, excess: str = "") -> AssignedPartition:
    here = Log(lambda: (0, PANES))
    return acquire_partition(store, number, "one", here, {WIDE.name: WIDE}, Aggregate(), excess)


def limit(store: Store, owned: dict[int, AssignedPartition]) -> None:
    """Do as a worker does before it commits, and acquire again what it has fenced."""
    limit_memory(owned.values(), MEMORY)
    for number, one in owned.items():
        if one.is_fenced:
            assert one.open_bytes == 0, "it is in memory once, while it is read again"
            owned[number] = taken(store, number, one.excess)
        owned[number].commit(store, PANES)
    assert sum(one.open_bytes for one in owned.values()) <= MEMORY


def test_partitions_filled_one_after_the_other_stay_within_the_memory(store: Store) -> None:
    owned = {number: taken(store, number) for number in range(PARTITIONS)}
    batches = [batch(WIDE, [1], time_ms=EPOCH + at * HOUR, seed=at) for at in range(PANES)]
    for number in owned:
        for at, one in enumerate(batches):
            if owned[number].is_counting:
                assert not owned[number].state.count(log(one, first=at))
            limit(store, owned)
    halted = [one for one in owned.values() if one.halted]
    assert len(halted) == PARTITIONS - 1
    assert all("the open panes of this worker take" in one.halted for one in halted)
    assert all(store.owner(one.number)["halted"] == one.halted for one in halted)


def test_a_partition_that_was_held_is_taken_over_with_all_of_its_panes(store: Store) -> None:
    first = taken(store, 0)
    batches = [batch(WIDE, [1], time_ms=EPOCH + at * HOUR, seed=at) for at in range(PANES)]
    first.state.count(log(*batches[:-1]))
    first.commit(store, PANES)
    expected = everything(first.state)
    held = taken(store, 0, "the open panes do not fit")
    assert (held.halted, held.open_bytes) == ("the open panes do not fit", 0)
    for _ in range(2):
        held.commit(store, PANES)
    again = taken(store, 0)
    assert again.is_counting
    assert everything(again.state) == expected
    again.state.count(log(batches[-1], first=PANES - 1))
    again.commit(store, PANES)
    assert len(store.partition.snapshot(0).open) == PANES


def test_a_commit_comes_before_changed_keys_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned_partition, "MANY_PANES", 100)
    owned = AssignedPartition(0, 1, Partition({VOTE.name: VOTE}, FUTURE_MS), UNSET, {})
    for first in range(0, 700, 100):
        assert not owned.is_filled
        found = log(*(batch(VOTE, [1], seed=first + at) for at in range(100)), first=first)
        assert not owned.state.count(
            dataclasses.replace(one, about=str(one.at).encode()) for one in found
        )
    assert owned.is_filled
    owned.state.mark_committed()
    assert not owned.is_filled
