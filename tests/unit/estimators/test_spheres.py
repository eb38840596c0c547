"""The constants of the bounds for vectors, against exact functions and sampled reports."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import hyp0f1
from scipy.stats import beta as beta_law
from scipy.stats import chi2, ks_1samp

from estimators.bounds import Directions
from estimators.bounds.spheres import log_mean_cosh, width
from estimators.exact.randomness import SeededBits
from estimators.exact.sampling import uniform_directions

DIMENSIONS = (1, 2, 3, 10, 100)
HALF = np.array([0.5])
each_dimension = pytest.mark.parametrize("dimension", DIMENSIONS)


def half_moments(dimension: int, x: float) -> tuple[float, float, float]:
    """Return E0 cosh(xZ), E0 sinh(x|Z|) and E0 |Z| by quadrature over the angle."""
    if dimension == 1:
        return float(np.cosh(x)), float(np.sinh(x)), 1.0
    angle = (np.arange(200_000) + 0.5) * np.pi / 400_000
    density = np.sin(angle) ** (dimension - 2)
    density /= density.sum()
    z = np.cos(angle)
    return tuple(float(density @ f) for f in (np.cosh(x * z), np.sinh(x * z), z))  # type: ignore[return-value]


@each_dimension
def test_the_cumulant_is_the_proved_one(dimension: int) -> None:
    law = Directions(dimension, np.ones(1), np.ones(1), np.array([0.7]), 0.0)
    for x in (0.001, 0.5, 3.0, 7.9):
        cosh, sinh, mean = half_moments(dimension, x)
        assert mean * width(dimension) == pytest.approx(1, rel=1e-6)
        expected = cosh - 1 + 0.7 * (sinh - x * mean)
        assert law.cumulant(np.array([x]))[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("dimension", "contrast"), [(1, 0.9), (2, 0.1), (3, 1.0), (100, 0.9)])
def test_no_law_of_a_report_has_a_larger_cumulant(dimension: int, contrast: float) -> None:
    """Against the law of users who all hold a vector along the direction, and half way off it."""
    law = Directions(dimension, np.ones(1), np.ones(1), np.array([contrast]), 0.0)
    for x in (-5.0, -0.3, 0.3, 5.0):
        cosh, sinh, mean = half_moments(dimension, abs(x))
        for strength in (0.0, 0.5, 1.0, -1.0):
            a = contrast * strength * np.sign(x)
            centred = np.log(cosh + a * sinh) - a * mean * abs(x)
            assert centred <= law.cumulant(np.array([abs(x)]))[0] + 1e-9


@each_dimension
def test_the_bessel_bound_is_below_and_near_the_exact_function(dimension: int) -> None:
    x = np.array([0.01, 0.3, 1.0, 5.0, 20.0, 80.0])
    exact = np.log(hyp0f1(dimension / 2, x**2 / 4))
    bound = log_mean_cosh(dimension, x)
    assert np.all(bound <= exact * (1 + 1e-12))
    assert np.all(exact - bound <= 0.05 * exact + 0.35)


def test_bounds_are_near_the_normal_ones_for_many_reports() -> None:
    for dimension, most in ((1, 1.5), (2, 1.4), (3, 1.35), (10, 1.2), (100, 1.08)):
        law = Directions(dimension, np.array([1e6]), np.array([2e-6]) * width(dimension), HALF, 0.0)
        sd = np.sqrt(law.variance / dimension)
        assert law.coordinate_deviation(np.log(0.025)) < 1.03 * 1.96 * sd
        normal = sd * np.sqrt(chi2.isf(0.05, dimension))
        assert 1 < law.radius(np.log(0.05)) / normal < most, dimension


@pytest.mark.parametrize("dimension", [2, 10])
def test_directions_are_uniform_on_the_sphere(dimension: int) -> None:
    """Fails for one seed in 10^6 for each comparison."""
    vectors = uniform_directions(SeededBits(5), 50_000, dimension)
    square = beta_law(0.5, (dimension - 1) / 2).cdf
    for column in (0, dimension - 1):
        assert ks_1samp(vectors[:, column] ** 2, square).pvalue > 1e-6
        assert abs(vectors[:, column].mean()) < 5 / np.sqrt(50_000 * dimension)
    assert abs((vectors[:, 0] * vectors[:, -1]).mean()) < 5 / (dimension * np.sqrt(50_000))
