"""The modulus of a coordinate of directions from a hemisphere.

Theorem 2 of docs/proofs/spheres.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Floats

T = TypeVar("T", np.float64, np.complex128)

MAX_FREQUENCY = 3.2  # of tau, in standard deviations of Z: farther, the series loses digits
LINEAR_SHARES = (1.0, 0.5)
SERIES_ROUNDING = 1e-14  # more than the digits that are lost up to there, and far below any effect


def hemisphere_moduli(
    dimension: int, contrast: Floats, tilt: Floats, tau: Floats, means: Floats, odd: Floats
) -> Floats:
    """Bound |E e^((t + i tau) Z)| for a density 1 + a f, f odd, |f| <= 1, and E Z = m.

    Returns several bounds that are convex in m, shape (bounds, levels, knots, nodes).

    Parameters
    ----------
    dimension : int
        d, at least 1.
    contrast, tilt : ndarray of float64, shape (levels,)
        a and t.
    tau : ndarray of float64, shape (levels, nodes)
        At most MAX_FREQUENCY sqrt(d).
    means : ndarray of float64, shape (levels, knots)
        m.
    odd : ndarray of float64, shape (levels, nodes)
        E0 (sinh r|Z| - r |Z|) at r = |t + i tau|, or more.
    """
    z = np.asarray(tilt[:, None] + 1j * tau, dtype=np.complex128)
    even, higher = mean_cosh(dimension, z * z), mean_cosh(dimension + 2, z * z)
    slope, a, m = z * higher, contrast[:, None], means[:, :, None]
    square = mean_cosh(dimension, 4 * tilt[:, None] ** 2) - mean_cosh(dimension, -4 * tau**2)
    bounds = [np.abs(even[:, None] + z[:, None] * m) + (a * odd)[:, None]]
    for part in LINEAR_SHARES:
        mean_square = square / 2 - part * (2 - part) * np.abs(slope) ** 2 / dimension
        root = a * np.sqrt(np.maximum(mean_square, 0.0) + SERIES_ROUNDING * square)
        bounds.append(np.abs(even[:, None] + part * slope[:, None] * m) + root[:, None])
    return np.stack(bounds) + SERIES_ROUNDING


def mean_cosh(dimension: int, square: NDArray[T]) -> NDArray[T]:
    """Return E0 cosh(z Z), Z a coordinate of a uniform unit vector, from z^2.

    Examples
    --------
    >>> float(mean_cosh(1, np.array([4.0]))[0].round(6)), float(np.cosh(2).round(6))
    (3.762196, 3.762196)
    """
    return sum_series(square / 4, lambda k: (k + 1) * (dimension / 2 + k))


def sum_series(x: NDArray[T], ratio: Callable[[int], float]) -> NDArray[T]:
    """Return 1 + x / r_0 + x^2 / (r_0 r_1) + ..., by Horner's scheme.

    `ratio` returns r_k > 0, which grows. Once it is above 2 |x|, the omitted rest is below the last
    summand, which is below 1e-17.
    """
    largest, ratios, last_term = float(np.abs(x).max(initial=0.0)), [ratio(0)], 1.0
    while last_term > 1e-17 or largest > ratios[-1] / 2:
        last_term *= largest / ratios[-1]
        ratios.append(ratio(len(ratios)))
    total = np.ones_like(x)
    for divisor in reversed(ratios):
        total *= x
        total /= divisor
        total += 1
    return total
