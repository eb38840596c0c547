"""A replay takes over open panes as a worker does whose definitions have changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from aggregator.counting.replay import LogReplay
from aggregator.state.definition_history import Definitions
from aggregator.state.partition import Partition
from aggregator.storage.snapshot import Snapshot
from tests.support.reports.messages import EPOCH, LogMessage, agreeing, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS, MINUTE, everything

RULES = {"future": "10m"}


class LoggedMessage(LogMessage):
    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0


class LogConsumer:
    """Hands out a log."""

    def __init__(self, messages: Sequence[LogMessage]) -> None:
        self._messages = [LoggedMessage(**vars(message)) for message in messages]
        self._at = 0

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, len(self._messages)

    def assign(self, positions: list[TopicPartition]) -> None:
        self._at = positions[0].offset

    def unassign(self) -> None:
        pass

    def consume(self, most: int, **_: Any) -> list[LoggedMessage]:
        found = self._messages[self._at : self._at + most]
        self._at += len(found)
        return found

    def position(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("reports", 0, self._at)]


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
    consumer: Any = LogConsumer(messages)
    replay.run(consumer, lambda *_: None)
    replay.state.panes = replay.panes
    assert everything(replay.state) == everything(counted)
