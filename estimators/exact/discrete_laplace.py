"""The discrete Laplace law: P(z) proportional to exp(-rate |z|) on the integers."""

from __future__ import annotations

import numpy as np

from estimators.estimate import Floats


def variance(rate: Floats) -> Floats:
    """Return the variance E z^2 = 1 / (2 sinh^2(rate / 2)).

    >>> float(variance(np.array(2e-4)).round()), "continuous: 2 / rate^2"
    (50000000.0, 'continuous: 2 / rate^2')
    """
    return 1 / (2 * np.sinh(rate / 2) ** 2)


def absolute_moment(rate: Floats) -> Floats:
    """Return E |z| = 1 / sinh(rate)."""
    return 1 / np.sinh(rate)


def third_absolute_moment(rate: Floats) -> Floats:
    """Return E |z|^3 = (cosh(rate) + 2) / (4 sinh^3(rate / 2) cosh(rate / 2))."""
    half = rate / 2
    sinh: Floats = np.sinh(half)
    return (3 / sinh**2 + 2) / (4 * sinh * np.cosh(half))


def cumulant(rate: Floats, tilt: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ln E exp(tilt z) and its first two derivatives in `tilt`.

    `rate`, `tilt`: shapes that broadcast; 0 <= tilt < rate. With u = tilt, E exp(u z) =
    (cosh(rate) - 1) / (cosh(rate) - cosh(u)) = 1 / (1 - sinh^2(u/2) / sinh^2(rate/2)).
    """
    squared, scale = np.sinh(tilt / 2) ** 2, np.sinh(rate / 2) ** 2
    gap = scale - squared
    slope = np.sinh(tilt) / (2 * gap)
    return -np.log1p(-squared / scale), slope, np.cosh(tilt) / (2 * gap) + slope**2
