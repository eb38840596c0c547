"""Bounds for the mean of unit vectors drawn from a hemisphere: docs/proofs/spheres.md."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np

from estimators.bounds.fourier.deviation import sharpened_deviation
from estimators.bounds.fourier.remainder import (
    PAIRED_NODE_STEP,
    Pieces,
    frequency_nodes,
    largest_cumulants,
    log_paired_remainder,
)
from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS, deviation_bound
from estimators.bounds.spheres import (
    VectorNoise,
    inverse_mean_size,
    length_bounds,
    mean_cosh,
    sum_series,
)
from estimators.estimate import Floats

MAX_FREQUENCY = 3.2  # of tau, in standard deviations of Z: farther, the series loses digits
LINEAR_SHARES = (1.0, 0.5)
SERIES_ROUNDING = 1e-14  # above the rounding errors up to that frequency; too small to matter
SERIES_TOLERANCE = 1e-14  # relative error of a series: far above the rounding of its summands
MEAN_KNOTS = 17  # of the unknown mean of a coordinate; twice as many change no width by 0.1%


@dataclasses.dataclass(frozen=True)
class Directions(VectorNoise):
    """The error of independent reports from the hemispheres of their values.

    Parameters
    ----------
    contrast : ndarray of float64, shape (levels,)
        a_l, in (0, 1].
    """

    max_report_tilt: ClassVar[float] = 8.0

    contrast: Floats

    @property
    def coordinate_variance(self) -> float:
        """The largest variance of a coordinate of N."""
        return self.variance / self.dimension

    # Theorem 1 of docs/proofs/spheres.md
    def cumulant(self, tilt: Floats) -> Floats:
        """Return upper bounds on ln E exp(tilt <N, e>) for every unit vector e, shape (tilts,).

        Tilts are above 0; times the largest coefficient, at most `max_report_tilt` sqrt(d).
        """
        z = tilt[:, None] * self.coefficient
        return (self._grown(z) + (z * self.unit) ** 2 / 8) @ self.counts

    def coordinate_deviation(self, log_p: float) -> float:
        """Return a bound that |N_j| exceeds with probability 2 p: Theorem 3 of spheres.md."""
        scale = math.sqrt(-2 * log_p * self.dimension / self.variance)
        return sharpened_deviation(
            self._coordinate_cumulant, self._log_remainder, scale, self.max_tilt, log_p
        )

    @functools.cached_property
    def _means(self) -> Floats:
        """Knots for the mean of a report's coordinate, shape (levels, knots)."""
        max_mean: Floats = self.contrast / inverse_mean_size(self.dimension)
        return max_mean[:, None] * np.linspace(-1, 1, MEAN_KNOTS)

    def _grown(self, z: Floats) -> Floats:
        """Return E0 cosh(z Z) - 1 + a E0 (sinh z|Z| - z|Z|), shape of z, (..., levels)."""
        return _even_part(self.dimension, z) + self.contrast * _odd_part(self.dimension, z)

    def _psi(self, z: Floats) -> Floats:
        """Return the largest ln E e^(z (Z - m)) between knots, shape (levels, k, pieces)."""
        grown = self._grown(z)
        return np.stack(
            [
                largest_cumulants(step, means, excess[:, None] + step[:, None] * means)
                for step, means, excess in zip(z.T, self._means, grown.T, strict=True)
            ]
        )

    def _coordinate_cumulant(self, tilt: Floats) -> Floats:
        """Return upper bounds on ln E exp(tilt N_j), shape (tilts,)."""
        psi = self._psi(tilt[:, None] * self.coefficient).max(axis=2)
        rounding = float(self.counts @ (self.coefficient * self.unit) ** 2) / 8
        cumulant: Floats = self.counts @ psi + rounding * tilt**2
        return cumulant

    def _log_remainder(self, tilt: Floats) -> Floats:
        return np.array([self._log_remainder_at(t) for t in tilt.tolist()])

    def _log_remainder_at(self, tilt: float) -> float:
        d, a, s = self.dimension, self.contrast, self.coefficient
        frequencies = frequency_nodes(self.counts, s**2 / d, PAIRED_NODE_STEP)
        frequencies = frequencies[frequencies * s.max() <= MAX_FREQUENCY * math.sqrt(d)]
        t, tau = tilt * s, s[:, None] * frequencies
        radius = np.hypot(t[:, None], tau)
        odd = _odd_part(d, radius)
        mass = (1 + self._grown(t))[:, None] + t[:, None] * self._means
        moduli = hemisphere_moduli(d, a, t, tau, self._means, odd) / mass[..., None]
        modulus = np.maximum(moduli[:, :, :-1], moduli[:, :, 1:]).min(axis=0)
        rounding = np.exp(t * self.unit)
        modulus += ((radius * self.unit) ** 2 * rounding[:, None] / 8)[:, None]
        # E Z^2 e^(t Z) <= (1 + a) E0 Z^2 cosh(t Z), and C'' in terms of C in more dimensions
        second_moment = mean_cosh(d + 2, t**2) / d + t**2 * mean_cosh(d + 4, t**2) / (d * (d + 2))
        root = np.sqrt(((1 + a) * second_moment)[:, None] / mass) + self.unit
        variance = rounding[:, None] * (root * s[:, None]) ** 2
        psi, log_modulus = self._psi(t[None])[:, 0], np.log(modulus)
        levels = [Pieces(*level) for level in zip(psi, log_modulus, variance, strict=True)]
        squares = self.counts * s**2
        return log_paired_remainder(tilt, frequencies, self.counts, squares / squares.sum(), levels)

    def radius(self, log_beta: float) -> float:
        """Return a bound that |N| exceeds with probability beta: Theorem 4 of spheres.md."""
        return self.largest_length(self.cumulant, log_beta)

    def anytime_coordinate_deviation(self, log_p: float, total: float) -> float:
        """Return a bound on |N_j| that holds at all times, with probability 1 - 2 p."""
        return deviation_bound(self.cumulant, self.max_tilt, log_p, total)

    def anytime_radius(self, log_beta: float, total: float) -> float:
        """Return a bound on |N| that holds at all times: Theorem 6 of docs/proofs/spheres.md."""
        tilt = MIXTURE_TILTS * total * math.sqrt(self.dimension)
        allowed = tilt <= self.max_tilt
        if not allowed.any():
            return math.inf
        tilt = tilt[allowed]
        goal = self.cumulant(tilt) - log_beta - LOG_MIXTURE_WEIGHTS[allowed]
        return float(length_bounds(self.dimension, tilt, goal).min())


def _even_part(dimension: int, z: Floats) -> Floats:
    """Return an upper bound on E0 cosh(z Z) - 1, by its power series."""
    return _series(dimension, z, z**2 / (2 * dimension), 2)


def _odd_part(dimension: int, z: Floats) -> Floats:
    """Return an upper bound on E0 (sinh z|Z| - z|Z|), by its power series."""
    cube = 2 / (inverse_mean_size(dimension) * (dimension + 1))
    return _series(dimension, z, z**3 * (cube / 6), 3)


def _series(dimension: int, z: Floats, term: Floats, power: int) -> Floats:
    """Return the sum of z^q E0 |Z|^q / q! over q = power, power + 2, ...; `term`: that of power."""
    sums = sum_series(z**2, lambda k: (dimension + power + 2 * k) * (power + 2 * k + 2))
    return term * sums * (1 + SERIES_TOLERANCE)


def hemisphere_moduli(
    dimension: int, contrast: Floats, tilt: Floats, tau: Floats, means: Floats, odd: Floats
) -> Floats:
    """Return upper bounds on |E e^((t + i tau) Z)|, shape (bounds, levels, knots, nodes).

    Z has the mean m and a density 1 + a f with an odd f, |f| <= 1. Each bound is convex in m.

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
