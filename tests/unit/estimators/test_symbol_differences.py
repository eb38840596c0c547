"""Differences of two arms from counts of symbols: fixed numbers of reports, and at all times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.bounds.bets.symbol_bets import fair
from estimators.bounds.bets.symbol_limits import at_all_times, fixed
from estimators.comparison.arms import Arm
from estimators.comparison.joint import Found, anytime, fixed_difference
from estimators.comparison.streams import BetStream
from estimators.estimate import Floats
from tests.support.windows import Sample, remembered_bets

Z = 1.959964
LEVELS = ("0.5", "2", "6")
SHARES = (0.1, 0.3, 0.6)
PLACES = (6, 10, 124)  # a symbol of each level, near the middle and near the end


def sample(n: float, *, free: bool = False) -> Sample:
    return Sample(LEVELS, n * np.array([0.5, 0.3, 0.2]), SHARES, free=free)


def arm(drawn: Sample, counts: list[Floats]) -> Arm:
    bets = drawn.bets(counts)
    total = float(1 / drawn.law.coefficient.max())
    return Arm(np.array([bets.mean]), drawn.law, None, total, bets=bets)


def expected(drawn: Sample, kind: str) -> Arm:
    """The arm whose counts are at their expectation."""
    return arm(drawn, [n * law for n, law in zip(drawn.law.counts, drawn.laws(kind), strict=True)])


def drawn_arm(drawn: Sample, kind: str, rng: np.random.Generator) -> Arm:
    return arm(drawn, list(drawn.draw(rng, drawn.laws(kind)).counts))


def half(found: Found) -> float:
    return float((found.upper - found.lower)[0] / 2)


@pytest.mark.parametrize(("epsilon", "kind"), [("1", "ends"), ("4", "uniform"), ("8", "narrow")])
def test_a_difference_is_not_much_wider_than_an_estimate(epsilon: str, kind: str) -> None:
    """Over the normal width. The worst law of a mean has up to 14 instead of 1.3, 17 of 2."""
    one = expected(Sample((epsilon,), np.array([1e4]), (1.0,), free=False), kind)
    assert one.bets is not None
    normal = Z * math.sqrt(2 * one.bets.spread(one.bets.mean))
    assert half(fixed_difference(one, one, 0.05)) <= 1.26 * normal
    assert half(anytime(one, one, 0.05, 1.0)) <= 1.95 * normal


@pytest.mark.parametrize("free", [False, True])
def test_the_lines_of_bets_bound_what_they_replace(free: bool) -> None:
    rng, many = np.random.default_rng(3), sample(900, free=free)
    bets = drawn_arm(many, "uniform", rng).bets
    assert bets is not None
    stream = BetStream(bets, 900.0)
    tilts, theta = np.array([[0.1, 0.5, 1.0]]) * bets.steepest, np.array([0.2])
    value, slope = stream.lines(theta, tilts)
    gains = bets.gains(tilts[0])
    exponent = tilts * stream.observed - value
    assert exponent[0] == pytest.approx(gains - bets.fair(tilts[0], 0.2))
    for x in (-0.9, 0.0, 0.3, 1.0):
        assert (exponent - slope * (x - 0.2) <= gains - bets.fair(tilts[0], x) + 1e-9).all()
        for tilt in tilts[0]:
            step = bets.fair(np.array([tilt]), x + 1e-6) - bets.fair(np.array([tilt]), x - 1e-6)
            slope_there = fair(bets.law, np.array([tilt]), x).slope
            assert slope_there[0] == pytest.approx(float(step[0]) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("free", [False, True])
def test_the_arms_may_change_places(free: bool) -> None:
    rng = np.random.default_rng(5)
    a, b = (
        drawn_arm(sample(900, free=free), "uniform", rng),
        drawn_arm(sample(2000, free=free), "narrow", rng),
    )
    one, other = fixed_difference(a, b, 0.05), fixed_difference(b, a, 0.05)
    assert one.lower[0] == pytest.approx(-other.upper[0], abs=2e-4)
    assert one.upper[0] == pytest.approx(-other.lower[0], abs=2e-4)
    assert one.p_value[0] == pytest.approx(other.p_value[0], rel=0.02)
    assert one.lower[0] < (a.observed - b.observed)[0] < one.upper[0]


def test_fabricated_counts_that_no_mean_explains_have_limits() -> None:
    many, shares = np.array([3331, 63658, 18621.0]), (0.006, 0.398, 0.596)
    drawn = Sample(("0.5", "1", "10"), many, shares, free=False)
    counts = [np.zeros(shape.symbols) for shape in drawn.law.shapes]
    for row, place, n in zip(counts, PLACES, drawn.law.counts, strict=True):
        row[place] = n
    fabricated = arm(drawn, counts)
    assert fabricated.bets is not None
    total = float(many.sum())
    rejected = at_all_times(fabricated.bets, -5.0, total)
    assert rejected > -at_all_times(fabricated.bets.mirrored(), -5.0, total)
    assert np.isfinite(fixed(fabricated.bets, -5.0)).all()
    found = fixed_difference(fabricated, expected(sample(1e4), "narrow"), 0.05)
    assert -2 <= found.lower[0] <= found.upper[0] <= 2
    assert 0 < found.p_value[0] <= 1


def test_differences_cover() -> None:
    """60 pairs of samples of one law at beta = 0.2: three standard errors more may miss."""
    rng, many, misses, small = np.random.default_rng(9), sample(3000), 0, 0
    with remembered_bets():
        for _ in range(60):
            found = fixed_difference(*(drawn_arm(many, "uniform", rng) for _ in "ab"), 0.2)
            misses += not found.lower[0] <= 0 <= found.upper[0]
            small += int(found.p_value[0] <= 0.2)
    assert max(misses, small) / 60 <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / 60)
