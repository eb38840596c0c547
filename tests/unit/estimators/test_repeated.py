"""Several signs of one user: their law and their limits, against exact probabilities."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from estimators.bounds import RepeatedLaw, interval

PAIRS = [(0.62, 0.38), (0.5, 0.27), (0.02, 0.001), (0.9, 0.6)]


def one_level(n: int, r: int, p: float, q: float, *, values: bool = False) -> RepeatedLaw:
    contrast, counts = np.array([p - q]), np.array([float(n)])
    offset = None if abs(p + q - 1) < 1e-12 else np.array([p + q - 1])
    return RepeatedLaw(
        counts,
        1 / (counts * contrast),
        contrast,
        offset=offset,
        repeats=np.array([float(r)]),
        values=values,
    )


def user(r: int, p: float, q: float, holders: float) -> np.ndarray:
    """Return the chances of 0 to r ones from a user who holds the category with this chance."""
    ones = np.arange(r + 1)
    chance: np.ndarray = holders * binom.pmf(ones, r, p) + (1 - holders) * binom.pmf(ones, r, q)
    return chance


def users(n: int, one: np.ndarray) -> np.ndarray:
    chance = np.ones(1)
    for _ in range(n):
        chance = np.convolve(chance, one)
    return chance


def centred(ones: np.ndarray, n: int, r: int, p: float, q: float) -> np.ndarray:
    result: np.ndarray = (2 * ones - n * r * (p + q)) / (n * r * (p - q))
    return result


@pytest.mark.parametrize(
    ("r", "pair", "theta"),
    [(1, PAIRS[0], -1.0), (2, PAIRS[1], -0.9), (2, PAIRS[3], 0.2), (5, PAIRS[2], 1.0)],
)
def test_the_law_of_held_signs_is_exact(r: int, pair: tuple[float, float], theta: float) -> None:
    """Value, derivatives and variance of one user's mean sign, from its whole distribution."""
    law = one_level(1, r, *pair)
    chance = user(r, *pair, (1 + theta) / 2)
    y = centred(np.arange(r + 1), 1, r, *pair)
    for tilt in law.max_tilt * np.array([1e-4, 0.01, 0.3]):
        at = law.cumulant(np.array([theta]), np.array([tilt]))
        tilted = chance * np.exp(tilt * y)
        total = tilted.sum()
        mean = tilted @ y / total
        assert at.value[0] == pytest.approx(np.log(total), rel=1e-7)
        assert at.by_tilt[0] == pytest.approx(mean, rel=1e-7)
        assert at.curvature[0] == pytest.approx(tilted @ (y - mean) ** 2 / total, rel=1e-7)
        assert at.third[0] >= tilted @ np.abs(y - mean) ** 3 / total * (1 - 1e-9)
        step = 1e-6 if theta < 1 else -1e-6
        moved = law.cumulant(np.array([theta + step]), np.array([tilt]))
        slope = (moved.value - at.value)[0] / step
        cross = (moved.by_tilt - at.by_tilt)[0] / step
        assert at.by_theta[0] == pytest.approx(slope, rel=1e-3)
        assert at.cross[0] == pytest.approx(cross, rel=1e-3)
    spread = chance @ y**2 - (chance @ y) ** 2
    assert law.largest_variance(np.array([theta]))[0] == pytest.approx(spread, rel=1e-7)


@settings(max_examples=60)
@given(
    n=st.integers(1, 60),
    r=st.sampled_from([2, 3, 8]),
    pair=st.sampled_from(PAIRS),
    values=st.none() | st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    share=st.floats(0, 1),
    beta=st.sampled_from([0.5, 0.05, 1e-3]),
)
def test_limits_that_miss_the_truth_were_unlikely(
    n: int, r: int, pair: Any, values: Any, share: float, beta: float
) -> None:
    """Whole regions, by enumeration: of a frequency, and of values that are no signs."""
    p, q = pair
    if values:
        p, q = (1 + p - q) / 2, (1 - p + q) / 2
    high, low = values or (1.0, -1.0)
    middle, half = (p + q) / 2, (p - q) / 2
    ones, r_ones = np.arange(n * r + 1), np.arange(r + 1)
    one = share * binom.pmf(r_ones, r, middle + half * high)
    one += (1 - share) * binom.pmf(r_ones, r, middle + half * low)
    chance, theta = users(n, one), share * high + (1 - share) * low
    law = one_level(n, r, p, q, values=bool(values))
    assert law.is_determined_by_mean != bool(values)
    for total in (None, float(1 / law.coefficient.max())):
        lower, upper = interval(law, centred(ones, n, r, p, q), np.log(beta), total)
        assert chance[lower > theta + 1e-12].sum() <= beta * (1 + 1e-9)
        assert chance[upper < theta - 1e-12].sum() <= beta * (1 + 1e-9)


@settings(max_examples=25)
@given(
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    offsets=st.booleans(),
    beta=st.sampled_from([0.5, 0.05, 1e-3]),
)
def test_levels_may_have_frequencies_of_their_own(shares: Any, offsets: bool, beta: float) -> None:
    """Two levels, of one sign and of four a user: all outcomes by enumeration."""
    counts, repeats = np.array([12.0, 9.0]), np.array([1.0, 4.0])
    p = np.array([0.3, 0.5]) if offsets else np.array([0.6, 0.7])
    q = np.array([0.2, 0.1]) if offsets else 1 - p
    coefficient, offset = 1 / (counts.sum() * (p - q)), p + q - 1 if offsets else None
    law = RepeatedLaw(counts, coefficient, p - q, free=True, offset=offset, repeats=repeats)
    support, chance = np.zeros(1), np.ones(1)
    for n, r, s, high, low, share in zip((12, 9), (1, 4), coefficient, p, q, shares, strict=True):
        y = 2 * np.arange(n * r + 1) / r - n * (high + low)
        support = (support[:, None] + s * y).ravel()
        chance = (chance[:, None] * users(n, user(r, high, low, share))).ravel()
    theta = 2 * (counts @ shares) / counts.sum() - 1
    for total in (None, float(1 / coefficient.max())):
        lower, upper = interval(law, support, np.log(beta), total)
        assert chance[lower > theta + 1e-12].sum() <= beta * (1 + 1e-9)
        assert chance[upper < theta - 1e-12].sum() <= beta * (1 + 1e-9)
