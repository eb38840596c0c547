"""Every kind of fault once, in one schedule; `make faults` plays hundreds that are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.services.faults.arena import Arena, Lane
from tests.services.faults.play import Outcome, play
from tests.services.faults.schedules import KINDS, Fault, Schedule, draw
from tests.support.running.servers import need_apache_kafka

LANES, AT_ONCE, SCHEDULES = 3, 20, 500


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    need_apache_kafka()
    with Arena(tmp_path_factory.mktemp("arena"), LANES) as arena:
        yield arena


@pytest.mark.more
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_whatever_happens(arena: Arena) -> None:
    # 7: those of a broker are far from each other
    times = [0.4 * (7 * i % len(KINDS)) for i in range(len(KINDS))]
    faults = [Fault(kind, at, 0.6, 0.37 * at % 1) for kind, at in zip(KINDS, times, strict=True)]
    outcome = play(arena.lanes[0], Schedule(0, 3, 4, tuple(faults)))
    assert outcome.problems == []
    assert len(outcome.faults) >= len(KINDS) - 1, "a broker that is being repaired is left alone"
    assert outcome.messages > 100


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SCHEDULES, AT_ONCE))
def test_nothing_is_lost_or_doubled_in_schedules_that_are_drawn(arena: Arena, first: int) -> None:
    def played(lane: Lane, begin: int) -> list[Outcome]:
        return [play(lane, draw(seed)) for seed in range(begin, first + AT_ONCE, LANES)]

    with ThreadPoolExecutor(LANES) as pool:
        lanes = pool.map(played, arena.lanes, range(first, first + LANES))
        outcomes = [outcome for lane in lanes for outcome in lane]
    assert not [(each.schedule, each.problems) for each in outcomes if each.problems]
