"""Coverage of the bounds from counts of symbols, on the hardest data, in 2,000 samples of each.

At most beta and three standard errors may miss: 6.5% at beta = 0.05.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from estimators.estimate import Floats
from tests.support.rows import row
from tests.support.windows import HARD, Sample, knots_of

RUNS = 2000
MIXED, HUGE = ("0.5", "2", "4", "8"), np.array([3000.0, 20.0, 20.0, 20.0])


def samples() -> Iterator[tuple[Sample, str, int, list[Floats] | None]]:
    """Yield samples, the data, how many are drawn, and the laws of the levels if these differ."""
    for kind, epsilon in itertools.product(HARD, ("1", "8")):
        yield Sample((epsilon,), np.array([1000.0]), (1.0,), free=False), kind, RUNS, None
    # shares of the weights by users, or as large for the few users of high precision
    weights = (HUGE / HUGE.sum(), np.array([0.1, 0.2, 0.3, 0.4]))
    for kind, free, shares in itertools.product(("ends", "narrow"), (False, True), weights):
        yield Sample(MIXED, HUGE, shares, free=free), kind, RUNS // 2, None
    sample = Sample(MIXED, HUGE, weights[0], free=True)
    for means in ((-1.0, 1.0, 1.0, 1.0), (0.9, -0.5, 0.0, 0.3)):
        laws = [
            knots_of(shape, np.array([x])) @ chance
            for shape, x, chance in zip(sample.law.shapes, means, sample.chances, strict=True)
        ]
        yield sample, "levels with means of their own", RUNS // 2, laws


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_fixed_bounds_cover(beta: float) -> None:
    """Of one level; of one huge level and small ones; the users' mean, whatever the levels' are."""
    for number, (sample, kind, runs, laws) in enumerate(samples()):
        missed = sample.missed(kind, beta, runs, np.random.default_rng(21), laws)
        with row(number, kind):
            assert missed / runs <= beta + 3 * math.sqrt(beta * (1 - beta) / runs)
