"""Alarms over years: how many are false, and how soon moves are seen."""

from __future__ import annotations

import numpy as np
import pytest

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
def test_moves_are_seen_as_soon_as_by_the_prototype(
    baseline: int, shift: int, expected: tuple[float, float]
) -> None:
    """The move comes after 50 panes. The columns for 720 panes suppose one mean of all levels."""
    for alpha, most in zip(RATES, expected, strict=True):
        assert np.mean(delays(baseline, shift, alpha, 200, before=50)) <= 1.15 * most
