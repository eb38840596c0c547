"""Bounds on the length of the error of directions that were ranked by the value."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from estimators.bounds.mixtures import usable_tilts
from estimators.bounds.ranked_directions.many_reports import ManyReports
from estimators.bounds.ranked_directions.report_law import (
    MAX_REPORT_TILT,
    SQUARE_CELLS,
    ReportLaw,
    evaluate_series,
    majorants_of,
)
from estimators.bounds.signs.law import blocks
from estimators.bounds.spheres import (
    LOG_TILT_STEP,
    RELATIVE_DIGITS,
    PerWindow,
    VectorNoise,
    length_bound,
    log_mean_cosh,
)
from estimators.estimate import Floats, Indices

BENNETT_TILTS = np.geomspace(1e-5, 20, 90)  # tilts times the largest report; 18% apart
CONVERGED_RATIO = 0.999  # a bound that is above this part of the previous bound ends the loop
MIN_VARIANCE = 1e-300  # so that nothing is divided by 0
LENGTH_TILTS = np.geomspace(0.05, 4, 60)  # for a length, in units of a nearly best tilt
MAX_ROUNDS = 12
MAX_STANDARD_TILT = 100.0
"""The largest tilt of use, in units of 1 / sd: the best one for a normal sum is at most 40."""
RELATIVE_LENGTHS = np.geomspace(1e-3, 1e3, 400)  # tried for the bound at all times, in units of d


def bennett_growth(x: Floats) -> Floats:
    """Return (e^x - 1 - x) / x^2, which grows with x."""
    series = 0.5 + x / 6 + x**2 / 24 + x**3 / 120
    return np.where(x < 1e-2, series * (1 + 1e-9), (np.expm1(x) - x) / np.maximum(x, 1e-5) ** 2)


BENNETT_SLOPES = bennett_growth(BENNETT_TILTS) * BENNETT_TILTS
# variances, in units of (-ln p) times the square of the largest report, below which a tilt is best
BENNETT_EDGES = -np.diff(1 / BENNETT_TILTS) / np.diff(BENNETT_SLOPES)


def bennett_deviation(variance: Floats, largest: PerWindow, log_p: float) -> Floats:
    """Return bounds that sums of independent terms exceed with probability <= p, shape (..., k).

    The terms have mean 0. `variance`, shape (..., k): the variances of the sums; `largest`, shape
    (...): an upper bound on a term; `log_p`: ln p, where p is the probability that the bound is
    wrong.
    """
    largest = np.asarray(largest)[..., None]
    relative = variance / (-log_p * largest**2)
    best = BENNETT_EDGES.size - np.searchsorted(BENNETT_EDGES[::-1], relative)
    scale = -log_p * largest
    return np.asarray(scale * (relative * BENNETT_SLOPES[best] + 1 / BENNETT_TILTS[best]))


def bennett_factor(tilt: Floats, largest: float) -> Floats:
    """Return k with E e^(t X) <= exp(k E X^2) for all X <= `largest` of mean 0.

    t is the `tilt`; the result is inf for large tilts.
    """
    usable = tilt * largest <= BENNETT_TILTS[-1]
    return np.where(usable, tilt**2 * bennett_growth(np.where(usable, tilt * largest, 0.0)), np.inf)


def bennett_length(
    dimension: int, variance: PerWindow, largest: PerWindow, log_beta: float
) -> PerWindow:
    """Return a bound that the length of a sum N of vectors exceeds with probability <= beta.

    The vectors are independent, with mean zero. `dimension`: the number of coordinates; `variance`:
    E |N|^2; `largest`: a bound on the length of a term; `log_beta`: ln beta.
    """
    from scipy.special import hyp1f1

    variance, largest = (np.asarray(x)[..., None] for x in (variance, largest))
    centre = np.sqrt((1 - log_beta) * dimension / variance)
    tilt = np.minimum(LENGTH_TILTS * centre, BENNETT_TILTS[-1] / largest)

    def goal(tilt: Floats) -> Floats:
        spread = tilt**2 * bennett_growth(tilt * largest) * variance
        usable = spread < 300  # beyond, 1F1 may overflow, and the bound is of no use
        log_mean = np.log(hyp1f1(0.5, dimension / 2, np.where(usable, spread, 0.0))) * (1 + 1e-9)
        return np.where(usable, log_mean - log_beta, np.inf)

    return length_bound(dimension, tilt, goal)


def of_each_window(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a law of many windows, in rows, from that of a single window."""

    @functools.wraps(method)
    def of_windows(law: RankedNoise, log_p: float, *totals: Any) -> PerWindow:
        if law.counts.ndim == 1:
            return method(law, log_p, *totals)
        windows = zip(map(law.window, range(len(law.counts))), *totals, strict=True)
        return np.array([method(window, log_p, *total) for window, *total in windows])

    return of_windows


@dataclasses.dataclass(frozen=True)
class RankedNoise(VectorNoise):
    """The error of independent reports that were ranked by their values; d is at least 2.

    `laws`: the law of a report of each level; `one_law`: whether the users of all levels are from
    one population; `mean`, shape (d,): the estimate; bounds are narrower if it is long.
    """

    max_report_tilt: ClassVar[float] = MAX_REPORT_TILT

    laws: tuple[ReportLaw, ...]
    one_law: bool = False
    mean: Floats | None = None

    def window(self, rows: int | slice) -> Self:
        """Return the law of a window, or of some windows."""
        names = [name for name in self.of_windows if getattr(self, name) is not None]
        parts: dict[str, Any] = {name: getattr(self, name)[rows] for name in names}
        return dataclasses.replace(self, **parts)

    # Theorem 7 of docs/proofs/ranked-directions.md
    def least_square_sum(self, gamma: Floats) -> Floats:
        """Return the least sum of squared means of the terms s u.e, if x.e has the mean gamma."""
        of_mean = self.coefficient * np.array([law.mean for law in self.laws])
        common_mean = np.vecdot(self.counts, of_mean**2)[..., None]
        total = self.counts.sum(axis=-1)[..., None]
        separate_means = np.vecdot(self.counts, of_mean)[..., None] ** 2 / total
        square_sum: Floats = gamma**2 * (common_mean if self.one_law else separate_means)
        return square_sum

    def max_deviation(self, size: float) -> PerWindow:
        """Return a bound on the length of s (U - E U) for reports U of length at most `size`."""
        of_mean = np.array([law.mean for law in self.laws])
        return (self.coefficient * (size + of_mean)).max(axis=-1)

    def variances(self, columns: Indices) -> Floats:
        """Return bounds on variances of k coordinates with these columns, (..., levels, k)."""
        variances = np.zeros((*columns.shape[:-2], columns.shape[-1]))
        for level, law in enumerate(self.laws):
            factor = self.counts[..., level] * self.coefficient[..., level] ** 2
            variances += factor[..., None] * law.variances(self.unit)[columns[..., level, :]]
        return variances

    # Theorem 4 of docs/proofs/ranked-directions.md
    def many_reports_deviations(self, columns: Indices, log_p: float) -> Floats:
        """Return bounds on k coordinates, wrong with probability at most 2 p, shape (..., k).

        They are nan if reports are few. `columns`, shape (..., levels, k): the columns of the
        coordinates; `log_p`: ln p.
        """
        size = self.coefficient.max(axis=-1, keepdims=True)
        relative = (self.coefficient / size).reshape(-1, len(self.laws))[0]
        relative = np.maximum(relative.round(RELATIVE_DIGITS), 10.0**-RELATIVE_DIGITS)
        levels = self.laws, tuple(relative.tolist())
        windows = np.atleast_2d(self.counts), columns.reshape(-1, *columns.shape[-2:])
        bounds = ManyReports(self.dimension, self.unit, *levels, log_p).deviations(*windows)
        deviations: Floats = size * bounds.reshape(*self.counts.shape[:-1], -1)
        return deviations

    def cumulants(self, tilts: Floats, columns: Indices) -> Floats:
        """Return upper bounds on the cumulants of k coordinates, of either sign, (k, tilts).

        They are infinite at tilts that are too large to be of use. `tilts`: ascending; `columns`,
        shape (levels, k): columns of :meth:`ReportLaw.growth`.
        """
        useful = tilts[tilts <= MAX_STANDARD_TILT / math.sqrt(self.variances(columns).min())]
        largest = float(self.coefficient.max())
        series = [
            law.series(float(useful[-1] * s))
            for law, s in zip(self.laws, self.coefficient, strict=True)
        ]
        total = np.zeros((max(len(x.moments) for x in series), columns.shape[1]))
        parts = zip(majorants_of(series), self.counts, self.coefficient, columns, strict=True)
        for majorants, n, s, column in parts:
            factor = n * (s / largest) ** np.arange(2.0, len(majorants) + 2)
            total[: len(majorants)] += (factor[:, None] * majorants)[:, column]
        cumulants = np.full((columns.shape[1], tilts.size), np.inf)
        cumulants[:, : useful.size] = evaluate_series(self.dimension, useful * largest, total).T
        return cumulants + self._rounding(tilts)

    def _rounding(self, tilt: Floats) -> Floats:
        rounding: Floats = (tilt * self.unit) ** 2 * (np.asarray(self.square_sum)[..., None] / 8)
        return rounding

    # Theorems 5 and 8 of docs/proofs/ranked-directions.md
    def radius(self, log_beta: float) -> PerWindow:
        """Return a bound that |N| exceeds with probability at most beta; `log_beta`: ln beta."""
        d, bound = self.dimension, self.largest_length(self._log_mean, log_beta)
        if self.mean is None:
            return bound
        largest = self.max_deviation(1 + math.sqrt(d) * self.unit)
        center = np.linalg.norm(self.mean, axis=-1)
        for _ in range(MAX_ROUNDS):
            steady = self.least_square_sum(np.maximum(center - bound, 0.0)[..., None])[..., 0]
            variance = np.maximum(self.variance - steady, MIN_VARIANCE)
            narrower_bound = bennett_length(d, variance, largest, log_beta)
            is_narrower = narrower_bound < bound * CONVERGED_RATIO
            if not is_narrower.any():
                break
            bound = np.where(is_narrower, narrower_bound, bound)
        return bound

    def _log_mean(self, tilt: Floats) -> Floats:
        """Return an upper bound on ln E M(tilt |N|); users have weights proportional to s_i^2.

        `tilt`, shape (..., tilts): from :meth:`tilts_at`.
        """
        size, square_sum = self.coefficient.max(axis=-1), np.asarray(self.square_sum)[..., None]
        steps = np.rint(np.log(tilt * size[..., None]) / LOG_TILT_STEP)
        different, index = np.unique(steps, return_inverse=True)
        index, terms = index.ravel(), []
        for level, law in enumerate(self.laws):
            n, s = self.counts[..., level, None], self.coefficient[..., level, None]
            tilts = np.exp(LOG_TILT_STEP * different) * float((s[..., 0] / size).flat[0])
            share, growth = s**2 / square_sum, law.growth_of_single_square(tilts)[:, 1:]
            shares, total = np.broadcast_to(share, tilt.shape).ravel(), np.empty(tilt.size)
            for part in blocks(tilt.size, SQUARE_CELLS):
                every = growth[index[part]]
                every /= shares[part, None]
                every += law.log_cells
                with np.errstate(over="ignore"):  # such tilts are far too large to be of use
                    total[part] = np.log(np.exp(every, out=every).sum(axis=1))
            terms.append(total.reshape(tilt.shape) + np.log(n * share))
        log_mean: Floats = np.logaddexp.reduce(terms, axis=0) + self._rounding(tilt)
        return log_mean

    # Theorems 6 and 10 of docs/proofs/ranked-directions.md
    @of_each_window
    def anytime_radius(self, log_beta: float, total: float) -> float:
        """Return a bound on |N| at all times, valid even if data depend on earlier noise.

        It is wrong at some time with probability at most beta, and infinite for very few reports.
        `log_beta`: ln beta; `total`: from :func:`estimators.weights.total_weight`.
        """
        d = self.dimension
        tilt, log_weights = usable_tilts(self.max_tilt, total * math.sqrt(d))
        if not tilt.size:
            return math.inf
        length = d * RELATIVE_LENGTHS
        largest_square = 1 - (d - 1) / ((d - 1) / 2 + np.hypot(length, (d + 1) / 2))
        columns = np.array([law.column_of(largest_square[1:]) for law in self.laws])
        value = self.cumulants(tilt, columns).T
        cost = -log_beta - log_weights[:, None]
        log_mean = log_mean_cosh(d, length[:-1])

        def reached(value: Floats) -> float:
            short = log_mean < value + cost
            last = RELATIVE_LENGTHS.size - 1
            end = np.where(short.any(axis=1), last - short[:, ::-1].argmax(axis=1), 0)
            return float(np.where(short[:, -1], np.inf, length[end] / tilt).min())

        bound = reached(value)
        if self.mean is None:
            return bound
        gain = bennett_factor(tilt, self.max_deviation(1 + math.sqrt(d) * self.unit))
        trace, center = np.outer(gain, largest_square[1:]), float(np.linalg.norm(self.mean))
        for _ in range(MAX_ROUNDS):
            steady = self.least_square_sum(np.asarray(max(center - bound, 0.0)))
            variance = max(self.variance - float(steady.max()), MIN_VARIANCE)
            narrower_bound = reached(np.minimum(value, variance * trace))
            if narrower_bound >= bound * CONVERGED_RATIO:
                break
            bound = narrower_bound
        return bound
