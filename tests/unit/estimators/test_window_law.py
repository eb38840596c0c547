"""The law of reports of windows of symbols: against exact sums over the worst data."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from estimators.bounds import WindowLaw, interval
from estimators.estimate import Floats
from estimators.exact.windows import WindowShape, shape_at

MIXED = [shape_at(Fraction(x)) for x in ("0.5", "2", "4", "8")]


def probabilities(shape: WindowShape) -> Floats:
    """P(j | x_s), shape (windows, symbols)."""
    chance = np.full((shape.windows, shape.symbols), float(shape.outside))
    for start, row in enumerate(chance):
        row[start : start + shape.window] = float(shape.inside)
    return chance


def one_level(shape: WindowShape, n: float) -> WindowLaw:
    return WindowLaw.of([shape], np.array([n]), np.array([1 / n]), free=False)


def mixed(*, free: bool, n: float = 4e3) -> WindowLaw:
    counts = n * np.array([0.4, 0.3, 0.2, 0.1])
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    return WindowLaw.of(MIXED, counts, shares / counts, free=free)


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4", "10"])
def test_no_data_of_a_mean_has_a_larger_cumulant(epsilon: str) -> None:
    """Of all data with one mean, mixtures of two knots are extreme: all pairs are tried."""
    shape = shape_at(Fraction(epsilon))
    law, chance = one_level(shape, 1.0), probabilities(shape)
    for z in np.geomspace(1e-3, law.steepest, 9):
        at = chance @ np.exp(z * shape.values)
        for theta in (-1.0, -0.61, 0.0, 0.37, 1.0):
            left = shape.knots <= theta
            right = shape.knots >= theta
            low, high = shape.knots[left][:, None], shape.knots[right]
            share = np.where(high > low, (theta - low) / np.maximum(high - low, 1e-300), 0.0)
            worst = ((1 - share) * at[left][:, None] + share * at[right]).max()
            found = law.cumulant(np.array([theta]), np.array([z])).value[0]
            assert found == pytest.approx(math.log(worst), rel=1e-9, abs=1e-14)


def test_derivatives_are_those_of_the_cumulant() -> None:
    law = mixed(free=False)
    theta, tilt = np.array([-0.7, 0.1, 0.4]), np.array([0.2, 1.0, 0.5]) * law.steepest / 4
    h, at = 1e-5, law.cumulant(theta, tilt)
    steps = h * tilt
    above, below = (law.cumulant(theta, tilt + sign * steps) for sign in (1, -1))
    right, left = (law.cumulant(theta + sign * h, tilt) for sign in (1, -1))
    assert (above.value - below.value) / (2 * steps) == pytest.approx(at.by_tilt, rel=1e-6)
    assert (above.by_tilt - below.by_tilt) / (2 * steps) == pytest.approx(at.curvature, rel=1e-6)
    assert (right.value - left.value) / (2 * h) == pytest.approx(at.by_theta, rel=1e-6)
    assert (right.by_tilt - left.by_tilt) / (2 * h) == pytest.approx(at.cross, rel=1e-6)


@pytest.mark.parametrize("free", [False, True])
def test_a_tangent_is_above_the_cumulant(free: bool) -> None:
    law, plain = mixed(free=free), mixed(free=False)
    theta, tilt = np.array([-0.7, 0.1, 0.4]), np.array([0.2, 1.0, 0.5]) * law.steepest / 4
    value, slope = law.tangent(theta, tilt)
    assert value == pytest.approx(law.cumulant(theta, tilt).value)
    for x in (-1.0, -0.2, 0.9):
        other = plain.cumulant(x + 0 * theta, tilt).value
        assert (value + slope * (x - theta) >= other - 1e-9).all()


def test_free_means_have_no_larger_cumulant() -> None:
    rng, law = np.random.default_rng(7), mixed(free=True)
    weight = law.counts * law.coefficient
    for scale in (0.05, 0.3, 1.0):
        tilt = np.array([law.steepest * scale])
        for _ in range(50):
            means = rng.choice([-1, 1, rng.uniform(-1, 1)], 4)
            theta = np.array([float(weight @ means)])
            z = tilt * law.coefficient
            exact = sum(
                n * math.log((1 - m) / 2 * low + (1 + m) / 2 * high)
                for n, m, (low, high) in zip(law.counts, means, ends(z), strict=True)
            )
            assert law.cumulant(theta, tilt).value[0] >= exact - 1e-9


def ends(z: Floats) -> list[tuple[float, float]]:
    found = []
    for shape, tilt in zip(MIXED, z, strict=True):
        at = probabilities(shape) @ np.exp(tilt * shape.values)
        found.append((float(at[0]), float(at[-1])))
    return found


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4", "10"])
def test_moments_enclose_those_of_any_data(epsilon: str) -> None:
    shape, rng = shape_at(Fraction(epsilon)), np.random.default_rng(3)
    law, chance = one_level(shape, 1.0), probabilities(shape)
    for _ in range(50):
        share = rng.dirichlet(np.full(shape.windows, 0.05))
        theta, of_symbols = float(share @ shape.knots), share @ chance
        variance = float(of_symbols @ shape.values**2) - theta**2
        third = float(of_symbols @ np.abs(shape.values - theta) ** 3)
        found = law.moments(np.array([theta]))
        pieces = (found.least_variance <= variance + 1e-12) & (
            found.largest_variance >= variance - 1e-12
        )
        assert (pieces & (found.third >= third - 1e-12)).any()
        around = law.moments_around(np.array([theta - 0.1]), 0.1)
        assert around.least_variance[0, 0] <= variance + 1e-12
        assert around.largest_variance[0, 0] >= variance - 1e-12
        assert around.third[0, 0] >= third - 1e-12


def test_limits_cover_the_worst_data() -> None:
    """2,000 runs at the ends and for two-valued data; the chance to miss is at most 1/20."""
    rng, runs, n = np.random.default_rng(11), 2000, 600
    for epsilon, share, total in itertools.product(("1", "8"), (0.0, 0.5, 0.9), (None, 600.0)):
        shape = shape_at(Fraction(epsilon))
        symbols = (1 - share) * probabilities(shape)[0] + share * probabilities(shape)[-1]
        means, truth = rng.multinomial(n, symbols, size=runs) @ shape.values / n, 2 * share - 1
        lower, upper = interval(one_level(shape, n), means, math.log(0.025), total)
        missed = float(((truth < lower) | (truth > upper)).mean())
        assert missed <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs), (epsilon, share, total)
        assert (upper - lower).max() < 2
