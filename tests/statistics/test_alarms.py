"""Alarms over years: how many are false, and how soon moves are seen."""

from __future__ import annotations

import numpy as np
import pytest

from estimators import LocalMetric, define
from estimators.alarms import Detector
from estimators.estimate import Counts, Floats
from estimators.exact.randomness import SeededBits
from tests.support.reports.alarm_tables import RATES, delays, false_alarms

BY_LEVEL = (0.3, 0.25, 0.2, 0.15, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("baseline", "means"), [(0, (0.0,) * 5), (28, (0.0,) * 5), (28, BY_LEVEL)])
def test_a_year_of_hundreds_of_series_has_fewer_false_alarms_than_promised(
    baseline: int, means: tuple[float, ...]
) -> None:
    """The mix of levels drifts until it is reversed. Promised are 146; about 60 and 6 are seen."""
    alpha, series, panes = 1e-3, 400, 365
    assert false_alarms(baseline, alpha, series, panes, means) <= alpha * series * panes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("baseline", "shift", "expected"),
    [
        (0, 1, (19.3, 28.2)),
        (0, 2, (5.9, 8.4)),
        (0, 4, (2.0, 2.5)),
        (168, 1, (35, 56)),
        (168, 2, (8.4, 11.9)),
        (168, 4, (2.6, 3.1)),
        (720, 1, (22, 33)),
        (720, 2, (6.4, 8.6)),
        (720, 4, (2.1, 2.6)),
    ],
)
def test_moves_are_seen_after_as_few_panes_as_are_expected(
    baseline: int, shift: int, expected: tuple[float, float]
) -> None:
    """The move comes after 50 panes. The columns for 720 panes suppose one mean of all levels."""
    for alpha, most in zip(RATES, expected, strict=True):
        assert np.mean(delays(baseline, shift, alpha, 200, before=50)) <= 1.15 * most


EDGE, ALPHA, BASELINE, YEAR = 3, 1 / 100, 28, 365
SHARES = LocalMetric.require(
    define(name="wait", kind="distribution", range=(0, 8), bins=8, levels=[4])
)


def summed(values: Floats, seed: int) -> Counts:
    statistic, level = SHARES.zero(), np.zeros(values.size, dtype=np.uint8)
    SHARES.accumulate(statistic, level, SHARES.randomize(values, level, SeededBits(seed)))
    return statistic


def alarms_of_shares(
    ends: tuple[float, float], years: int, devices: int, replaced: float, least: float
) -> int:
    """Return the alarms of some years, of devices of which a part is replaced after each pane.

    A half of all people have the first of two values, and nothing moves but who reports.
    """
    draws, raised = np.random.default_rng(5), 0
    for year in range(years):
        values = draws.choice(ends, devices)
        panes = []
        for pane in range(BASELINE + YEAR):
            panes.append(summed(values, 1000 * year + pane))
            new = draws.random(devices) < replaced
            values[new] = draws.choice(ends, int(new.sum()))
        baseline = np.sum(panes[:BASELINE], axis=0)
        detector = Detector(SHARES, ALPHA, baseline=baseline, category=EDGE, least=least)
        raised += sum(detector.update(pane).raised for pane in panes[BASELINE:])
    return raised


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(2.5, 3.5), (0.5, 7.5), (2.5, 7.5)])
def test_years_of_shares_have_fewer_false_alarms_than_promised(ends: tuple[float, float]) -> None:
    """Other people in each pane, values beside the limit or far from it; 15 are promised."""
    assert alarms_of_shares(ends, 4, 300, 1.0, 0.0) <= 4 * YEAR * ALPHA


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replaced", "errors", "is_false"), [(0.0, 0, False), (0.01, 0, True), (0.01, 4, False)]
)
def test_devices_that_are_slowly_replaced_need_a_least_move(
    replaced: float, errors: float, is_false: bool
) -> None:
    """The mean of 1,000 devices wanders by its standard error, 1.6%, and stays there for long."""
    least = errors * 0.5 / 1000**0.5
    found = alarms_of_shares((2.5, 3.5), 3, 1000, replaced, least)
    assert (found > 3 * YEAR * ALPHA) == is_false
