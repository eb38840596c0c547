"""Coverage of the bounds from counts of symbols, on the hardest data, in 2,000 samples of each.

At most beta and three standard errors may miss: 6.5% at beta = 0.05.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.support.rows import row
from tests.support.windows import HARD, Sample, knots_of

RUNS = 2000
MIXED, HUGE = ("0.5", "2", "4", "8"), np.array([3000.0, 20.0, 20.0, 20.0])


def allowed(beta: float, runs: int) -> float:
    return beta + 3 * math.sqrt(beta * (1 - beta) / runs)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_fixed_bounds_cover(beta: float) -> None:
    for kind, epsilon in itertools.product(HARD, ("1", "8")):
        sample = Sample((epsilon,), np.array([1000.0]), (1.0,), free=False)
        missed, runs = sample.missed(kind, beta, RUNS, np.random.default_rng(21))
        with row(kind, epsilon):
            assert missed / runs <= allowed(beta, runs)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_one_huge_level_and_small_ones_are_covered(beta: float) -> None:
    """Shares of the weights by users, or as large for the few users of high precision."""
    weights = (HUGE / HUGE.sum(), np.array([0.1, 0.2, 0.3, 0.4]))
    for kind, free, shares in itertools.product(("ends", "narrow"), (False, True), weights):
        sample = Sample(MIXED, HUGE, shares, free=free)
        missed, runs = sample.missed(kind, beta, RUNS // 2, np.random.default_rng(22))
        with row(kind, free, shares):
            assert missed / runs <= allowed(beta, runs)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_levels_with_means_of_their_own_are_covered(beta: float) -> None:
    """The users' weighted mean is in the bounds, whatever the levels' means are."""
    sample = Sample(MIXED, HUGE, HUGE / HUGE.sum(), free=True)
    for means in ((-1.0, 1.0, 1.0, 1.0), (0.9, -0.5, 0.0, 0.3)):
        laws = [
            knots_of(shape, np.array([x])) @ chance
            for shape, x, chance in zip(sample.law.shapes, means, sample.chances, strict=True)
        ]
        rng = np.random.default_rng(23)
        missed, runs = sample.missed("ends", beta, RUNS // 2, rng, laws)
        with row(means):
            assert missed / runs <= allowed(beta, runs)
