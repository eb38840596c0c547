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
    Cutoffs,
    Pieces,
    frequency_nodes,
    largest_cumulants,
    log_factors_of_cells,
)
from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS, deviation_bounds
from estimators.bounds.signs.law import blocks
from estimators.bounds.spheres import (
    PerWindow,
    VectorNoise,
    inverse_mean_size,
    length_bounds,
    mean_cosh,
    sum_series,
)
from estimators.estimate import Bools, Floats, Indices
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
FEW_REPORTS_TILT, RARE_LOG_P = 0.06, -9.0
"""Only the first step is tried, or 0 below this ln p, if the tilt is smaller, in units of sqrt(d):
then the bound is at most 0.05% above the best one, as measured."""
BLOCK_PARTS = 2  # of a usual block of numbers: a block of levels has one of them
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
        levels = [slice(level, level + 1) for level in range(relative.size)]
        psi = np.stack([self._psi(z[:, level], level)[:, 0].max(axis=1) for level in levels])
        self.cumulants = psi + (z.T * unit) ** 2 / 8
        max_tables = MAX_TABLE_LEVELS // contrast.size
        self.remainder = functools.lru_cache(maxsize=max_tables)(self._remainder)

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
        is_few = self._has_few_reports(near)
        first = near + np.where(is_few | (log_p > RARE_LOG_P), TRIED_STEPS[0], 0)
        deviations = self._deviations_at(first, counts, value, squares, log_p)
        rows = np.flatnonzero(is_few)
        second = near[rows] + TRIED_STEPS[1]
        further = self._deviations_at(second, counts[rows], value[rows], squares[rows], log_p)
        deviations[rows] = np.minimum(deviations[rows], further)
        return deviations

    def _deviations_at(
        self, index: Indices, counts: Floats, value: Floats, squares: Floats, log_p: float
    ) -> Floats:
        """Return each window's bound at the tilt with its `index`."""
        index = np.clip(index, 0, self.tilts.size - 1)
        # the variance times the square of the tilt is nearly the same for all windows, so windows
        # with many reports and the same tilt share nodes
        log_squares, log_tilts = np.log(squares), np.log(self.tilts[index])
        steps = np.ceil((log_squares + 2 * log_tilts) / LOG_SQUARES_STEP)
        shared = LOG_SQUARES_STEP * steps - 2 * log_tilts
        log_squares = np.where(self._has_few_reports(index), log_squares, shared)
        spread = np.rint(log_squares / LOG_SQUARES_STEP)
        keys, group = np.unique(np.stack([index, spread]), axis=1, return_inverse=True)
        log_remainders = np.empty(len(counts))
        for number, key in enumerate(keys.T.astype(np.intp).tolist()):
            rows = np.flatnonzero(group == number)
            shares = counts[rows] * self.relative**2 / squares[rows, None]
            log_remainders[rows] = self.remainder(*key).log_remainder(counts[rows], shares)
        chernoff = value[np.arange(len(counts)), index]
        deviations: Floats = (chernoff + log_remainders - log_p) / self.tilts[index]
        return deviations

    def _has_few_reports(self, index: Indices) -> Bools:
        """Return whether tilts are so large that windows which need them have few reports."""
        is_large: Bools = self.tilts[index] >= FEW_REPORTS_TILT * math.sqrt(self.dimension)
        return is_large | (self.dimension == 1)

    def _psi(self, z: Floats, levels: slice) -> Floats:
        """Return the largest ln E e^(z (Z - m)) between knots, (..., levels, pieces)."""
        means, step = self._means[levels], z[..., None]
        grown = _grown(self.dimension, self.contrast[levels], z)[..., None] + step * means
        return largest_cumulants(z, means, grown)

    def _remainder(self, tilt_index: int, spread: int) -> _Remainder:
        """Return the remainder for a tilt and a number of reports, both as steps on their grids."""
        checkpoint()
        d, tilt = self.dimension, float(self.tilts[tilt_index])
        reports = np.array([math.exp(LOG_SQUARES_STEP * spread)])
        frequencies = frequency_nodes(reports, np.array([1 / d]), PAIRED_NODE_STEP)
        last = MAX_FREQUENCY * math.sqrt(d)
        if frequencies[-1] > last:
            frequencies = np.append(frequencies[frequencies < last], last)
        parts = blocks(self.contrast.size, BLOCK_PARTS * MEAN_KNOTS * frequencies.size)
        pieces = zip(*(self._pieces(tilt, frequencies, part) for part in parts), strict=True)
        return _Remainder(tilt, frequencies, Pieces(*map(np.concatenate, pieces)))

    def _pieces(self, tilt: float, frequencies: Floats, levels: slice) -> Pieces:
        """Return the bounds on the moduli of some levels, in arrays of the shape (levels, ...)."""
        d, a, s = self.dimension, self.contrast[levels], self.relative[levels]
        means = self._means[levels]
        t, tau = tilt * s, s[:, None] * frequencies
        radius = np.hypot(t[:, None], tau)
        odd = _odd_part(d, radius)
        mass = (1 + _grown(d, a, t))[:, None] + t[:, None] * means
        moduli = hemisphere_moduli(d, a, t, tau, means, odd) / mass[..., None]
        modulus = np.maximum(moduli[:, :, :-1], moduli[:, :, 1:]).min(axis=0)
        rounding = np.exp(t * self.unit)
        modulus += ((radius * self.unit) ** 2 * rounding[:, None] / 8)[:, None]
        # E Z^2 e^(t Z) <= (1 + a) E0 Z^2 cosh(t Z), and C'' in terms of C in more dimensions
        second_moment = mean_cosh(d + 2, t**2) / d + t**2 * mean_cosh(d + 4, t**2) / (d * (d + 2))
        root = np.sqrt(((1 + a) * second_moment)[:, None] / mass) + self.unit
        variance = rounding[:, None] * (root * s[:, None]) ** 2
        return Pieces(self._psi(t, levels), modulus, variance)


@dataclasses.dataclass(frozen=True)
class _Remainder:
    """What R depends on for a tilt, except for the numbers of reports.

    `frequencies`, shape (nodes,): the nodes; `pieces`: the bounds of all levels, (levels, ...).
    """

    tilt: float
    frequencies: Floats
    pieces: Pieces

    # Theorem 5 of docs/proofs/fourier.md
    def log_remainder(self, counts: Floats, shares: Floats) -> Floats:
        """Return upper bounds on ln R, shape (windows,).

        `counts`, `shares`, shape (windows, levels): reports of each level, and shares with sum 1.
        """
        psi, modulus, variance = self.pieces
        cutoffs = Cutoffs(self.frequencies, TRIED_CUTOFFS)
        weights = cutoffs.weights(self.tilt)
        spread = np.maximum(variance[:, :-1], variance[:, 1:])
        excess = (psi - psi.max(axis=1, keepdims=True))[..., None]
        log_total = np.zeros((len(counts), TRIED_CUTOFFS))
        for part in blocks(len(psi), BLOCK_PARTS * modulus[0].size):
            terms = cutoffs.cell_terms(modulus[part], spread[part])
            for row, of_window in enumerate(log_total):
                n, share = counts[row, part, None, None], shares[row, part, None, None]
                factors = log_factors_of_cells(weights, n / share * terms)
                of_window += (n * excess[part] + share * factors).max(axis=1).sum(axis=0)
        log_remainders: Floats = np.minimum(log_total.min(axis=-1), 0.0)
        return log_remainders


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
