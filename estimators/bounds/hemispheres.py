"""Bounds for the mean of unit vectors drawn from a hemisphere: docs/proofs/spheres.md."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from estimators.bounds.fourier.deviation import BEST_TILT_FACTOR, RELATIVE_TILTS, likely_deviations
from estimators.bounds.fourier.remainder import (
    LEAST_INTEGRAND,
    LOG_FACTOR_ROUNDING,
    PAIRED_NODE_STEP,
    Cutoffs,
    Pieces,
    frequency_nodes,
    largest_cumulants,
)
from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS, deviation_bounds
from estimators.bounds.signs.law import blocks
from estimators.bounds.spheres import (
    RELATIVE_DIGITS,
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
LEAST_TILT, LOG_SQUARES_STEP = 1e-10, 0.1  # for the grids of tilts and of numbers of reports
SHARED_RANGE = np.array([-LOG_SQUARES_STEP - 1e-9, 1e-9])  # logarithms of numbers of reports
MAX_TABLE_LEVELS = 512  # levels whose parts of remainders are kept
SHARED_PER_TABLE = 16  # remainders that take the memory of a table
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
        return np.asarray(np.vecdot(grown, self.counts[..., None, :]))

    # Theorem 3 of docs/proofs/spheres.md
    def coordinate_deviation(self, log_p: float) -> PerWindow:
        """Return a bound that |N_j| exceeds with probability at most 2 p; `log_p`: ln p."""
        size = self.coefficient.max(axis=-1)
        relative = (self.coefficient / size[..., None]).reshape(-1, self.contrast.size)[0]
        relative = np.maximum(relative.round(RELATIVE_DIGITS), 10.0**-RELATIVE_DIGITS)
        of_levels = tuple(self.contrast.tolist()), tuple(relative.tolist())
        tables = _kept_tables(self.dimension, self.unit, *of_levels)
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

    `contrasts`, `relatives`: a_l, and s_l over the largest of them, of each level.
    """

    def __init__(
        self, dimension: int, unit: float, contrasts: Sequence[float], relatives: Sequence[float]
    ) -> None:
        contrast, relative = self.contrast, self.relative = np.array([contrasts, relatives])
        self.dimension, self.unit = dimension, unit
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
        self.shared = functools.lru_cache(maxsize=SHARED_PER_TABLE * max_tables)(self._shared)

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
        nearest = LOG_SQUARES_STEP * np.rint(log_squares / LOG_SQUARES_STEP)
        log_squares = np.where(self._has_few_reports(index), nearest, shared)
        keys, group = np.unique(np.stack([index, log_squares]), axis=1, return_inverse=True)
        log_remainders = np.empty(len(counts))
        for number, (key, log_size) in enumerate(keys.T.tolist()):
            rows = np.flatnonzero(group == number)
            windows = counts[rows], squares[rows]
            log_remainders[rows] = self._log_remainders(int(key), log_size, *windows)
        chernoff = value[np.arange(len(counts)), index]
        return np.asarray((chernoff + log_remainders - log_p) / self.tilts[index])

    def _has_few_reports(self, index: Indices) -> Bools:
        """Return whether tilts are so large that windows which need them have few reports."""
        is_large: Bools = self.tilts[index] >= FEW_REPORTS_TILT * math.sqrt(self.dimension)
        return is_large | (self.dimension == 1)

    def _psi(self, z: Floats, levels: slice) -> Floats:
        """Return the largest ln E e^(z (Z - m)) between knots, (..., levels, pieces)."""
        means, step = self._means[levels], z[..., None]
        grown = _grown(self.dimension, self.contrast[levels], z)[..., None] + step * means
        return largest_cumulants(z, means, grown)

    def _log_remainders(
        self, tilt_index: int, log_squares: float, counts: Floats, squares: Floats
    ) -> Floats:
        """Return upper bounds on ln R of windows that share nodes, shape (windows,).

        `counts`, shape (windows, levels): reports of each level; `squares`, shape (windows,): the
        sums of n_l s_l^2. With many reports, chords stand in for factors, which are convex.
        """
        if self._has_few_reports(np.array(tilt_index)):
            remainder = self.remainder(tilt_index, log_squares)
            parts = blocks(len(counts), self.contrast.size * MEAN_KNOTS * TRIED_CUTOFFS)
            windows = [remainder.log_factors(squares[x, None], counts[x]) for x in parts]
            factors = np.concatenate(windows)[:, 0]
            excess = remainder.excess
        else:
            ends, excess, at_ends = self.shared(tilt_index, log_squares)
            weight = ((squares - ends[0]) / (ends[1] - ends[0]))[:, None, None]
            factors = (1 - weight) * at_ends[0] + weight * at_ends[1]
        share = (counts * self.relative**2 / squares[:, None])[..., None]
        of_pieces = counts[..., None] * excess + share * factors
        return np.asarray(np.minimum(of_pieces.max(axis=-1).sum(axis=-1), 0.0))

    def _shared(self, tilt_index: int, log_squares: float) -> tuple[Floats, Floats, Floats]:
        """Return two sums of n_l s_l^2, and the excess and ln R of the levels at both."""
        ends, ones = np.exp(log_squares + SHARED_RANGE), np.ones((1, self.relative.size))
        remainder = self._remainder(tilt_index, log_squares)
        return ends, remainder.excess, remainder.log_factors(ends[None], ones)[0]

    def _remainder(self, tilt_index: int, log_squares: float) -> _Remainder:
        """Return the remainder for a tilt and for nodes that suit the sum of n_l s_l^2."""
        checkpoint()
        d, tilt = self.dimension, float(self.tilts[tilt_index])
        reports = np.array([math.exp(log_squares)])
        frequencies = frequency_nodes(reports, np.array([1 / d]), PAIRED_NODE_STEP)
        last = MAX_FREQUENCY * math.sqrt(d)
        if frequencies[-1] > last:
            frequencies = np.append(frequencies[frequencies < last], last)
        parts = blocks(self.contrast.size, BLOCK_PARTS * MEAN_KNOTS * frequencies.size)
        pieces = zip(*(self._pieces(tilt, frequencies, part) for part in parts), strict=True)
        return _Remainder(self.relative, tilt, frequencies, Pieces(*map(np.concatenate, pieces)))

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

    `relative`, shape (levels,): s_l; `frequencies`, shape (nodes,): the nodes; `pieces`: the bounds
    of all levels, (levels, ...).
    """

    relative: Floats
    tilt: float
    frequencies: Floats
    pieces: Pieces

    @property
    def excess(self) -> Floats:
        """The cumulant of a report of each level and piece, less the largest of the level."""
        return np.asarray(self.pieces.psi - self.pieces.psi.max(axis=1, keepdims=True))

    # Theorem 5 of docs/proofs/fourier.md
    def log_factors(self, squares: Floats, counts: Floats) -> Floats:
        """Return ln R if all reports are of one level and piece, (rows, numbers, levels, pieces).

        `squares`, shape (rows, numbers): sums of n_l s_l^2; `counts`, shape (rows, levels): the
        numbers of reports for which D is best.
        """
        _, modulus, variance = self.pieces
        cutoffs, square, parts = Cutoffs(self.frequencies, TRIED_CUTOFFS), self.relative**2, []
        weights, spread = cutoffs.weights(self.tilt), np.maximum(variance[:, :-1], variance[:, 1:])
        for part in blocks(len(modulus), BLOCK_PARTS * modulus[0].size):
            terms = cutoffs.cell_terms(modulus[part], spread[part])
            reports = (squares[..., None] / square[part])[..., None, None]
            rows = [_log_factors_of_cells(weights, terms, numbers) for numbers in reports]
            parts.append(np.stack(rows))
        of_best = []
        for row, factors in enumerate(np.concatenate(parts, axis=2)):
            cumulants = (squares[row, -1] / square)[:, None, None] * self.excess[..., None]
            best = (counts[row] * square @ (cumulants + factors[-1]).max(axis=1)).argmin()
            of_best.append(factors[..., best])
        return np.stack(of_best)


def _log_factors_of_cells(weights: Floats, terms: Floats, reports: Floats) -> Floats:
    """Return ln R for each D and several numbers of `reports`, in which it is convex.

    `weights`, `terms`: from :class:`Cutoffs`. The logarithms of both bounds on a cell are convex;
    all numbers have the same one.
    """
    log_left, log_right, curvature, log_highest = terms
    left, right = (
        np.exp(np.minimum(reports * (end + curvature), 1.0)) for end in (log_left, log_right)
    )
    chord, highest = (left + right) / 2, np.exp(reports * np.minimum(log_highest, 0.0))
    cells = np.where((chord <= highest).all(axis=0), chord, highest)
    log_factors: Floats = np.log(np.maximum(cells, LEAST_INTEGRAND) @ weights.T)
    return log_factors + LOG_FACTOR_ROUNDING


_kept_tables = functools.lru_cache(maxsize=16)(_TiltTables)


def _grown(dimension: int, contrast: Floats, z: Floats) -> Floats:
    """Return an upper bound on E0 cosh(z Z) - 1 + a E0 (sinh z|Z| - z|Z|), shape (..., levels)."""
    even_part = _series(dimension, z, z**2 / (2 * dimension), 2)
    return even_part + contrast * _odd_part(dimension, z)


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
