"""Capacity: what the arithmetic says grows with what it should."""

import pytest

from benchmarks.capacity_model import Fleet, Rates, need

RATES = Rates(
    message_seconds=2e-6,
    report_seconds=1e-8,
    commit_bytes=5e7,
    id_bytes=70,
    held_id_bytes=24,
    idle_bytes=7e7,
)


def test_commits_that_no_worker_can_make_are_refused_with_what_to_do() -> None:
    fleet = Fleet(1e9, metrics=1_000, levels=16, cells=1_025)
    with pytest.raises(ValueError, match=r"metrics of 131,200 bytes a pane.*Commit less"):
        need(fleet, RATES)


def test_a_gateway_opens_what_comes_through_a_relay() -> None:
    posted, sealed = (need(Fleet(1e9, batch_reports=5e4, sealed=x), RATES) for x in (0.0, 1.0))
    busy = sealed["reports per second"] / RATES.opened
    assert posted["gateways"] == 1
    assert sealed["gateways"] == pytest.approx(2 * busy, abs=1)
