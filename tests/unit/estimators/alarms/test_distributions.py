"""Alarms on the share of the users below an edge of a distribution."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from estimators import LocalMetric, define
from estimators.alarms import Detector
from estimators.alarms.panes import PaneMean
from estimators.estimate import Counts, Floats
from estimators.exact.randomness import SeededBits
from tests.support.rows import row

LEVELS = [1.0, 4.0]
EDGE = 5
"""The place of the edge that is watched; the edges are 0 to 8."""
WAIT = LocalMetric.require(
    define(name="wait", kind="distribution", range=(0, 8), bins=8, levels=LEVELS)
)
SPLITS = {
    "beside the edge": (4.5, 5.5),
    "at both ends": (0.5, 7.5),
    "below, and in the other half": (4.5, 0.5),
}


def panes(
    ends: tuple[float, float], share: float, count: int, reports: int, seed: int
) -> Iterator[Counts]:
    """Yield panes of users of whom a share has the first of two values."""
    draws = np.random.default_rng(seed)
    for number in range(count):
        values = np.where(draws.random(reports) < share, *ends)
        level = (np.arange(reports) % len(LEVELS)).astype(np.uint8)
        statistic = WAIT.zero()
        reported = WAIT.randomize(values, level, SeededBits(1000 * seed + number))
        WAIT.accumulate(statistic, level, reported)
        yield statistic


@pytest.mark.parametrize("name", SPLITS)
def test_e_values_have_a_mean_of_one_at_most(name: str) -> None:
    """Within 4 standard errors of 400 panes, for tilts of half, one and three standard errors."""
    ends = SPLITS[name]
    share = 1.0 if max(ends) < EDGE else 0.3
    theta, shares = np.array([2 * share - 1]), np.array([0.3, 0.7])
    found: list[list[Floats]] = [[], []]
    for statistic in panes(ends, 0.3, 400, 60, 1):
        pane = PaneMean.of(WAIT, statistic, shares, EDGE)
        assert pane is not None
        tilts = np.array([0.5, 1.0, 3.0]) * pane.variance(0.0) ** -0.5
        for side, sign in enumerate((1, -1)):
            found[side].append(np.exp(pane.e_values(theta, tilts, sign).log[0]))
    for logs in found:
        mean, error = np.mean(logs, axis=0), np.std(logs, axis=0) / len(logs) ** 0.5
        assert (mean <= 1 + 4 * error).all()


def test_a_share_that_moves_raises_an_alarm_and_one_that_stays_does_not() -> None:
    """At most 1e-3 a pane is false."""
    ends = SPLITS["beside the edge"]
    (baseline,) = panes(ends, 0.7, 1, 40_000, 3)
    detector = Detector(WAIT, 1e-3, baseline=baseline, category=EDGE)
    value, reports = detector.baseline_estimate
    assert value == pytest.approx(0.7, abs=0.02)
    assert reports == 40_000
    steps = [detector.update(pane) for pane in panes(ends, 0.7, 30, 4000, 4)]
    assert not any(step.raised for step in steps)
    steps = [detector.update(pane) for pane in panes(ends, 0.8, 3, 4000, 5)]
    assert any(step.raised and step.direction == "up" for step in steps)


def test_what_is_no_edge_between_bins_is_refused() -> None:
    for category in (None, 0, 8):
        with row(category), pytest.raises(ValueError, match=f"category = {category}"):
            Detector(WAIT, 1e-3, baseline_value=0.5, category=category)
