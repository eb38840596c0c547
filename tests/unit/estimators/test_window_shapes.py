"""Windows of symbols: their shapes, and their law and noise, against exact sums."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import fft, special

from estimators.bounds import PiecewiseLaw
from estimators.bounds.piecewise.noise import PiecewiseNoise
from estimators.estimate import Floats
from estimators.exact.piecewise_shapes import MOST_SYMBOLS, WindowShape, _table, shape_at
from estimators.exact.thresholds import exp_bounds
from tests.support.rows import row
from tests.support.windows import knots_of

EPSILONS = [Fraction(k, 20) for k in (1, 4, 9, 19, 20, 33, 40, 63, 80, 100, 111, 112, 150, 259)]


#: By epsilon, from a convex programme on fine grids.
LEAST_VARIANCES = {"0.1": 400.0, "1": 3.99, "2.6": 0.4465, "5": 0.05743, "10": 0.001634}


@pytest.mark.parametrize("epsilon", LEAST_VARIANCES)
def test_the_worst_variance_is_within_5_percent_of_the_optimum(epsilon: str) -> None:
    shape = shape_at(Fraction(epsilon))
    worst = float(shape.worst_variance)
    assert 0.999 < worst / LEAST_VARIANCES[epsilon] < 1.05
    # again, on a fine grid, from probabilities and rounding written out
    law, values = shape.chances, shape.values
    x = np.linspace(-1, 1, 20_001)
    right = np.clip(np.searchsorted(shape.knots, x), 1, len(law) - 1)
    up = (x - shape.knots[right - 1]) / (shape.knots[right] - shape.knots[right - 1])
    reports = (1 - up)[:, None] * law[right - 1] + up[:, None] * law[right]
    np.testing.assert_allclose(reports @ values, x, atol=1e-9)
    variance = reports @ values**2 - (reports @ values) ** 2
    assert 0.9999 * worst < variance.max() < worst * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_shapes_are_private_and_unbiased_exactly(epsilon: Fraction) -> None:
    shape = shape_at(epsilon)
    inside = Fraction(2**64 - shape.threshold, 2**64 * shape.window)
    outside = Fraction(shape.threshold, 2**64 * (len(shape.z) - shape.window))
    assert inside / outside == shape.privacy_ratio <= exp_bounds(epsilon)[0]
    assert float(shape.privacy_ratio) == pytest.approx(math.exp(epsilon), rel=1e-9)
    total = sum(shape.z)
    for knot, window_sum in zip(shape.exact_knots, shape.sums, strict=True):
        mean = outside * total + (inside - outside) * window_sum
        assert mean / shape.scale == knot
    assert [shape.exact_knots[0], shape.exact_knots[-1]] == [Fraction(-1), Fraction(1)]
    assert list(shape.exact_knots) == sorted(set(shape.exact_knots))


def test_the_numbers_of_symbols_ascend_around_zero_and_fill_a_byte_and_two() -> None:
    for epsilon in {*EPSILONS, *(least or Fraction(1, 100) for least, *_ in _table())}:
        z, window = shape_at(epsilon).z, shape_at(epsilon).window
        with row(f"epsilon = {epsilon}"):
            assert 2 <= len(z) <= MOST_SYMBOLS
            assert 1 <= window < len(z)
            assert [*z] == sorted(z) == [-number for number in reversed(z)]
            assert z[-1] < 2**15
            assert all(first < later for first, later in zip(z, z[window:], strict=False))


MIXED = [shape_at(Fraction(x)) for x in ("0.5", "2", "4", "8")]


def one_report(shape: WindowShape) -> PiecewiseLaw:
    return PiecewiseLaw.of([shape], np.ones(1), np.ones(1), free=False)


def mixed(*, free: bool) -> PiecewiseLaw:
    counts = 4e3 * np.array([0.4, 0.3, 0.2, 0.1])
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    return PiecewiseLaw.of(MIXED, counts, shares / counts, free=free)


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4", "10"])
def test_no_data_of_a_mean_has_a_larger_cumulant(epsilon: str) -> None:
    """Of all data with one mean, mixtures of two knots are extreme: all pairs are tried."""
    shape = shape_at(Fraction(epsilon))
    law, chance = one_report(shape), shape.chances
    for z in np.geomspace(1e-3, law.max_tilt, 9):
        at = chance @ np.exp(z * shape.values)
        for theta in (-1.0, -0.61, 0.0, 0.37, 1.0):
            left = shape.knots <= theta
            right = shape.knots >= theta
            low, high = shape.knots[left][:, None], shape.knots[right]
            share = np.where(high > low, (theta - low) / np.maximum(high - low, 1e-300), 0.0)
            worst = ((1 - share) * at[left][:, None] + share * at[right]).max()
            found = law.cumulant(np.array([theta]), np.array([z])).value[0]
            assert found == pytest.approx(math.log(worst), rel=1e-9, abs=1e-14)


def test_derivatives_are_those_of_the_cumulant_and_a_tangent_is_above_it() -> None:
    law = mixed(free=False)
    theta, tilt = np.array([-0.7, 0.1, 0.4]), np.array([0.2, 1.0, 0.5]) * law.max_tilt / 4
    h, at = 1e-5, law.cumulant(theta, tilt)
    steps = h * tilt
    above, below = (law.cumulant(theta, tilt + sign * steps) for sign in (1, -1))
    right, left = (law.cumulant(theta + sign * h, tilt) for sign in (1, -1))
    assert (above.value - below.value) / (2 * steps) == pytest.approx(at.by_tilt, rel=1e-6)
    assert (above.by_tilt - below.by_tilt) / (2 * steps) == pytest.approx(at.curvature, rel=1e-6)
    assert (right.value - left.value) / (2 * h) == pytest.approx(at.by_theta, rel=1e-6)
    assert (right.by_tilt - left.by_tilt) / (2 * h) == pytest.approx(at.cross, rel=1e-6)
    for free in (False, True):
        value, slope = mixed(free=free).tangent(theta, tilt)
        assert value == pytest.approx(mixed(free=free).cumulant(theta, tilt).value)
        for x in (-1.0, -0.2, 0.9):
            other = law.cumulant(x + 0 * theta, tilt).value
            assert (value + slope * (x - theta) >= other - 1e-9).all()


def test_free_means_have_no_larger_cumulant() -> None:
    rng, law = np.random.default_rng(7), mixed(free=True)
    weight = law.counts * law.coefficient
    for scale in (0.05, 0.3, 1.0):
        tilt = np.array([law.max_tilt * scale])
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
        at = shape.chances @ np.exp(tilt * shape.values)
        found.append((float(at[0]), float(at[-1])))
    return found


@pytest.mark.parametrize("epsilon", ["0.1", "1", "4", "10"])
def test_moments_enclose_those_of_any_data(epsilon: str) -> None:
    shape, rng = shape_at(Fraction(epsilon)), np.random.default_rng(3)
    law, chance = one_report(shape), shape.chances
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


def report_law(shape: WindowShape, x: float) -> Floats:
    """Return the probabilities of the symbols for the input x."""
    return knots_of(shape, np.array([x])) @ shape.chances


def tails(parts: list[tuple[WindowShape, int, dict[float, int]]], margin: float) -> list[float]:
    """Return how often the sum of factor * z is above its mean by `margin`, and below it.

    A part has a shape, a whole factor, and how many reports each input has.
    """
    reach = sum(factor * shape.z[-1] * sum(data.values()) for shape, factor, data in parts)
    size = 2 ** (2 * reach).bit_length()
    transform, mean = np.ones(size // 2 + 1, dtype=np.complex128), 0.0
    for shape, factor, data in parts:
        for x, count in data.items():
            one = np.zeros(size)
            np.add.at(one, factor * np.array(shape.z) % size, report_law(shape, x))
            transform = transform * power(fft.rfft(one), count)
            mean += count * factor * x * float(shape.scale)
    chance = fft.fftshift(fft.irfft(transform, size))
    sums = np.arange(size) - size // 2
    return [float(chance[sums - mean >= margin].sum()), float(chance[mean - sums >= margin].sum())]


def power(values: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """Return the same by squares, which is faster than numpy's for complex numbers."""
    if exponent < 2:
        return values if exponent else np.ones_like(values)
    half = power(values, exponent // 2)
    return half * half * values if exponent % 2 else half * half


def noise_of(parts: list[tuple[WindowShape, int, dict[float, int]]]) -> PiecewiseNoise:
    """Return the noise of the same sum."""
    counts = np.array([float(sum(data.values())) for _, _, data in parts])
    coefficient = np.array([factor * float(shape.scale) for shape, factor, _ in parts])
    return PiecewiseNoise(counts, coefficient, tuple(shape for shape, _, _ in parts))


def hardest(shape: WindowShape, n: int) -> list[dict[float, int]]:
    """Return data at ends, at knots, between knots, narrow, wide, and of the largest variance."""
    x = np.linspace(-1, 1, 2001)
    squares = np.array([float(square) for square in shape.exact_squares])
    worst = float(x[np.argmax(np.interp(x, shape.knots, squares) - x**2)])
    knot = float(shape.knots[shape.windows // 3])
    next_one = float(shape.knots[shape.windows // 3 + 1])
    return [
        {1.0: n},
        {-1.0: n // 2, 1.0: n - n // 2},
        {knot: n},
        {(knot + next_one) / 2: n},
        {worst: n},
        {0.21: n // 2, 0.23: n - n // 2},
    ]


@pytest.mark.parametrize("epsilon", [0.25, 1, 2, 4, 8])
def test_exact_tails_are_below_p_whatever_one_level_holds(epsilon: float) -> None:
    shape = shape_at(Fraction(epsilon))
    for n, p in ((1, 0.025), (7, 1e-4), (12, 0.025)):
        for data in hardest(shape, n):
            parts = [(shape, 1, data)]
            assert max(tails(parts, noise_of(parts).deviation(float(np.log(p))))) <= p


@pytest.mark.parametrize("counts", [(5, 4), (9, 1), (1, 6)])
def test_exact_tails_are_below_p_for_levels_of_any_size(counts: tuple[int, int]) -> None:
    """One level huge and the other small; the weights are nearly optimal."""
    shapes = [shape_at(Fraction(1)), shape_at(Fraction(4))]
    data = [hardest(shape, n) for shape, n in zip(shapes, counts, strict=True)]
    for first, second in zip(data[0], data[1], strict=True):
        parts = list(zip(shapes, (1, 3), (first, second), strict=True))
        bound = noise_of(parts).deviation(float(np.log(0.025)))
        assert max(tails(parts, bound)) <= 0.025


@pytest.mark.parametrize("p", [5e-4, 5e-8, 1e-300])
def test_noise_of_two_reports_has_a_bound_however_small_p_is(p: float) -> None:
    """Steep tilts leave a level with one symbol, whose variance rounds to zero or below."""
    shapes = tuple(shape_at(Fraction(e)) for e in ("0.1", "12"))
    noise = PiecewiseNoise(np.ones(2), np.full(2, 0.5), shapes)
    bound = noise.deviation(np.log(p))
    assert 0 < bound < np.inf
    for x in (-1.0, 0.3, 1.0):
        laws = [report_law(shape, x) for shape in shapes]
        sums = np.add.outer(*(shape.values - x for shape in shapes)) / 2
        chance = np.multiply.outer(*laws)
        for sign in (1, -1):
            assert chance[sign * sums > bound].sum() <= p


@pytest.mark.parametrize("n", [1e9, 2.0**40])
def test_the_bound_of_many_reports_of_unequal_variance_is_no_less_than_normal(n: float) -> None:
    shapes = tuple(shape_at(Fraction(e)) for e in ("0.001", "20"))
    noise = PiecewiseNoise(np.full(2, n), np.full(2, 0.5 / n), shapes)
    normal = -special.ndtri(5e-10) * np.sqrt(noise.variance)
    assert normal < noise.deviation(np.log(5e-10)) < 1.01 * normal
