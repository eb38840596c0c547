"""A day of a small fleet, through real servers: nothing is lost, and ids are remembered."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.capacity_rates import Rates
from benchmarks.fleet import predicted, run
from benchmarks.places import Places
from benchmarks.record import RECORDED, Record

BATCHES = 50_000


@pytest.mark.slow
def test_a_small_fleet_is_counted_once_and_takes_memory_for_its_ids(tmp_path: Path) -> None:
    with ExitStack() as stack:
        places = Places(stack)
        if not places.is_real:
            pytest.skip("needs Apache Kafka: dither kafka --fetch")
        found = run(places, tmp_path, BATCHES, hours=1, memory=2 * 10**9)
    assert found["verified"]
    assert found["messages"] == BATCHES
    assert found["worker"] > found["idle worker"]
    assert found["redis"] > 16 * BATCHES


def test_the_model_of_a_run_grows_by_the_bytes_of_its_ids() -> None:
    rates = Rates.of(Record.read(RECORDED))
    small, large = (predicted(batches, 24, rates) for batches in (1_000_000, 21_000_000))
    more = 20_000_000
    assert large["worker"] - small["worker"] == pytest.approx(more * rates.held_id_bytes)
    assert large["redis"] - small["redis"] == pytest.approx(more * rates.id_bytes)
    assert large["message_us"] == small["message_us"]
