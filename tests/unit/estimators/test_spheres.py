"""The constants of the bounds for vectors, and bounds on a coordinate of hemispheres."""

import itertools

import numpy as np
import pytest
from scipy import fft
from scipy.special import hyp0f1
from scipy.stats import beta as beta_law
from scipy.stats import binom, ks_1samp

from estimators.bounds import Directions
from estimators.bounds.hemispheres import MAX_FREQUENCY, _odd_part, hemisphere_moduli
from estimators.bounds.spheres import inverse_mean_size, log_mean_cosh
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from estimators.exact.sampling import normal_numbers, unit_vectors
from tests.support.rows import row

DIMENSIONS = (1, 2, 3, 10, 100)
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
    law = Directions(dimension, np.ones(1), np.ones(1), 0.0, np.array([0.7]))
    for x in (0.001, 0.5, 3.0, 7.9):
        cosh, sinh, mean = half_moments(dimension, x)
        assert mean * inverse_mean_size(dimension) == pytest.approx(1, rel=1e-6)
        expected = cosh - 1 + 0.7 * (sinh - x * mean)
        assert law.cumulant(np.array([x]))[0] == pytest.approx(expected, rel=1e-4)


@each_dimension
def test_the_bessel_bound_is_below_and_near_the_exact_function(dimension: int) -> None:
    x = np.array([0.01, 0.3, 1.0, 5.0, 20.0, 80.0])
    exact = np.log(hyp0f1(dimension / 2, x**2 / 4))
    bound = log_mean_cosh(dimension, x)
    assert np.all(bound <= exact * (1 + 1e-12))
    assert np.all(exact - bound <= 0.05 * exact + 0.35)


@pytest.mark.parametrize("dimension", [2, 10])
def test_directions_are_uniform_on_the_sphere(dimension: int) -> None:
    """Fails for one seed in 10^6 for each comparison."""
    numbers = normal_numbers(SeededBits(5).integers(25_000 * dimension))
    vectors = unit_vectors(numbers.reshape(50_000, dimension))
    square = beta_law(0.5, (dimension - 1) / 2).cdf
    for column in (0, dimension - 1):
        assert ks_1samp(vectors[:, column] ** 2, square).pvalue > 1e-6
        assert abs(vectors[:, column].mean()) < 5 / np.sqrt(50_000 * dimension)
    assert abs((vectors[:, 0] * vectors[:, -1]).mean()) < 5 / (dimension * np.sqrt(50_000))


CELLS = 2_000


def coordinate(dimension: int) -> tuple[Floats, Floats]:
    """Return points in (-1, 1) and shares of the uniform law of a coordinate, symmetric."""
    angle = (np.arange(CELLS) + 0.5) * np.pi / CELLS
    density = np.sin(angle) ** (dimension - 2)
    return np.cos(angle), density / density.sum()


@pytest.mark.parametrize(("dimension", "contrast"), [(2, 0.96), (3, 0.3), (10, 0.96), (1_000, 0.3)])
def test_no_law_of_a_report_has_a_larger_modulus(dimension: int, contrast: float) -> None:
    """Odd functions f drawn at random, and the steepest one, at exponents of any direction."""
    rng = np.random.default_rng(3)
    z, share = coordinate(dimension)
    tau = np.linspace(0, MAX_FREQUENCY, 40) * np.sqrt(dimension)
    for trial in range(9):
        half = rng.uniform(-1, 1, 8).repeat(CELLS // 16) if trial else np.ones(CELLS // 2)
        if trial % 3 == 1:
            half = np.sign(half)
        chances = share * (1 + contrast * np.concatenate([half, -half[::-1]]))
        mean = float(chances @ z)
        for t in np.array([0.01, 0.3, 2.0]) * np.sqrt(dimension):
            exact = np.abs(np.exp((t + 1j * tau[:, None]) * z) @ chances)
            odd = _odd_part(dimension, np.hypot(t, tau))
            bound = hemisphere_moduli(
                dimension,
                np.array([contrast]),
                np.array([t]),
                tau[None],
                np.array([[mean]]),
                odd[None],
            )
            assert np.all(exact <= bound[:, 0, 0] * (1 + 1e-5))  # the quadrature's error is less


def test_exact_tails_of_signs_are_below_p() -> None:
    """One dimension: a report is a sign of mean -a to a, of which the sum is binomial."""
    for n, contrast in itertools.product([1, 9, 200, 5_000], [0.4, 0.99]):
        with row(n, contrast):
            law = Directions(1, np.array([float(n)]), np.ones(1), 0.0, np.array([contrast]))
            for p in (0.1, 0.025, 1e-5):
                bound = law.coordinate_deviation(float(np.log(p)))
                for mean in (contrast, 0.7 * contrast, 0.0, -contrast):
                    ones = np.ceil((n * (1 + mean) + bound) / 2 - 1e-9)
                    assert binom.sf(ones - 1, n, (1 + mean) / 2) <= p


def test_very_many_reports_beside_few_add_nothing_to_a_coordinates_bound() -> None:
    n, contrast = np.array([10.0, 1e14]), np.full(2, 0.5)
    bounds = [
        float(Directions(3, n[:k], 1 / n[:k], 0.0, contrast[:k]).coordinate_deviation(-4.0))
        for k in (1, 2)
    ]
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-4)


@pytest.mark.parametrize(("dimension", "n"), [(2, 1), (2, 60), (3, 5), (20, 60)])
def test_tails_of_directions_are_below_p(dimension: int, n: int) -> None:
    """Convolved on a fine grid: users who hold the axis, its opposite, both, or the equator."""
    contrast, p, cells = 0.96, 0.025, 501
    law = Directions(dimension, np.array([float(n)]), np.ones(1), 0.0, np.array([contrast]))
    bound = law.coordinate_deviation(float(np.log(p)))
    z, share = coordinate(dimension)
    size = 2 ** int(np.ceil(np.log2(2 * n * cells + 2)))
    place = np.rint(z * cells).astype(int)  # moves a sum by 0.3 sqrt(n) / cells
    for ahead in {0, n // 2, n}:
        transform = np.ones(size // 2 + 1, dtype=np.complex128)
        for sign, count in ((1, ahead), (-1, n - ahead)):
            one = np.bincount(place % size, share * (1 + sign * contrast * np.sign(z)), size)
            transform = transform * fft.rfft(one) ** count
        chance = fft.irfft(transform, size)
        sums = ((np.arange(size) + size // 2) % size - size // 2) / cells
        mean = (2 * ahead - n) * contrast / inverse_mean_size(dimension)
        assert chance[np.abs(sums - mean) >= bound + 0.01 * np.sqrt(n)].sum() <= 2 * p
        assert chance[sums - mean >= bound + 0.01 * np.sqrt(n)].sum() <= p
