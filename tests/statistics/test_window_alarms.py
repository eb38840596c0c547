"""Alarms on means of `windows`: false ones are as rare as promised, and moves are found.

Counts of symbols are drawn here from each level's M, W, T and numbers, and not by the mechanism.
Alarms of a process that does not move are at most alpha a pane on average, so that a test of the
number of alarms fails falsely only if the proof does.
"""

from __future__ import annotations

import numpy as np
import pytest

from estimators import LocalMetric, define
from estimators.alarms import Detector
from estimators.estimate import Counts, Floats
from estimators.mechanisms import Windows

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
METRIC = LocalMetric.require(
    define(name="m", kind="mean", mechanism="windows", range=(-1, 1), levels=LEVELS)
)
ALPHA, SERIES, PANES = 1 / 50, 5, 365
DATA = {
    "ends": np.array([-1.0, 1.0]),
    "narrow": np.linspace(0.2, 0.4, 11),
    "rare": np.array([-1.0] * 49 + [1.0]),
    "uniform": np.linspace(-1, 1, 41),
}


def chances(level: int, values: Floats) -> Floats:
    """Return P(j) for each symbol, for values that are equally likely."""
    assert isinstance(METRIC.randomizer, Windows)
    shape = METRIC.randomizer.shapes[level]
    symbols, window, miss = len(shape.z), shape.window, shape.threshold / 2**64
    sums = np.convolve(shape.z, np.ones(window), mode="valid")
    place = np.interp(values, sums / sums[-1], np.arange(sums.size))
    found = np.full(symbols, miss / (symbols - window))
    more = (1 - miss) / window - miss / (symbols - window)
    for start, share in zip(np.floor(place).astype(int), place % 1, strict=True):
        found[start : start + window] += more * (1 - share) / len(values)
        if share:
            found[start + 1 : start + 1 + window] += more * share / len(values)
    return found


def pane(laws: list[Floats], counts: Counts, rng: np.random.Generator) -> Counts:
    """Return the sums of a pane with so many reports of each level."""
    statistic = METRIC.zero()
    table = METRIC.table(statistic)
    for row, law, n in zip(table, laws, counts.tolist(), strict=True):
        row[0] = n
        row[1 : 1 + law.size] = rng.multinomial(n, law)
    return statistic


def laws_of(kind: str, *, by_level: bool, move: float = 0.0) -> list[Floats]:
    """Return the laws of all levels, whose values may be shrunk towards 0, level by level."""
    return [
        chances(row, np.clip(DATA[kind] * (1 - 0.15 * row * by_level) + move, -1, 1))
        for row in range(len(LEVELS))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 5_000])
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize(("baseline", "by_level"), [(0, False), (28, False), (28, True)])
def test_years_without_a_move_have_fewer_false_alarms_than_promised(
    baseline: int, by_level: bool, kind: str, size: int
) -> None:
    """The mix of levels is slowly reversed, and the number of reports varies; promised are 36."""
    rng, raised = np.random.default_rng(31), 0
    laws, mean = laws_of(kind, by_level=by_level), float(DATA[kind].mean())
    mix = np.arange(1.0, 1 + len(LEVELS)) / 15
    mixes = np.linspace(mix, mix[::-1], PANES)
    for _ in range(SERIES):
        first = pane(laws, rng.multinomial(size * baseline, mix), rng) if baseline else None
        stated = None if baseline else mean
        detector = Detector(METRIC, ALPHA, baseline=first, baseline_value=stated)
        for now in mixes:
            counts = rng.multinomial(rng.poisson(size), now)
            raised += detector.update(pane(laws, counts, rng)).raised
    assert raised <= ALPHA * SERIES * PANES


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["narrow", "uniform"])
@pytest.mark.parametrize("baseline", [0, 168])
def test_a_move_is_found_within_a_few_panes(baseline: int, kind: str) -> None:
    """A move by four standard errors of a pane, after 50 panes; one false alarm in 1,000 panes."""
    rng, found, counts = np.random.default_rng(32), [], np.full(len(LEVELS), 2_000)
    assert isinstance(METRIC.randomizer, Windows)
    worst = np.array([float(shape.worst_variance) for shape in METRIC.randomizer.shapes])
    shares = (counts / (1 + worst)) / (counts / (1 + worst)).sum()
    spread = DATA[kind].var()
    move = 4 * float(np.sqrt((shares**2 * (worst + spread) / counts).sum()))
    still, moved = (laws_of(kind, by_level=False, move=x) for x in (0.0, move))
    mean = float(DATA[kind].mean())
    for _ in range(40):
        first = pane(still, counts * baseline, rng) if baseline else None
        stated = None if baseline else mean
        detector = Detector(METRIC, 1e-3, baseline=first, baseline_value=stated)
        for _ in range(50):
            detector.update(pane(still, counts, rng))
        taken = 1
        while not detector.update(pane(moved, counts, rng)).raised:
            taken += 1
            assert taken < 60
        found.append(taken)
    assert np.mean(found) <= 5
