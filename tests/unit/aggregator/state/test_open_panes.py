"""Panes that are open cost nothing while nothing happens to them, and close when they must."""

from __future__ import annotations

import dataclasses

import pytest

from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey
from aggregator.state.partition import Partition
from tests.support.reports.messages import EPOCH, agreeing, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, MINUTE, everything

PATIENT = dataclasses.replace(DELAY, lateness="60m")
METRICS = {PATIENT.name: PATIENT}


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
