"""Shapes of windows: certificates, unbiasedness and variance against the optimum, exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from estimators.exact.thresholds import exp_bounds
from estimators.exact.windows import WindowShape, check_numbers, shape_at, two_symbols
from tests.support.reports.least_variances import LEAST_VARIANCES

EPSILONS = [Fraction(k, 20) for k in (1, 4, 9, 19, 20, 33, 40, 63, 80, 100, 111, 112, 150, 259)]


def _probabilities(shape: WindowShape) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the law of reports at each knot from the integers alone, shape (windows, M)."""
    symbols, window = len(shape.z), shape.window
    miss = shape.threshold / 2**64
    rows = np.full((symbols - window + 1, symbols), miss / (symbols - window))
    for s, row in enumerate(rows):
        row[s : s + window] = (1 - miss) / window
    return rows


@pytest.mark.parametrize("epsilon", list(LEAST_VARIANCES)[::3])
def test_the_worst_variance_is_within_5_percent_of_the_optimum(epsilon: str) -> None:
    shape = shape_at(Fraction(epsilon))
    worst = float(shape.worst_variance)
    assert 0.999 < worst / LEAST_VARIANCES[epsilon] < 1.05
    # again, on a fine grid, from probabilities and rounding written out
    law, values = _probabilities(shape), shape.values
    x = np.linspace(-1, 1, 20_001)
    right = np.clip(np.searchsorted(shape.knots, x), 1, len(law) - 1)
    up = (x - shape.knots[right - 1]) / (shape.knots[right] - shape.knots[right - 1])
    reports = (1 - up)[:, None] * law[right - 1] + up[:, None] * law[right]
    np.testing.assert_allclose(reports @ values, x, atol=1e-9)
    variance = reports @ values**2 - (reports @ values) ** 2
    assert 0.9999 * worst < variance.max() < worst * (1 + 1e-9)
    np.testing.assert_allclose(shape.variance(x), variance, rtol=1e-7)


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


def test_two_symbols_are_randomized_response() -> None:
    shape = two_symbols(Fraction(1))
    contrast = 1 - 2 * Fraction(shape.threshold, 2**64)
    assert shape.worst_variance == 1 / contrast**2
    assert shape_at(Fraction("0.41")).z == shape.z


def test_large_epsilons_keep_the_last_shape_with_a_threshold_of_their_own() -> None:
    last, beyond = shape_at(Fraction("12.9")), shape_at(Fraction(20))
    assert (last.symbols, last.window) == (253, 4)
    assert beyond.z == last.z
    assert beyond.threshold < last.threshold
    assert 1e-4 < float(beyond.worst_variance) < 2e-4


def test_a_limit_on_symbols_costs_little() -> None:
    assert shape_at(Fraction(10), 128).symbols <= 128
    ratio = shape_at(Fraction(10), 128).worst_variance / shape_at(Fraction(10)).worst_variance
    assert 1 < ratio < 1.05
    with pytest.raises(ValueError, match="symbols = 63: expected 64 to 255"):
        shape_at(Fraction(10), 63)


def test_numbers_that_are_no_shape_are_rejected() -> None:
    cases: list[tuple[tuple[int, ...], int, str]] = [
        ((-1, 0, 2), 1, "minus the first"),
        ((1, 0, -1), 1, "ascending"),
        ((-(2**15), 2**15), 1, "below 32768"),
        ((-1, 0, 0, 1), 1, "no more than 1 equal numbers"),
        ((-1, 1), 2, "window = 2: expected 1 to 1"),
        ((0,), 1, "1 symbols: expected 2 to 255"),
    ]
    for z, window, message in cases:
        for make in (check_numbers, lambda *shape: WindowShape(2**60, *reversed(shape))):
            with pytest.raises(ValueError, match=message):
                make(z, window)
    with pytest.raises(ValueError, match="expected 1 to 2\\^64 - 1"):
        WindowShape(2**64, 1, (-1, 1))
