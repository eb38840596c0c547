"""A few random schedules of faults; `make faults` plays hundreds."""

from __future__ import annotations

import pytest

from deploy.kafka import launcher
from tests.services.faults.__main__ import run
from tests.services.faults.arena import Arena
from tests.services.faults.schedules import KINDS, draw
from tests.support.running.servers import missing

SEEDS = [322, 496, 1146]
"""They have every kind of fault between them; the first has seven within half a second."""


@pytest.mark.more
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if lacking := launcher.missing():
        missing("Apache Kafka", lacking)
    with Arena(tmp_path_factory.mktemp("arena"), lanes=2) as arena:
        outcomes = run(arena, SEEDS)
    assert [outcome.problems for outcome in outcomes] == [[]] * len(SEEDS)
    assert sum(outcome.messages for outcome in outcomes) > 100


def test_schedules_are_drawn_from_their_seed_and_know_every_kind() -> None:
    drawn = [draw(seed) for seed in range(200)]
    assert drawn == [draw(seed) for seed in range(200)]
    assert {fault.kind for schedule in drawn for fault in schedule.faults} == set(KINDS)
