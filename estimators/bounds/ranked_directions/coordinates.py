"""Bounds on the coordinates of the error of directions that were ranked by the value."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np

from estimators.bounds import mixtures
from estimators.bounds.fourier.deviation import RELATIVE_TILTS, likely_deviations
from estimators.bounds.ranked_directions import noise
from estimators.bounds.ranked_directions.remainder import log_remainder
from estimators.bounds.ranked_directions.report_law import ReportLaw
from estimators.estimate import Floats, Indices

SQUARES_SHARE = 0.04  # share of beta for the upper bounds on q
MAX_GROUP_SPREAD, MAX_TILT_GROUPS = 0.1, 16
"""Coordinates share a tilt within such a range of ln variance; it widens if there are over 16."""

MIN_STEADY_SHARE = 0.05
"""If squares of means are a smaller share of the mean square, they do not narrow the bounds."""
LIKELY_STRIDE = 3  # steps of the grid between the tilts of which a likely one is chosen


@dataclasses.dataclass(frozen=True)
class CoordinateBounds(noise.RankedNoise):
    """Bounds for each coordinate separately, from the sums of squares of reports.

    `squares`, shape (levels, d): the observed mean square of each coordinate; `levels`: the number
    of levels of the metric, with or without reports.
    """

    of_windows: ClassVar[tuple[str, ...]] = "counts", "coefficient", "squares", "mean"

    squares: Floats = dataclasses.field(kw_only=True)
    levels: int = dataclasses.field(kw_only=True)

    @property
    def coordinate_variance(self) -> Floats:
        """The variance of each coordinate of N, from the observed squares."""
        return (self.counts * self.coefficient**2) @ self.squares

    # Theorems 3, 4 and 9 of docs/proofs/ranked-directions.md
    def coordinate_deviation(self, log_p: float) -> Floats:
        """Return bounds, one for each j, that |N_j| exceeds with probability at most 2 p.

        `log_p`: ln p.
        """
        if self.counts.ndim == 1:
            deviation: Floats = self.in_rows([self]).coordinate_deviation(log_p)[0]
            return deviation
        goal = log_p + math.log1p(-SQUARES_SHARE)
        columns = self.columns(math.log(2 * SQUARES_SHARE) + log_p, fixed=True)
        variance, bound = self.variances(columns), self.many_reports_deviations(columns, goal)
        missing = np.flatnonzero(np.isnan(bound).any(axis=1))
        # windows with similar noise, one after the other, share the tables that are kept
        for number in missing[variance[missing, 0].argsort()].tolist():
            window, few = self.window(number), np.isnan(bound[number])
            tilts, few_columns = window.normal_tilts(log_p), columns[number][:, few]
            chernoff = (window.cumulants(tilts, few_columns) - goal) / tilts
            sharpened = window.sharpened(few_columns, variance[number, few], goal)
            bound[number, few] = np.minimum(chernoff.min(axis=1), sharpened)
        if self.mean is None:
            return bound
        for _ in range(noise.MAX_ROUNDS):
            least_mean = np.maximum(np.abs(self.mean) - bound, 0.0)
            remaining_variance = np.maximum(variance - self.least_square_sum(least_mean), 0.0)
            narrower_bound = noise.bennett_deviation(
                remaining_variance, self.max_deviation(1.0), goal
            )
            if (narrower_bound >= bound).all():
                break
            bound = np.minimum(bound, narrower_bound)
        return bound

    def sharpened(self, columns: Indices, variance: Floats, log_p: float) -> Floats:
        """Return bounds on coordinates by Chernoff's bound times the remainder.

        Coordinates with similar variances share the tilt and the prices of the remainder.
        `columns`: as from :meth:`columns`; `variance`: the variances of the coordinates; `log_p`:
        ln p.
        """
        order = variance.argsort()
        log_ratio = np.log(variance[order] / variance[order[0]])
        group = np.floor(log_ratio / max(MAX_GROUP_SPREAD, log_ratio[-1] / MAX_TILT_GROUPS))
        bounds = np.zeros(variance.size)
        for number in np.unique(group).tolist():
            members = order[group == number]
            group_bounds = self.uniform_at(columns[:, members[members.size // 2]])
            different, index = np.unique(columns[:, members], axis=1, return_inverse=True)
            bounds[members] = group_bounds.deviations(different, log_p)[index.ravel()]
        return bounds

    def normal_tilts(self, log_p: float) -> Floats:
        """Return tilts from about the best for the largest noise to the best for the least."""
        extremes = np.array([law.mean_squares for law in self.laws]).T + self.unit**2 / 4
        least_variance, largest_variance = (extremes @ (self.counts * self.coefficient**2)).tolist()
        normal = np.sqrt(-2 * log_p / np.array([largest_variance, least_variance]))
        first, last = self.tilt_steps(normal * [0.5, 1.25]).tolist()
        return self.tilts_at(np.arange(first, last + 1))

    def columns(self, log_p: float, *, fixed: bool) -> Indices:
        """Return the columns of upper bounds q+ on q, for levels and coordinates, (..., levels, d).

        The bound for each coordinate is wrong with probability at most p; `log_p`: ln p. Levels may
        differ in q even if they have the same mean. Unless the number of reports is `fixed`, bounds
        hold at all times.
        """
        log_p -= math.log(len(self.laws) if fixed else self.levels)  # any level may get reports
        level_columns = []
        for level, law in enumerate(self.laws):
            n, squares = self.counts[..., level, None], self.squares[..., level, :]
            square_limits = bound_mean_squares(
                law, n, squares, self.unit, log_p, at_all_times=not fixed
            )
            level_columns.append(law.column_of(square_limits))
        return np.stack(level_columns, axis=-2)

    def uniform_at(self, columns: Indices) -> UniformCoordinateBounds:
        """Return bounds for all coordinates whose q is at most that of `columns`, (levels,)."""
        parts = self.dimension, self.counts, self.coefficient, self.unit, self.laws
        return UniformCoordinateBounds(*parts, columns=columns)

    # Theorem 10 of docs/proofs/ranked-directions.md
    @noise.of_each_window
    def anytime_coordinate_deviation(self, log_p: float, total: float) -> Floats:
        """Return bounds, one for each j, on |N_j| at all times, wrong with probability at most 2 p.

        The bounds are infinite for very few reports. `log_p`: ln p; `total`: the result of
        :func:`estimators.weights.total_weight`.
        """
        tilts, log_weights = mixtures.usable_tilts(self.max_tilt, total)
        if not tilts.size:
            return np.full(self.dimension, np.inf)
        columns = self.columns(math.log(2 * SQUARES_SHARE) + log_p, fixed=False)
        value = self.cumulants(tilts, columns)
        mixture = tilts, log_weights, log_p + math.log1p(-SQUARES_SHARE)
        bound = mixtures.deviation_bounds(value, *mixture)
        if self.mean is None:
            return bound
        variance, mean = self.variances(columns), np.abs(self.mean)
        gain = noise.bennett_factor(tilts, self.max_deviation(1.0))
        active = np.flatnonzero(self.least_square_sum(mean) > MIN_STEADY_SHARE * variance)
        for _ in range(noise.MAX_ROUNDS):
            if not active.size:
                break
            least_mean = np.maximum(mean[active] - bound[active], 0.0)
            remaining_variance = variance[active] - self.least_square_sum(least_mean)
            bennett = np.maximum(remaining_variance, noise.MIN_VARIANCE)[:, None] * gain
            narrower_bound = mixtures.deviation_bounds(np.minimum(value[active], bennett), *mixture)
            narrower_bound = np.minimum(narrower_bound, bound[active])
            is_moving = narrower_bound < bound[active] * noise.CONVERGED_RATIO
            bound[active], active = narrower_bound, active[is_moving]
        return bound


@dataclasses.dataclass(frozen=True)
class UniformCoordinateBounds(noise.RankedNoise):
    """Bounds that hold for every coordinate whose q at each level is at most a given value.

    `columns`, shape (levels,): the columns of :meth:`ReportLaw.growth` that belong to these values.
    """

    columns: Indices = dataclasses.field(kw_only=True)

    @property
    def coordinate_variance(self) -> float:
        """The largest variance of a coordinate."""
        return float(self.variances(self.columns[:, None])[0])

    def cumulant(self, tilt: Floats) -> Floats:
        """Return upper bounds on ln E exp(tilt N_j), valid for each coordinate, and for -N_j."""
        cumulants: Floats = self.cumulants(tilt, self.columns[:, None])[0]
        return cumulants

    def coordinate_deviation(self, log_p: float) -> float:
        """Return a bound that |N_j| exceeds with probability at most 2 p, for each j separately."""
        columns = self.columns[:, None]
        bound = self.many_reports_deviations(columns, log_p)
        return float((self.deviations(columns, log_p) if np.isnan(bound) else bound)[0])

    def deviations(self, columns: Indices, log_p: float) -> Floats:
        """Return bounds on k coordinates, each wrong with probability at most 2 p, shape (k,).

        `columns`, shape (levels, k): the columns of the k coordinates; `self.columns` only chooses
        the tilt that they share. `log_p`: ln p.
        """
        scale = math.sqrt(-2 * log_p / self.coordinate_variance)
        first, last = self.tilt_steps(scale * RELATIVE_TILTS[[0, -1]]).tolist()
        steps = np.arange(last, min(first, last - 9), -LIKELY_STRIDE)
        tilts = self.tilts_at(steps[::-1])
        common = self.cumulants(tilts, self.columns[:, None])[0]
        likely = likely_deviations(tilts, common, log_p).argmin()
        tilt = tilts[likely, None]
        cumulant = self.cumulants(tilt, columns)[:, 0]
        parts = self.laws, self.counts, self.coefficient, columns, self.unit
        deviations: Floats = (cumulant + log_remainder(*parts, float(tilt[0])) - log_p) / tilt
        return deviations


# Theorem 3 of docs/proofs/ranked-directions.md
def bound_mean_squares(
    law: ReportLaw, n: Floats, squares: Floats, unit: float, log_p: float, *, at_all_times: bool
) -> Floats:
    """Return upper bounds in [0, 1] on a level's q, each wrong with probability <= p, (..., d).

    `law`: the law of the reports; `n`, shape (..., 1): the number of reports; `squares`, shape
    (..., d): the observed mean square of each coordinate; `unit`: the step of the grid; `log_p`: ln
    p; `at_all_times`: whether the bound holds at all times at once.
    """
    d, (low, high), (base, slope) = law.dimension, law.mean_squares, law.fourth_moment_line(unit)
    rise = max(high - low, 1e-12 / d)
    base, slope = base + slope * low, slope * rise  # E V^2 <= base + slope q, for w = 1
    weight = rise / (d * base)
    gain, square_base, square_rise = n * weight * rise, n * weight**2 * base, n * weight**2 * slope
    excess = n * weight * (squares - low)
    if not at_all_times:
        half = -log_p * square_rise / gain
        root = np.maximum(half**2 - 2 * log_p * (square_base + square_rise * excess / gain), 0.0)
        limits_once: Floats = np.clip((excess + half + np.sqrt(root)) / gain, 0.0, 1.0)
        return limits_once
    shape = -1, *(1,) * squares.ndim
    h = d * mixtures.MIXTURE_TILTS.reshape(shape)
    log_p = log_p + mixtures.LOG_MIXTURE_WEIGHTS.reshape(shape)
    descent = gain - h * square_rise / 2
    limit = (excess + h * square_base / 2 - log_p / h) / np.where(descent > 0, descent, 1.0)
    limits: Floats = np.clip(np.where(descent > 0, limit, 1.0).min(axis=0), 0.0, 1.0)
    return limits
