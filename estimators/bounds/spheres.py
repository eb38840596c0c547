"""Bounds for the mean of unit vectors drawn from a hemisphere: docs/proofs/spheres.md."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from estimators.bounds import anytime
from estimators.bounds.fourier.deviation import sharpened_deviation
from estimators.bounds.fourier.hemispheres import (
    MAX_FREQUENCY,
    hemisphere_moduli,
    mean_cosh,
    sum_series,
)
from estimators.bounds.fourier.pieces import (
    PAIRED_NODE_STEP,
    Pieces,
    largest_cumulants,
    log_paired_remainder,
)
from estimators.bounds.fourier.remainder import frequency_nodes
from estimators.bounds.intervals import normal_quantile
from estimators.estimate import Floats
from estimators.question import Question

MAX_DIRECTION_TILT = (
    8.0  # of a report's tilt over sqrt(d): a steeper one is of use to a handful of reports
)
COARSE_STRIDE = 8  # of some hundred tilts that are a few percent apart
MAX_LENGTH_STEPS, LENGTH_TOLERANCE = 40, 1e-12  # of Newton's method; five to eight are enough
SERIES_TOLERANCE = 1e-14  # of a series: far above the rounding errors of its summands
MEAN_KNOTS = 17  # of the unknown mean of a coordinate; twice as many change no width by 0.1%


class VectorNoise(Protocol):
    """The error N of a weighted mean of unit vectors; each part is as in :class:`Directions`."""

    @property
    def dimension(self) -> int:
        """The number of coordinates."""

    @property
    def counts(self) -> Floats:
        """Reports per level."""

    @property
    def coefficient(self) -> Floats:
        """The factor of one report, per level."""

    @property
    def unit(self) -> float:
        """The step of the grid."""

    @property
    def variance(self) -> float:
        """The largest E |N|^2 over all data."""


class VectorLaw(VectorNoise, Protocol):
    """The same with its bounds."""

    @property
    def coordinate_variance(self) -> float | Floats:
        """The variance of each coordinate of N, for bounds from the normal law."""

    def coordinate_deviation(self, log_p: float) -> float | Floats:
        """Bound each coordinate of N: it stays below with probability 1 - 2 p."""

    def radius(self, log_beta: float) -> float:
        """Bound the length of N with probability 1 - beta."""

    def anytime_coordinate_deviation(self, log_p: float, total: float) -> float | Floats:
        """Bound each coordinate of N at all times at once."""

    def anytime_radius(self, log_beta: float, total: float) -> float:
        """Bound the length of N at all times at once."""


@dataclasses.dataclass(frozen=True)
class Directions:
    """Independent reports of several levels, and the error N = sum of s_i (Y_i - E Y_i).

    Parameters
    ----------
    dimension : int
        d, at least 1.
    counts : ndarray of float64, shape (levels,)
        Reports per level, each above zero.
    coefficient : ndarray of float64, shape (levels,)
        s_l, above zero: the factor of one report.
    contrast : ndarray of float64, shape (levels,)
        a_l, in (0, 1].
    unit : float
        The step of the grid that coordinates are rounded to at random.
    """

    dimension: int
    counts: Floats
    coefficient: Floats
    contrast: Floats
    unit: float

    @functools.cached_property
    def variance(self) -> float:
        """The largest E |N|^2 over all data."""
        rounding = self.dimension * self.unit**2 / 4
        return float(self.counts @ self.coefficient**2) * (1 + rounding)

    @property
    def coordinate_variance(self) -> float:
        """The largest variance of a coordinate of N."""
        return self.variance / self.dimension

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt <N, e>) for every unit vector e: Theorem 1 of docs/proofs/spheres.md.

        Parameters
        ----------
        tilt : ndarray of float64, shape (tilts,)
            Above 0; tilt times the largest coefficient is at most MAX_DIRECTION_TILT sqrt(d).
        """
        z = tilt[:, None] * self.coefficient
        terms = _even_part(self.dimension, z) + self.contrast * _odd_part(self.dimension, z)
        return (terms + (z * self.unit) ** 2 / 8) @ self.counts

    def coordinate_deviation(self, log_p: float) -> float:
        """Bound |N_j| with probability 1 - 2 p: Theorem 3 of docs/proofs/spheres.md."""
        scale = math.sqrt(-2 * log_p * self.dimension / self.variance)
        return sharpened_deviation(
            self._coordinate_cumulant, self._log_remainder, scale, self.max_tilt, log_p
        )

    @functools.cached_property
    def _means(self) -> Floats:
        """Knots for the mean of a report's coordinate, shape (levels, knots)."""
        farthest: Floats = self.contrast / inverse_mean_size(self.dimension)
        return farthest[:, None] * np.linspace(-1, 1, MEAN_KNOTS)

    def _grown(self, z: Floats) -> Floats:
        """Return E0 cosh(z Z) - 1 + a E0 (sinh z|Z| - z|Z|), shape of z, (..., levels)."""
        return _even_part(self.dimension, z) + self.contrast * _odd_part(self.dimension, z)

    def _psi(self, z: Floats) -> Floats:
        """Return the largest ln E e^(z (Z - m)) between knots, shape (levels, k, pieces)."""
        grown = self._grown(z)
        return np.stack(
            [
                largest_cumulants(step, means, more[:, None] + step[:, None] * means)
                for step, means, more in zip(z.T, self._means, grown.T, strict=True)
            ]
        )

    def _coordinate_cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt N_j)."""
        psi = self._psi(tilt[:, None] * self.coefficient).max(axis=2)
        rounding = float(self.counts @ (self.coefficient * self.unit) ** 2) / 8
        cumulant: Floats = self.counts @ psi + rounding * tilt**2
        return cumulant

    def _log_remainder(self, tilt: Floats) -> Floats:
        return np.array([self._log_remainder_at(single_tilt) for single_tilt in tilt.tolist()])

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
        """Bound |N| with probability 1 - beta: Theorem 4 of docs/proofs/spheres.md."""
        # for a normal N of length R sqrt(variance) the best tilt is d (R - 1/R) / sqrt(variance)
        tilt = np.minimum(
            np.geomspace(0.02, 4, 200)
            * math.sqrt(self.dimension * self.dimension / self.variance)
            * math.sqrt(-2 * log_beta / self.dimension + 1),
            self.max_tilt,
        )
        markov = length_bound(self.dimension, tilt, lambda t: self.cumulant(t) - log_beta)
        return min(markov, mcdiarmid_length(self, log_beta))

    @property
    def max_tilt(self) -> float:
        """The largest tilt for :meth:`cumulant`."""
        return MAX_DIRECTION_TILT * math.sqrt(self.dimension) / float(self.coefficient.max())

    def anytime_coordinate_deviation(self, log_p: float, total: float) -> float:
        """Bound one coordinate of N at all times at once."""
        return anytime.deviation_bound(self.cumulant, self.max_tilt, log_p, total)

    def anytime_radius(self, log_beta: float, total: float) -> float:
        """Bound |N| at all times at once: Theorem 6 of docs/proofs/spheres.md."""
        tilt = anytime.MIXTURE_TILTS * total * math.sqrt(self.dimension)
        allowed = tilt <= self.max_tilt
        if not allowed.any():
            return math.inf
        tilt = tilt[allowed]
        goal = self.cumulant(tilt) - log_beta - anytime.LOG_MIXTURE_WEIGHTS[allowed]
        return float(length_bounds(self.dimension, tilt, goal).min())


def length_bound(dimension: int, tilt: Floats, goal: Callable[[Floats], Floats]) -> float:
    """Return the least R with ln M(t R) >= goal(t) for one of the tilts t.

    Every COARSE_STRIDE-th tilt is tried, and then those around the best one.

    Parameters
    ----------
    dimension : int
        d, of the sphere of M.
    tilt : ndarray of float64, shape (tilts,)
        Ascending.
    goal : callable
        For an array of tilts; above 0.
    """
    coarse = length_bounds(dimension, tilt[::COARSE_STRIDE], goal(tilt[::COARSE_STRIDE]))
    best_index = COARSE_STRIDE * int(coarse.argmin())
    fine_tilts = tilt[max(best_index - COARSE_STRIDE + 1, 0) : best_index + COARSE_STRIDE]
    return float(min(coarse.min(), length_bounds(dimension, fine_tilts, goal(fine_tilts)).min()))


def length_bounds(dimension: int, tilt: Floats, goal: Floats) -> Floats:
    """Return R with ln M(t R) >= goal for each tilt t, shape (tilts,); inf where goal is infinite.

    Theorem 5 of docs/proofs/spheres.md.

    Parameters
    ----------
    dimension : int
        d, of the sphere of M.
    tilt, goal : ndarray of float64, shape (tilts,)
        Both above 0.
    """
    finite = np.isfinite(goal)
    log_mean_goal, inner, outer = goal[finite], (dimension - 1) / 2, (dimension + 1) / 2
    x = log_mean_goal + np.sqrt(log_mean_goal * (log_mean_goal + 2 * dimension))
    for _ in range(MAX_LENGTH_STEPS):
        step = (log_mean_cosh(dimension, x) - log_mean_goal) * ((inner + np.hypot(x, outer)) / x)
        x = x - step
        if (np.abs(step) <= LENGTH_TOLERANCE * x).all():
            break
    bounds = np.full(tilt.shape, np.inf)
    bounds[finite] = x * (1 + 2 * LENGTH_TOLERANCE) / tilt[finite]
    return bounds


def mcdiarmid_length(law: VectorNoise, log_beta: float) -> float:
    """Bound |N| by McDiarmid's inequality: Theorem 4 of docs/proofs/spheres.md."""
    step = 1 + math.sqrt(law.dimension) * law.unit
    spread = math.sqrt(float(law.counts @ law.coefficient**2)) * step
    return math.sqrt(law.variance) + spread * math.sqrt(-2 * log_beta)


def vector_deviations(
    law: VectorLaw, question: Question, total: float
) -> tuple[float | Floats, float]:
    """Return bounds on all coordinates of N at once, and on its length, for a question.

    Parameters
    ----------
    law : VectorLaw
    question : Question
        Coordinates and length fail with probability beta each.
    total : float
        From :func:`estimators.weights.total_weight`.
    """
    log_p, log_beta = question.log_p(law.dimension), math.log(question.beta)
    if question.bound == "normal":
        from scipy.special import chdtri

        length = math.sqrt(float(chdtri(law.dimension, question.beta)) / law.dimension)
        sd = np.sqrt(law.coordinate_variance)
        return normal_quantile(log_p) * sd, length * math.sqrt(law.variance)
    if question.bound == "anytime":
        side = law.anytime_coordinate_deviation(log_p, total)
        return side, law.anytime_radius(log_beta, total)
    return law.coordinate_deviation(log_p), law.radius(log_beta)


def inverse_mean_size(dimension: int) -> float:
    """Return K_d = sqrt(pi) Gamma((d + 1) / 2) / Gamma(d / 2), which is 1 / E0 |Z|.

    Examples
    --------
    >>> [round(inverse_mean_size(d), 6) for d in (1, 2, 3)]
    [1.0, 1.570796, 2.0]
    """
    return math.sqrt(math.pi) * math.exp(
        math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2)
    )


def log_mean_cosh(dimension: int, x: Floats) -> Floats:
    """Bound ln E0 cosh(x Z) from below, nearly tight: Theorem 5 of docs/proofs/spheres.md.

    Examples
    --------
    >>> float(log_mean_cosh(3, np.array([2.0]))[0].round(4)), round(math.log(math.sinh(2) / 2), 4)
    (0.5846, 0.5952)
    """
    inner, outer = (dimension - 1) / 2, (dimension + 1) / 2
    root = np.hypot(x, outer)
    return x * (x / (root + outer)) - inner * np.log((inner + root) / dimension)


def _even_part(dimension: int, z: Floats) -> Floats:
    """Bound E0 cosh(z Z) - 1 from above, by its power series."""
    return _series(dimension, z, z**2 / (2 * dimension), 2)


def _odd_part(dimension: int, z: Floats) -> Floats:
    """Bound E0 (sinh z|Z| - z|Z|) from above, by its power series."""
    cube = 2 / (inverse_mean_size(dimension) * (dimension + 1))
    return _series(dimension, z, z**3 * (cube / 6), 3)


def _series(dimension: int, z: Floats, term: Floats, power: int) -> Floats:
    """Sum z^q E0 |Z|^q / q! for q = power, power + 2, ...; the first summand is given."""
    sums = sum_series(z**2, lambda k: (dimension + power + 2 * k) * (power + 2 * k + 2))
    return term * sums * (1 + SERIES_TOLERANCE)
