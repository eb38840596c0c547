"""Alarms over years: how many are false, and how soon moves are seen.

That an alarm needs its evidence, and that evidence has a mean of one at most, is tested quickly
(the latter in `tests/unit/estimators/alarms`); years take minutes. Alarms of a process that does
not move are at most alpha a pane on average, so that a test of their number fails falsely only if
the proof does.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.docs_tables.alarms import false_alarms, metric, pane
from estimators import LocalMetric, define
from estimators.alarms import Detector
from tests.support.reports.cases import summed
from tests.support.reports.populations import Population
from tests.support.rows import row
from tests.support.windows import Sample

if TYPE_CHECKING:
    from estimators.estimate import Counts, Floats

BY_LEVEL = (0.3, 0.25, 0.2, 0.15, 0.1)


def test_an_alarm_is_raised_by_evidence_of_one_over_alpha_and_by_no_less() -> None:
    """A threshold that is off by 1% is found; the evidence of a pane does not depend on alpha."""
    rng, one = np.random.default_rng(3), metric()
    moved, known = pane(one, rng, 10_000, 0.07), pane(one, rng, 300_000, 0.0)
    baselines: list[dict[str, Any]] = [{"baseline_value": 0.0}, {"baseline": known}]
    for direction, baseline in itertools.product(("any", "up"), baselines):
        asked: dict[str, Any] = {"direction": direction, **baseline}
        alpha = math.exp(-Detector(one, 1e-9, **asked).update(moved).evidence)
        with row(direction, *baseline):
            assert 1e-9 < alpha < 0.1
            assert Detector(one, alpha * 1.01, **asked).update(moved).raised
            assert not Detector(one, alpha * 0.99, **asked).update(moved).raised


@pytest.mark.slow
def test_a_year_of_hundreds_of_series_has_fewer_false_alarms_than_promised() -> None:
    """The mix of levels drifts until it is reversed. Promised are 146; about 60 and 6 are seen."""
    alpha, series, panes = 1e-3, 400, 365
    for baseline, means in ((0, (0.0,) * 5), (28, (0.0,) * 5), (28, BY_LEVEL)):
        with row(baseline, means):
            assert false_alarms(baseline, alpha, series, panes, means) <= alpha * series * panes


LEVELS, SIZE, YEAR = ("0.25", "0.5", "1", "2", "4"), 1_000, 365
WINDOWS = Population("windows", 0.0, ()).metric
SAMPLE = Sample(LEVELS, np.full(5, 200.0), (0.2,) * 5, free=True)


def symbols(laws: list[Floats], counts: Counts, rng: np.random.Generator) -> Counts:
    """Return the sums of a pane of `windows` with so many reports of each level."""
    statistic = WINDOWS.zero()
    for cells, law, n in zip(WINDOWS.table(statistic), laws, counts.tolist(), strict=True):
        cells[0], cells[1 : 1 + law.size] = n, rng.multinomial(n, law)
    return statistic


@pytest.mark.slow
def test_years_of_windows_have_fewer_false_alarms_than_promised() -> None:
    """The mix of levels is slowly reversed, and the number of reports varies; promised are 36."""
    mix, alpha, series = np.arange(1.0, 6.0) / 15, 1 / 50, 5
    for kind, baseline in itertools.product(("ends", "narrow", "rare", "uniform"), (0, 28)):
        rng, raised, laws = np.random.default_rng(31), 0, SAMPLE.laws(kind)
        mean = float(SAMPLE.values(kind).mean())
        for _ in range(series):
            first = symbols(laws, rng.multinomial(SIZE * 28, mix), rng) if baseline else None
            stated = None if baseline else mean
            detector = Detector(WINDOWS, alpha, baseline=first, baseline_value=stated)
            for now in np.linspace(mix, mix[::-1], YEAR):
                counts = rng.multinomial(rng.poisson(SIZE), now)
                raised += detector.update(symbols(laws, counts, rng)).raised
        with row(kind, baseline):
            assert raised <= alpha * series * YEAR


EDGE, ALPHA, BASELINE = 3, 1 / 100, 28
SHARES = LocalMetric.require(
    define(name="wait", kind="distribution", range=(0, 8), bins=8, levels=[4])
)


def alarms_of_shares(ends: tuple[float, float], years: int) -> int:
    """Return the alarms of some years; half of the people have the first of two values."""
    draws, raised = np.random.default_rng(5), 0
    for year in range(years):
        panes = [
            summed(SHARES, draws.choice(ends, 300), seed=1000 * year + number)
            for number in range(BASELINE + YEAR)
        ]
        baseline = np.sum(panes[:BASELINE], axis=0)
        detector = Detector(SHARES, ALPHA, baseline=baseline, category=EDGE)
        raised += sum(detector.update(pane).raised for pane in panes[BASELINE:])
    return raised


@pytest.mark.slow
def test_years_of_shares_have_fewer_false_alarms_than_promised() -> None:
    """Other people in each pane, values beside the limit or far from it; 15 are promised."""
    for ends in ((2.5, 3.5), (0.5, 7.5), (2.5, 7.5)):
        with row(ends):
            assert alarms_of_shares(ends, 4) <= 4 * YEAR * ALPHA
