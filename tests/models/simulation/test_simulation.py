"""Whatever fails, and whenever: every report is counted once, or a partition says what it lacks."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from tests.models.simulation.runs import Tally, run, story
from tests.models.simulation.schedule import AT_A_CALL, BETWEEN_CALLS

SCHEDULES = 300
PART = 60
"""Of these in one test, which has a limit of time."""
MANY = 20_000


def kept(seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        outcome = run(seed)
        tally.add(outcome)
        assert not outcome.violation, "\n".join(story(outcome))
    return tally


@functools.cache
def part(first: int) -> Tally:
    return kept(range(first, first + PART))


@pytest.mark.parametrize(
    "first",
    [pytest.param(n, marks=pytest.mark.more if n else ()) for n in range(0, SCHEDULES, PART)],
)
def test_every_report_is_counted_once_whatever_fails(first: int) -> None:
    assert part(first).schedules == PART


@pytest.mark.more
def test_every_kind_of_fault_strikes() -> None:
    parts = [part(first) for first in range(0, SCHEDULES, PART)]
    injected = set().union(*(tally.injected for tally in parts))
    did = sum((tally.did for tally in parts), Counter[str]())
    assert injected == AT_A_CALL.keys() | BETWEEN_CALLS.keys()
    assert did["commits known again"] > 0
    assert did["partitions halted"] > 0
    assert did["panes seen as final"] > 0
    assert did["offsets named as missing"] > 0


@pytest.mark.slow
def test_every_report_is_counted_once_in_thousands_of_schedules() -> None:
    kept(range(SCHEDULES, MANY))


def test_a_schedule_repeats_itself() -> None:
    first, second = run(7, keep_trace=True), run(7, keep_trace=True)
    assert len(first.trace) > 50
    assert story(first) == story(second)
