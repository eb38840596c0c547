"""The noise of windows, for users' own values: exact tails of fixed data against its bound."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import fft, special

from estimators.bounds.fourier.windows import WindowNoise
from estimators.estimate import Floats
from estimators.exact.windows import WindowShape, shape_at


def report_law(shape: WindowShape, x: float) -> Floats:
    """Return the probabilities of the symbols for the input x."""
    knot = min(int(np.searchsorted(shape.knots, x, "right")) - 1, shape.windows - 2)
    left, right = shape.knots[knot], shape.knots[knot + 1]
    share = (x - left) / (right - left)
    chances = np.full(shape.symbols, float(shape.outside))
    chances[knot : knot + shape.window] += (1 - share) * float(shape.inside - shape.outside)
    chances[knot + 1 : knot + 1 + shape.window] += share * float(shape.inside - shape.outside)
    return chances


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


def noise_of(parts: list[tuple[WindowShape, int, dict[float, int]]]) -> WindowNoise:
    """Return the noise of the same sum."""
    counts = np.array([float(sum(data.values())) for _, _, data in parts])
    coefficient = np.array([factor * float(shape.scale) for shape, factor, _ in parts])
    return WindowNoise(counts, coefficient, tuple(shape for shape, _, _ in parts))


def hardest(shape: WindowShape, n: int) -> list[dict[float, int]]:
    """Return data at ends, at knots, between knots, narrow, wide, and of the largest variance."""
    x = np.linspace(-1, 1, 2001)
    worst = float(x[np.argmax(shape.variance(x))])
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


@pytest.mark.parametrize("epsilon", [0.25, 4, 12])
def test_no_input_has_a_larger_cumulant(epsilon: float) -> None:
    shape = shape_at(Fraction(epsilon))
    noise = WindowNoise(np.ones(1), np.ones(1), (shape,))
    tilt = np.geomspace(0.01, noise.steepest, 30)
    found = noise.cumulant(tilt)
    for x in np.concatenate([np.linspace(-1, 1, 301), shape.knots]):
        chances = report_law(shape, float(np.clip(x, -1, 1)))
        exact = np.log(np.exp(tilt[:, None] * shape.values) @ chances) - tilt * x
        assert np.all(exact <= found + 1e-9)


def test_the_half_width_is_close_to_the_normal_one() -> None:
    limits = {1: (1.02, 1.01), 2: (1.03, 1.02), 4: (1.05, 1.02), 8: (1.15, 1.05)}
    for epsilon, most in limits.items():
        for n, limit in zip((1_000, 10_000), most, strict=True):
            shapes = (shape_at(Fraction(epsilon)),)
            noise = WindowNoise(np.array([float(n)]), np.array([1 / n]), shapes)
            half = noise.deviation(np.log(0.025)) / (1.959964 * noise.variance**0.5)
            assert 1 < half < limit, (epsilon, n)


@pytest.mark.parametrize("p", [5e-4, 5e-8, 1e-300])
def test_noise_of_two_reports_has_a_bound_however_small_p_is(p: float) -> None:
    """Steep tilts leave a level with one symbol, whose variance rounds to zero or below."""
    shapes = tuple(shape_at(Fraction(e)) for e in ("0.1", "12"))
    noise = WindowNoise(np.ones(2), np.full(2, 0.5), shapes)
    bound = noise.deviation(np.log(p))
    assert 0 < bound < np.inf
    for x in (-1.0, 0.3, 1.0):
        laws = [report_law(shape, x) for shape in shapes]
        sums = np.add.outer(*(shape.values - x for shape in shapes)) / 2
        chance = np.multiply.outer(*laws)
        for sign in (1, -1):
            assert chance[sign * sums > bound].sum() <= p


@pytest.mark.parametrize("n", [1e9, 2.0**40])
def test_the_bound_of_many_reports_of_very_unequal_variance_is_no_less_than_normal(
    n: float,
) -> None:
    shapes = tuple(shape_at(Fraction(e)) for e in ("0.001", "20"))
    noise = WindowNoise(np.full(2, n), np.full(2, 0.5 / n), shapes)
    normal = -special.ndtri(5e-10) * np.sqrt(noise.variance)
    assert normal < noise.deviation(np.log(5e-10)) < 1.01 * normal
