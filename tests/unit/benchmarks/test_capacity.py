"""Capacity: what the arithmetic says grows with what it should."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.capacity_model import Assumptions, Fleet, need
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


def test_commits_that_no_worker_can_make_are_refused_with_what_to_do() -> None:
    fleet = Fleet(1e9, metrics=1_000, levels=16, cells=1_025)
    with pytest.raises(ValueError, match=r"metrics of 131,200 bytes a pane.*Commit less"):
        need(fleet, RATES)
