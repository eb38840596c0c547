"""Capacity: what the arithmetic says grows with what it should."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.capacity import LEAST_PARTITIONS, MOST_BUSY, Fleet, Rates, main, mean_wait, need
from benchmarks.record import Record
from benchmarks.tables import RECORDED

RATES = Rates(
    message_seconds=2e-6,
    report_seconds=1e-8,
    commit_bytes=5e7,
    id_bytes=70,
    held_id_bytes=24,
    idle_bytes=7e7,
)


def test_workers_grow_with_the_devices_and_are_never_too_busy() -> None:
    needs = [need(Fleet(devices), RATES) for devices in (1e5, 1e6, 1e7, 1e8, 1e9)]
    workers = [found.workers for found in needs]
    assert workers == sorted(workers)
    assert workers[0] == 1
    assert workers[-1] >= 3 * 24e9 / 86_400 * RATES.message_seconds / MOST_BUSY
    assert all(found.busy <= MOST_BUSY and found.catch_up <= 1 for found in needs)
    assert all(found.partitions >= max(LEAST_PARTITIONS, found.workers) for found in needs)


def test_one_worker_less_would_be_too_busy() -> None:
    fleet = Fleet(1e9)
    found = need(fleet, RATES)
    assert found.messages_per_second * RATES.message_seconds / (found.workers - 1) > (
        MOST_BUSY - found.redis_bytes_per_second / RATES.commit_bytes / (found.workers - 1)
    )


def test_larger_messages_need_fewer_workers_and_less_of_everything() -> None:
    single, batched = (need(Fleet(1e9, batch_reports=size), RATES) for size in (1, 100))
    assert batched.reports_per_second == single.reports_per_second
    assert batched.messages_per_second == pytest.approx(single.messages_per_second / 100)
    assert batched.workers < single.workers
    assert batched.kafka_bytes < single.kafka_bytes / 10
    assert batched.redis_bytes < single.redis_bytes
    assert batched.worker_bytes * batched.workers < single.worker_bytes * single.workers


def test_memory_is_that_of_the_panes_that_are_kept() -> None:
    fleet = Fleet(1e6, metrics=3, levels=2, cells=10, kept_days=1, batch_reports=1e6)
    found = need(fleet, RATES)
    minutes_hours_and_day = 24 * 60 + 24 + 1
    of_one_pane = 3 * 2 * 10 * 8 * found.partitions
    ids = found.messages_per_second * 60 * 70
    assert found.redis_bytes == pytest.approx(of_one_pane * (minutes_hours_and_day + 4) + ids)
    longer = need(dataclasses.replace(fleet, kept_days=7), RATES)
    assert longer.redis_bytes / found.redis_bytes == pytest.approx(7, rel=0.01)


def test_kafka_keeps_the_longest_outage_in_all_replicas() -> None:
    found = need(Fleet(1e6, reports_per_day=1, report_bytes=20, outage_days=2), RATES)
    assert found.kafka_bytes == pytest.approx(2 * 3 * 1e6 * 100)


def test_commits_that_no_worker_can_make_are_refused_with_what_to_do() -> None:
    fleet = Fleet(1e9, metrics=1_000, levels=16, cells=1_025)
    with pytest.raises(ValueError, match=r"metrics of 131,200 bytes a pane.*Commit less often"):
        need(fleet, RATES)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.8])
def test_the_mean_wait_is_that_of_a_simulated_queue(busy: float) -> None:
    """Lindley's recursion over 400,000 arrivals; off by 5% in under one of 1,000 seeds."""
    gaps = np.random.default_rng(7).exponential(1 / busy, 400_000)
    wait, total = 0.0, 0.0
    for gap in gaps.tolist():
        wait = max(0.0, wait + 1.0 - gap)
        total += wait
    assert total / gaps.size == pytest.approx(mean_wait(busy, 1.0), rel=0.05)


def test_a_queue_that_grows_without_end_has_no_mean_wait() -> None:
    with pytest.raises(ValueError, match="expected below 1"):
        mean_wait(2.0, 0.5)


def test_a_record_without_what_is_needed_is_refused_with_how_to_measure_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(Record().as_dict()))
    result = CliRunner().invoke(main, [str(file), "--devices", "1e8"])
    assert result.exit_code == 1
    assert "has no 'end to end/batches of 1, workers 1/raw'" in result.output
    assert "dither bench --only" in result.output


def test_the_recorded_run_answers_for_a_fleet() -> None:
    result = CliRunner().invoke(main, [str(RECORDED), "--devices", "1e8"])
    assert result.exit_code == 0, result.output
    assert "workers" in result.stdout
    assert "redis bytes" in result.stdout
