"""Every kind of fault once, in one schedule; `make faults` plays hundreds that are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.faults.arena import Arena
from tests.services.faults.play import play
from tests.services.faults.schedules import KINDS, Fault, Schedule
from tests.support.running.servers import need_apache_kafka


@pytest.mark.more
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_whatever_happens(tmp_path: Path) -> None:
    need_apache_kafka()
    # 7: those of a broker are far from each other
    times = [0.4 * (7 * i % len(KINDS)) for i in range(len(KINDS))]
    faults = [Fault(kind, at, 0.6, 0.37 * at % 1) for kind, at in zip(KINDS, times, strict=True)]
    with Arena(tmp_path) as arena:
        outcome = play(arena.lanes[0], Schedule(0, 3, 4, tuple(faults)))
    assert outcome.problems == []
    assert len(outcome.faults) >= len(KINDS) - 1, "a broker that is being repaired is left alone"
    assert outcome.messages > 100
