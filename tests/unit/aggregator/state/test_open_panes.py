"""Panes that are open cost nothing while nothing happens to them, and close when they must."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import pytest

from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey
from aggregator.state.partition import Partition
from tests.support.reports.messages import EPOCH, agreeing, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, MINUTE, everything

PATIENT = dataclasses.replace(DELAY, lateness="60m")
METRICS = {PATIENT.name: PATIENT}


class Unvisited(dict[PaneKey, Pane]):
    """Panes that nobody may go through."""

    def _refuse(self) -> NoReturn:
        raise AssertionError("all open panes were looked at")

    def __iter__(self) -> Any:
        self._refuse()

    def items(self) -> Any:
        self._refuse()

    def values(self) -> Any:
        self._refuse()


def opened(panes: int) -> Partition:
    """Return a partition with so many panes, all committed."""
    partition = Partition(METRICS, FUTURE_MS)
    batches = [batch(PATIENT, [1], time_ms=EPOCH + at * MINUTE, seed=at) for at in range(panes)]
    assert not partition.count(log(*batches))
    partition.mark_committed()
    return partition


def test_a_batch_in_one_pane_does_not_look_at_all_open_panes() -> None:
    partition = opened(30)
    partition.panes = Unvisited(partition.panes)
    more = batch(PATIENT, [1], time_ms=EPOCH, seed=99)
    assert not partition.count(log(more, first=partition.next_offset))
    assert len(partition.changed) == 1
    assert partition.changed_bytes == PATIENT.zero().nbytes


def measured(partition: Partition) -> int:
    return sum(pane.nbytes for pane in partition.panes.values() if not pane.closed)


def test_a_commit_does_not_look_at_all_open_panes() -> None:
    partition = opened(30)
    more = batch(PATIENT, [1], time_ms=EPOCH, seed=99)
    assert not partition.count(log(more, first=partition.next_offset))
    expected = measured(partition)
    partition.panes = Unvisited(partition.panes)
    assert partition.open_bytes == expected
    assert not partition.mark_committed()
    assert partition.open_bytes == expected
    assert not partition.changed


@pytest.mark.parametrize("together", [1, 3, 100])
def test_panes_close_as_the_watermark_passes_them_however_the_log_is_cut(together: int) -> None:
    """As many as 40 minutes pass, of which each closes the panes that are an hour behind."""
    batches = [
        each
        for at in range(0, 140, 7)
        for each in agreeing(PATIENT, EPOCH + at * MINUTE, seed=1_000 * at)
    ]
    messages = log(*batches)
    whole, cut = Partition(METRICS, FUTURE_MS), Partition(METRICS, FUTURE_MS)
    assert not whole.count(messages)
    closed: dict[PaneKey, Pane] = {}
    for first in range(0, len(messages), together):
        assert not cut.count(messages[first : first + together])
        closed |= cut.mark_committed()
    assert closed.keys() == {one for one, pane in whole.panes.items() if pane.closed}
    assert {one.grain for one in closed} >= {"pane", "hour"}
    cut.panes |= closed
    assert everything(cut) == everything(whole)
