"""Reports of windows are unbiased at every knot and between them, with the stated variance.

Every check is Bernstein's inequality with a failure probability of 1e-9 on either side; there are
at most 4,000 of them, so that a false alarm has a probability below 1e-5 for all of this file.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from estimators.exact.randomness import SeededBits
from estimators.mechanisms import Windows
from tests.support.reports.least_variances import LEAST_VARIANCES

LOG = math.log(2e9)
EPSILONS = [*map(Fraction, LEAST_VARIANCES), Fraction("5.5"), Fraction(16)]


def allowed(variance: float, largest: float, n: int) -> float:
    """Return what the mean of n terms deviates by with probability 1e-9 at most."""
    return math.sqrt(2 * variance * LOG / n) + 2 * largest * LOG / (3 * n)


def check(epsilon: Fraction, n: int, every: int) -> None:
    """Draw n reports of every so many of the knots and of the values half-way between them."""
    mechanism = Windows([epsilon])
    (shape,) = mechanism.shapes
    symbols, window = len(shape.z), shape.window
    miss = shape.threshold / 2**64
    places = np.arange(2 * (symbols - window) + 1)[::every] / 2  # a half is between two knots
    bits = SeededBits(20_261)
    for place in [*places.tolist(), float(symbols - window)]:
        low, high = math.floor(place), math.ceil(place)
        value = (shape.knots[low] + shape.knots[high]) / 2
        law = np.full(symbols, miss / (symbols - window))
        for start in (low, high):  # each with probability 1/2, or both the same
            law[start : start + window] += ((1 - miss) / window - miss / (symbols - window)) / 2
        off = shape.values - value
        variance = float(law @ off**2)
        assert law.sum() == pytest.approx(1)
        assert float(law @ off) == pytest.approx(0, abs=1e-9)
        assert variance <= float(shape.worst_variance) * (1 + 1e-9)
        reports = mechanism.randomize(np.full(n, value), np.zeros(n, dtype=np.uint8), bits)
        tally = np.bincount(reports, minlength=symbols) / n
        farthest = float(np.abs(off).max())
        assert abs(tally @ off) < allowed(variance, farthest, n), (epsilon, value)
        square = off**2
        spread = float(law @ (square - variance) ** 2)
        assert abs(tally @ square - variance) < allowed(spread, farthest**2, n), (epsilon, value)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_reports_are_unbiased_with_the_stated_variance(epsilon: Fraction) -> None:
    check(epsilon, 10_000, 5 if epsilon > 6 else 1)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_a_million_reports_of_each_value_are_unbiased(epsilon: Fraction) -> None:
    check(epsilon, 10**6, 1)
