"""Capacity: what the arithmetic says grows with what it should."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.capacity_model import LEAST_PARTITIONS, Assumptions, Fleet, need
from benchmarks.capacity_rates import Rates

RATES = Rates(
    message_seconds=2e-6,
    report_seconds=1e-8,
    commit_bytes=5e7,
    id_bytes=70,
    held_id_bytes=24,
    idle_bytes=7e7,
)
MOST_BUSY = Assumptions().most_busy
PROMPT: dict[str, Any] = {"lateness_seconds": 0, "late_share": 0}
"""Devices whose reports are never late, and that nobody waits for."""


def test_workers_grow_with_the_devices_and_are_never_too_busy() -> None:
    needs = [need(Fleet(devices, **PROMPT), RATES) for devices in (1e5, 1e6, 1e7, 1e8, 1e9)]
    workers = [found.workers for found in needs]
    assert workers == sorted(workers)
    assert workers[0] == 1
    assert workers[-1] >= 3 * 24e9 / 86_400 * RATES.message_seconds / MOST_BUSY
    assert all(found.busy <= MOST_BUSY and found.catch_up <= 1 for found in needs)
    assert all(found.partitions >= max(LEAST_PARTITIONS, found.workers) for found in needs)


def test_larger_messages_need_fewer_workers_and_less_of_everything() -> None:
    single, batched = (need(Fleet(1e9, batch_reports=size), RATES) for size in (1, 100))
    assert batched.reports_per_second == pytest.approx(single.reports_per_second)
    assert batched.messages_per_second == pytest.approx(single.messages_per_second / 100)
    assert batched.workers < single.workers
    assert batched.kafka_bytes < single.kafka_bytes / 10
    assert batched.redis_bytes < single.redis_bytes
    assert batched.worker_bytes * batched.workers < single.worker_bytes * single.workers


def test_commits_that_no_worker_can_make_are_refused_with_what_to_do() -> None:
    fleet = Fleet(1e9, metrics=1_000, levels=16, cells=1_025)
    with pytest.raises(ValueError, match=r"metrics of 131,200 bytes a pane.*Commit less"):
        need(fleet, RATES)
