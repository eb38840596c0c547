"""A replay takes over open panes as a worker does whose definitions have changed."""

from __future__ import annotations

import dataclasses

import pytest

from aggregator.state.batch_ids import BatchIds
from aggregator.state.definition_history import Definitions
from aggregator.state.partition import Partition
from aggregator.storage.snapshot import Snapshot
from aggregator.verifying.replay import LogReplay
from tests.support.reports.log_consumers import consumer_of
from tests.support.reports.messages import EPOCH, agreeing, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS, MINUTE, everything

RULES = {"future": "10m"}


def redefined(name: str) -> Definitions:
    """Return the same metrics, one of which another one is added to."""
    return Definitions(METRICS | {name: dataclasses.replace(DELAY, name=name)}, RULES)


@pytest.mark.parametrize("changes", [[], [2], [2, 3]])
def test_a_pane_that_was_taken_over_closes_when_its_watermark_says_so(changes: list[int]) -> None:
    """A pane, and then as many reports as close it; the definitions change in between."""
    waiting = [batch(DELAY, [1], time_ms=EPOCH + at * MINUTE, seed=at) for at in range(3)]
    later = agreeing(DELAY, EPOCH + 3 * MINUTE, seed=100)
    messages = log(*waiting, *later)
    history = [(0, Definitions(METRICS, RULES))]
    history += [(offset, redefined(f"added{offset}")) for offset in changes]
    counted = Partition(METRICS, FUTURE_MS)
    assert not counted.count(messages)
    assert sum(pane.closed for pane in counted.panes.values()) == 2
    facts = {"begin": "0", "next": str(len(messages))}
    snapshot = Snapshot("", facts, {}, {}, {})
    replay = LogReplay("reports", 0, history, snapshot, 0)
    with consumer_of(messages) as consumer:
        replay.run(consumer, lambda *_: None)
    assert replay.messages == len(messages)
    for pane in counted.panes.values():
        pane.seen = BatchIds() if pane.closed else pane.seen  # those of closed panes are let go
    replay.state.panes = replay.panes
    assert everything(replay.state) == everything(counted)
