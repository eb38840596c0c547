"""Bounds for the mean of unit vectors drawn from a hemisphere: docs/proofs/spheres.md."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import ClassVar

import numpy as np

from estimators.bounds.fourier.deviation import BEST_TILT_FACTOR, RELATIVE_TILTS, likely_deviations
from estimators.bounds.fourier.remainder import (
    PAIRED_NODE_STEP,
    Pieces,
    frequency_nodes,
    largest_cumulants,
    log_paired_remainder,
)
from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS, deviation_bounds
from estimators.bounds.spheres import (
    PerWindow,
    VectorNoise,
    inverse_mean_size,
    length_bounds,
    mean_cosh,
    sum_series,
)
from estimators.estimate import Floats, Indices
from estimators.interruption import checkpoint

MAX_FREQUENCY = 3.2  # largest tau, times the standard deviation of Z: beyond, digits are lost
LINEAR_SHARES = (1.0, 0.5)
SERIES_ROUNDING = 1e-14  # above the rounding errors up to that frequency; too small to matter
SERIES_TOLERANCE = 1e-14  # relative error of a series: far above the rounding of its summands
RELATIVE_DIGITS = 12  # digits of coefficients, far more than bounds need
LEAST_TILT, LOG_SQUARES_STEP = 1e-10, 0.1  # for the grids of tilts and of numbers of reports
MAX_TABLE_LEVELS = 512  # levels whose parts of remainders are kept
TRIED_STEPS, TRIED_CUTOFFS = (-1, 2), 32
"""The steps from a probably best tilt to the tilts that are tried; the number of candidates for
D."""
MEAN_KNOTS = 17  # for a coordinate's mean; twice as many change no width by 0.1%


@dataclasses.dataclass(frozen=True)
class Directions(VectorNoise):
    """The error of independent reports from the hemispheres of their values.

    `contrast`, shape (levels,): a_l, in (0, 1].
    """

    max_report_tilt: ClassVar[float] = 8.0

    contrast: Floats

    @property
    def coordinate_variance(self) -> PerWindow:
        """The largest variance of a coordinate of N."""
        return self.variance / self.dimension

    # Theorem 1 of docs/proofs/spheres.md
    def cumulant(self, tilt: Floats) -> Floats:
        """Return upper bounds on ln E exp(tilt <N, e>) for every unit vector e, shape of `tilt`.

        `tilt`, shape (..., tilts): above 0; its product with the largest coefficient is at most
        `max_report_tilt` sqrt(d).
        """
        z = tilt[..., None] * self.coefficient[..., None, :]
        grown = _grown(self.dimension, self.contrast, z) + (z * self.unit) ** 2 / 8
        cumulant: Floats = np.vecdot(grown, self.counts[..., None, :])
        return cumulant

    # Theorem 3 of docs/proofs/spheres.md
    def coordinate_deviation(self, log_p: float) -> PerWindow:
        """Return a bound that |N_j| exceeds with probability at most 2 p; `log_p`: ln p."""
        size = self.coefficient.max(axis=-1)
        relative = (self.coefficient / size[..., None]).reshape(-1, self.contrast.size)[0]
        relative = np.maximum(relative.round(RELATIVE_DIGITS), 10.0**-RELATIVE_DIGITS)
        tables = _tilt_tables(
            *(self.dimension, self.unit, tuple(self.contrast.tolist())), tuple(relative.tolist())
        )
        counts = self.counts.reshape(-1, self.contrast.size)
        deviations = tables.deviations(counts, log_p) * size.reshape(-1)
        return deviations.reshape(size.shape)

    def radius(self, log_beta: float) -> PerWindow:
        """Return a bound on |N|, wrong with probability at most beta: Theorem 4 of spheres.md.

        `log_beta`: ln beta.
        """
        return self.largest_length(self.cumulant, log_beta)

    def anytime_coordinate_deviation(self, log_p: float, total: PerWindow) -> PerWindow:
        """Return a bound on |N_j| that holds at all times with probability at least 1 - 2 p.

        The bound is infinite for very few reports. `log_p`: ln p; `total`: from
        :func:`estimators.weights.total_weight`.
        """
        tilt, log_weights = self._mixture(total)
        is_usable = np.isfinite(log_weights[..., 0])
        log_weights = np.where(is_usable[..., None], log_weights, 0.0)
        bounds = deviation_bounds(self.cumulant(tilt), tilt, log_weights, log_p)
        return np.where(is_usable, bounds, np.inf)[()]

    def _mixture(self, total: PerWindow) -> tuple[Floats, Floats]:
        """Return the tilts of a mixture on the scale of `total`, and the logarithms of weights.

        Those of tilts above the largest are -inf.
        """
        tilt, largest = (np.asarray(x)[..., None] for x in (total, self.max_tilt))
        tilt = MIXTURE_TILTS * tilt
        log_weights = np.where(tilt <= largest, LOG_MIXTURE_WEIGHTS, -np.inf)
        return np.minimum(tilt, largest), log_weights

    def anytime_radius(self, log_beta: float, total: PerWindow) -> PerWindow:
        """Return a bound on |N| that holds at all times: Theorem 6 of docs/proofs/spheres.md.

        It is wrong at some time with probability at most beta, and infinite for very few reports.
        `log_beta`: ln beta; `total`: from :func:`estimators.weights.total_weight`.
        """
        tilt, log_weights = self._mixture(total * math.sqrt(self.dimension))
        goal = self.cumulant(tilt) - log_beta - log_weights
        return length_bounds(self.dimension, tilt, goal).min(axis=-1)


class _TiltTables:
    """Bounds on coordinates of many windows, whose coefficients are multiples of each other.

    Numbers are in units of the largest coefficient. Tilts, and the standard deviations for which
    nodes are chosen, are on geometric grids, so that windows with similar numbers of reports share
    tables. Every tilt and all nodes give valid bounds.

    `contrast`, `relative`, shape (levels,): a_l, and s_l over the largest of them.
    """

    def __init__(self, dimension: int, unit: float, contrast: Floats, relative: Floats) -> None:
        self.dimension, self.unit, self.contrast = dimension, unit, contrast
        self.relative = relative
        max_mean = contrast / inverse_mean_size(dimension)
        self._means: Floats = max_mean[:, None] * np.linspace(-1, 1, MEAN_KNOTS)
        largest = Directions.max_report_tilt * math.sqrt(dimension)
        steps = math.ceil(math.log(largest / LEAST_TILT) / -math.log(BEST_TILT_FACTOR))
        self.tilts = largest * BEST_TILT_FACTOR ** np.arange(steps, -1, -1.0)
        z = self.tilts[:, None] * relative
        psi = self._psi(z).max(axis=2)
        self.cumulants = psi + (z.T * unit) ** 2 / 8
        self.remainder = functools.lru_cache(maxsize=MAX_TABLE_LEVELS // contrast.size)(self._parts)

    def deviations(self, counts: Floats, log_p: float) -> Floats:
        """Return bounds that |N_j| exceeds with probability at most 2 p, shape (windows,).

        `counts`, shape (windows, levels): reports of each level; `log_p`: ln p.
        """
        value, squares = counts @ self.cumulants, counts @ self.relative**2
        scale = np.sqrt(-2 * log_p * self.dimension / squares)
        likely = likely_deviations(self.tilts, value, log_p)
        is_near = (self.tilts >= scale[:, None] * RELATIVE_TILTS[0]) | (
            self.tilts >= self.tilts[-3]
        )
        near = np.where(is_near, likely, np.inf).argmin(axis=1)
        spread = np.rint(np.log(squares) / LOG_SQUARES_STEP).astype(np.intp)
        deviations = [
            self._deviations_at(near + step, spread, counts, value, squares, log_p)
            for step in TRIED_STEPS
        ]
        least: Floats = np.minimum.reduce(deviations)
        return least

    def _deviations_at(
        self,
        index: Indices,
        spread: Indices,
        counts: Floats,
        value: Floats,
        squares: Floats,
        log_p: float,
    ) -> Floats:
        """Return each window's bound at the tilt with its `index`.

        `spread`: the step on the grid of numbers of reports by which nodes are chosen.
        """
        index = np.clip(index, 0, self.tilts.size - 1)
        keys, group = np.unique(np.stack([index, spread]), axis=1, return_inverse=True)
        log_remainders = np.empty(len(counts))
        for number, key in enumerate(keys.T.tolist()):
            rows = np.flatnonzero(group == number)
            shares = counts[rows] * self.relative**2 / squares[rows, None]
            frequencies, levels = self.remainder(*key)
            log_remainders[rows] = log_paired_remainder(
                *(float(self.tilts[key[0]]), frequencies, counts[rows], shares, levels),
                number=TRIED_CUTOFFS,
            )
        chernoff = value[np.arange(len(counts)), index]
        deviations: Floats = (chernoff + log_remainders - log_p) / self.tilts[index]
        return deviations

    def _psi(self, z: Floats) -> Floats:
        """Return the largest ln E e^(z (Z - m)) between knots, shape (levels, k, pieces)."""
        grown = _grown(self.dimension, self.contrast, z)
        return np.stack(
            [
                largest_cumulants(step, means, excess[:, None] + step[:, None] * means)
                for step, means, excess in zip(z.T, self._means, grown.T, strict=True)
            ]
        )

    def _parts(self, tilt_index: int, spread: int) -> tuple[Floats, list[Pieces]]:
        """Return the nodes, and the parts of the remainder, for a tilt and a number of reports.

        `tilt_index`, `spread`: both as steps on their grids.
        """
        checkpoint()
        d, a, s = self.dimension, self.contrast, self.relative
        reports = np.array([math.exp(LOG_SQUARES_STEP * spread)])
        frequencies = frequency_nodes(reports, np.array([1 / d]), PAIRED_NODE_STEP)
        last = MAX_FREQUENCY * math.sqrt(d)
        if frequencies[-1] > last:
            frequencies = np.append(frequencies[frequencies < last], last)
        t, tau = float(self.tilts[tilt_index]) * s, s[:, None] * frequencies
        radius = np.hypot(t[:, None], tau)
        odd = _odd_part(d, radius)
        mass = (1 + _grown(d, a, t))[:, None] + t[:, None] * self._means
        moduli = hemisphere_moduli(d, a, t, tau, self._means, odd) / mass[..., None]
        modulus = np.maximum(moduli[:, :, :-1], moduli[:, :, 1:]).min(axis=0)
        rounding = np.exp(t * self.unit)
        modulus += ((radius * self.unit) ** 2 * rounding[:, None] / 8)[:, None]
        # E Z^2 e^(t Z) <= (1 + a) E0 Z^2 cosh(t Z), and C'' in terms of C in more dimensions
        second_moment = mean_cosh(d + 2, t**2) / d + t**2 * mean_cosh(d + 4, t**2) / (d * (d + 2))
        root = np.sqrt(((1 + a) * second_moment)[:, None] / mass) + self.unit
        variance = rounding[:, None] * (root * s[:, None]) ** 2
        psi = self._psi(t[None])[:, 0]
        return frequencies, [Pieces(*level) for level in zip(psi, modulus, variance, strict=True)]


@functools.lru_cache(maxsize=16)
def _tilt_tables(
    dimension: int, unit: float, contrast: tuple[float, ...], relative: tuple[float, ...]
) -> _TiltTables:
    return _TiltTables(dimension, unit, np.array(contrast), np.array(relative))


def _grown(dimension: int, contrast: Floats, z: Floats) -> Floats:
    """Return E0 cosh(z Z) - 1 + a E0 (sinh z|Z| - z|Z|), shape of z, (..., levels)."""
    return _even_part(dimension, z) + contrast * _odd_part(dimension, z)


def _even_part(dimension: int, z: Floats) -> Floats:
    """Return an upper bound on E0 cosh(z Z) - 1, by its power series."""
    return _series(dimension, z, z**2 / (2 * dimension), 2)


def _odd_part(dimension: int, z: Floats) -> Floats:
    """Return an upper bound on E0 (sinh z|Z| - z|Z|), by its power series."""
    cube = 2 / (inverse_mean_size(dimension) * (dimension + 1))
    return _series(dimension, z, z**3 * (cube / 6), 3)


def _series(dimension: int, z: Floats, term: Floats, power: int) -> Floats:
    """Return the sum of z^q E0 |Z|^q / q! for q = power, power + 2, ...; `term`: its first term."""
    sums = sum_series(z**2, lambda k: (dimension + power + 2 * k) * (power + 2 * k + 2))
    return term * sums * (1 + SERIES_TOLERANCE)


def hemisphere_moduli(
    dimension: int, contrast: Floats, tilt: Floats, tau: Floats, means: Floats, odd: Floats
) -> Floats:
    """Return upper bounds on |E e^((t + i tau) Z)|, shape (bounds, levels, knots, nodes).

    Z has the mean m and a density 1 + a f with an odd f, |f| <= 1. Each bound is convex in m.
    `dimension`: d, at least 1; `contrast`, `tilt`, shape (levels,): a and t; `tau`, shape (levels,
    nodes): at most MAX_FREQUENCY sqrt(d); `means`, shape (levels, knots): m; `odd`, shape (levels,
    nodes): E0 (sinh r|Z| - r |Z|) at r = |t + i tau|, or more.
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
