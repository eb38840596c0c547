r"""The test of a sum of two means, for a fixed number of reports: one probability for both arms.

Theorems 1 and 8 of docs/proofs/comparisons.md. C, an interval for the mean of X, is cut into cells;
:mod:`estimators.comparison.cells` has the bound in each. The bounds are valid for any hypothesis
delta, and for any tilts and cells, however they were chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from estimators.bounds.signs.law import Law
from estimators.bounds.signs.repeated import RepeatedLaw
from estimators.bounds.tolerances import LOG_P_SAFETY, LOG_P_TOLERANCE, THETA_ROUNDING
from estimators.comparison.cells import Cells, HypothesisLine
from estimators.estimate import Bools, Floats, Indices
from estimators.interruption import checkpoint

CELLS_PER_INTERVAL = 4  # the number of cells of the interval for the first mean
MAX_LIMIT_STEPS = 40
TILT_STEPS = 2  # steps of Newton's method for a tilt, at each step of the search
RATIO_CELL_WIDTHS = 0.03 * 1.3 ** np.arange(17)
"""The widths of the cells for a ratio, in standard errors; their sum is 8.6."""


class SumPair(NamedTuple):
    """Two independent sums X and Y, for each of k categories.

    `first`, `second`: the laws of X and of Y; `first_observed`, `second_observed`, shape (k,): the
    observed X and Y; `first_interval`: the ends of C, an interval for the mean of X, shapes (k,).
    """

    first: Law
    second: Law
    first_observed: Floats
    second_observed: Floats
    first_interval: tuple[Floats, Floats]

    @property
    def slack(self) -> float:
        """The largest change of a mean by rounding."""
        return THETA_ROUNDING * 2 + self.first.offset_rounding + self.second.offset_rounding

    def variance(self, factor: Floats) -> Floats:
        """Return the approximate variance of factor X + Y."""
        middle = np.clip((self.first_interval[0] + self.first_interval[1]) / 2, -1, 1)
        second_variance = self.second.largest_variance(np.clip(self.second_observed, -1, 1))
        return factor**2 * self.first.largest_variance(middle) + second_variance

    def tilts(self, factor: Floats, log_p: float) -> Floats:
        """Return a first guess of the cells' best tilts, shape (k, CELLS_PER_INTERVAL)."""
        tilt = np.minimum(np.sqrt(-2 * log_p / self.variance(factor)), self.max_tilt(factor))
        return np.repeat(tilt[:, None], CELLS_PER_INTERVAL, axis=1)

    def max_tilt(self, factor: Floats) -> Floats:
        """Return the largest tilts that both laws allow."""
        return np.minimum(self.first.max_tilt / factor, self.second.max_tilt)

    def worst(self, line: HypothesisLine, tilts: Floats, *, chernoff: bool = False) -> Worst:
        """Return the largest bound over the cells of C, for each category's hypothesis.

        `line`: the hypotheses, shape (k,); `tilts`, shape (k, CELLS_PER_INTERVAL); `chernoff`: as
        in :meth:`Cells.log_chance`.
        """
        low, high = self.first_interval
        edges = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, CELLS_PER_INTERVAL + 1)
        target, factor, back = (np.repeat(x, CELLS_PER_INTERVAL) for x in line[:3])
        lines = HypothesisLine(target, factor, back, line.origin)
        start = np.minimum(edges[:, :-1].ravel(), 1.0)
        end = np.minimum(edges[:, 1:].ravel(), (lines.target + 1) / lines.factor)  # y >= -1
        laws = self.first, self.second
        sharp = all(x.is_determined_by_mean and not isinstance(x, RepeatedLaw) for x in laws)
        sums = self.first_observed, line.factor * self.first_observed + self.second_observed
        first_observed, observed = (np.repeat(x, CELLS_PER_INTERVAL) for x in sums)
        ends = start, np.maximum(start, end)
        cells = Cells(*laws, first_observed, observed, *ends, lines, sharp)
        tilt, max_tilt = tilts.ravel(), self.max_tilt(lines.factor)
        for _ in range(TILT_STEPS):
            tilt = np.minimum(cells.improve_tilt(tilt), max_tilt)
        chance, slope = cells.log_chance(tilt, chernoff=chernoff)
        chance = np.where(start > end, -np.inf, chance).reshape(tilts.shape)
        worst_cell = np.arange(len(chance)), chance.argmax(axis=1)
        worst_slope = slope.reshape(tilts.shape)[worst_cell]
        return Worst(chance[worst_cell], worst_slope, tilt.reshape(tilts.shape))

    def at(self, rows: Indices) -> SumPair:
        """Return the sums of these categories; some may be repeated."""
        observed = self.first_observed[rows], self.second_observed[rows]
        first_interval = self.first_interval[0][rows], self.first_interval[1][rows]
        return SumPair(self.first, self.second, *observed, first_interval)


class Worst(NamedTuple):
    """The largest bound on ln P over the cells, shape (k,); its slope; the cells' next tilts."""

    log_chance: Floats
    slope: Floats
    tilts: Floats


def lower_limit(sums: SumPair, log_p: float) -> Floats:
    """Return, for each category, a sum of means that the observed sums reject as too small.

    `log_p`: ln p, where p is the failure probability without that of C. The result, of shape (k,),
    is within [-2, 2], and -2 if no sum is rejected.
    """
    ones = np.ones_like(sums.first_observed)
    width = np.sqrt(-2 * log_p * sums.variance(ones))

    def line(delta: Floats, _: Indices) -> HypothesisLine:
        return HypothesisLine(delta, np.ones_like(delta), np.zeros_like(delta))

    observed = sums.first_observed + sums.second_observed
    limit = _search(sums, line, observed, width, (-2.0, 2.0), log_p)
    return np.maximum(limit - sums.slack, -2.0)


def lower_ratio(sums: SumPair, origin: float, log_p: float) -> Floats:
    """Return for each category a ratio of means that is rejected, with all smaller ratios.

    The result, of shape (k,), is at least 0. `sums`: X is -S_B and Y is S_A, the arms' sums;
    `origin`: o, at least 1, for means o + theta; `log_p`: as in :func:`lower_limit`.
    """
    above = origin + np.clip(sums.second_observed, -1, 1)
    first_sd = np.sqrt(sums.first.largest_variance(np.clip(sums.first_observed, -1, 1)))
    below = np.maximum(origin + np.clip(-sums.first_observed, -1, 1), first_sd)
    observed = np.maximum(above, 1e-9) / below
    sd = np.sqrt(sums.variance(observed)) / below
    step = float(RATIO_CELL_WIDTHS[0]) * sd

    def line(ratio: Floats, rows: Indices) -> HypothesisLine:
        ratio = np.maximum(ratio, 1e-12)
        return HypothesisLine((ratio - 1) * origin, ratio, np.minimum(step[rows], ratio), origin)

    width = np.sqrt(-2 * log_p) * sd
    limit = _search(sums, line, observed, width, (0.0, np.inf), log_p)
    for _ in range(MAX_LIMIT_STEPS):
        checkpoint()
        proved = _proves_smaller(sums, origin, limit, sd, log_p) | (limit <= 0)
        if proved.all():
            break
        limit = np.where(proved, limit, np.maximum(limit - step, 0))
    limit = np.where(proved, limit, 0.0)
    return np.maximum(limit * (1 - 4 * sums.slack), 0.0)


def _proves_smaller(sums: SumPair, origin: float, ratio: Floats, sd: Floats, log_p: float) -> Bools:
    """Return whether `ratio` and all smaller ratios are rejected, cell by cell."""
    k, number = ratio.size, RATIO_CELL_WIDTHS.size + 1
    tops = ratio[:, None] - sd[:, None] * np.append(0, np.cumsum(RATIO_CELL_WIDTHS))
    tops = np.maximum(tops, 0)
    ends = np.append(tops[:, 1:], np.zeros((k, 1)), axis=1)
    top = np.maximum(tops.ravel(), 1e-12)
    line = HypothesisLine((top - 1) * origin, top, np.maximum(top - ends.ravel(), 0), origin)
    cell_sums = sums.at(np.repeat(np.arange(k), number))
    tilts = cell_sums.tilts(top, log_p)
    is_last_cell = np.tile(np.arange(number) == RATIO_CELL_WIDTHS.size, k)
    rejected = np.zeros(top.size, dtype=np.bool_)
    for _ in range(3):
        worst = cell_sums.worst(line, tilts)
        plain = cell_sums.worst(line, tilts, chernoff=True)
        smaller = np.minimum(worst.log_chance, plain.log_chance)
        chance = np.where(is_last_cell, plain.log_chance, smaller)
        rejected |= chance <= log_p - LOG_P_SAFETY
        tilts = worst.tilts
    return np.asarray((rejected | (tops.ravel() <= 0)).reshape(k, number).all(axis=1))


def _search(
    sums: SumPair,
    line: Callable[[Floats, Indices], HypothesisLine],
    observed: Floats,
    width: Floats,
    domain: tuple[float, float],
    log_p: float,
) -> Floats:
    """Return a rejected value close to the largest such value, or the least of the domain.

    `line`: a function from values to the means that they allow; `observed`, `width`, shape (k,): a
    first guess: the limit is about `width` below `observed`.
    """
    goal, (domain_low, domain_high) = log_p - LOG_P_SAFETY, domain
    aim = goal - LOG_P_TOLERANCE / 2
    # for a normal tail, the slope of ln p(delta) is this factor times that of the cumulant
    sharper = 1 + 1 / max(1.0, -2 * log_p - 2)
    low = np.full_like(observed, domain_low)
    high = np.where(observed > domain_high, np.inf, np.maximum(observed, domain_low))
    guess = np.minimum(observed, domain_high) - 0.9 * width
    value = np.clip(guess, low + (observed - low) / 16, domain_high)
    value = np.clip(value, domain_low, domain_high)
    rows, limits = np.arange(observed.size), low.copy()
    tilts = sums.tilts(line(value, rows).factor, log_p)
    for _ in range(MAX_LIMIT_STEPS):
        worst = sums.at(rows).worst(line(value, rows), tilts)
        rejected = worst.log_chance <= goal
        low = np.where(rejected, np.maximum(low, value), low)
        high = np.where(rejected, high, np.minimum(high, value))
        limits[rows] = low
        searched = ~(rejected & (worst.log_chance >= goal - LOG_P_TOLERANCE)) & (low < domain_high)
        searched &= high - low > LOG_P_TOLERANCE / 4 * width
        if not searched.any():
            break
        wanted = value + (aim - worst.log_chance) / np.maximum(worst.slope * sharper, 1e-12)
        between = np.where(np.isfinite(high), (low + high) / 2, low + width)
        between = np.where(wanted <= low, low + (np.minimum(high, domain_high) - low) / 16, between)
        is_between = (wanted > low) & (wanted < high)
        value = np.minimum(np.where(is_between, wanted, between), domain_high)
        rows, value, tilts = (rows[searched], value[searched], worst.tilts[searched])
        low, high, width = low[searched], high[searched], width[searched]
    return limits


def log_chance(sums: SumPair, log_p: float) -> Floats:
    """Return an upper bound on ln P(X + Y >= observed) if the means' sum is 0, for all x in C.

    `log_p`: a guess of ln P, for the first tilts.
    """
    ones = np.ones_like(sums.first_observed)
    tilts, bound = sums.tilts(ones, log_p), 0 * ones
    for _ in range(6):
        worst = sums.worst(HypothesisLine(0 * ones, ones, 0 * ones), tilts)
        bound, tilts = np.minimum(bound, worst.log_chance), worst.tilts
    return bound
