"""Bounds for a fixed number of reports: Theorems 4 to 8 of docs/proofs/differences.md."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from estimators.bounds.block_differences.law import (
    DifferenceLaw,
    exponents,
    log_cosh,
    self_normalised_interval,
)
from estimators.bounds.normal import log_wealth_remainder, normal_quantile
from estimators.bounds.signs.law import Law
from estimators.bounds.signs.limits import intervals_of_categories
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats, Indices, Limits
from estimators.question import Question

CELL_CHOICE_SHARE = 0.01
"""d: the share of the failure probability for each of the four statements that choose cells."""
BLOCK_CELL_RATIO = 1.25  # of the ends of a cell: finer cells narrow no width by more than 2%
MIN_CELL_REPORTS = 16.0  # least variance of a cell over -ln(p) max s^2: below, R is no help


def difference_limits(
    law: DifferenceLaw, sums: Floats, sizes: Floats, question: Question, totals: Floats
) -> Limits:
    """Return bounds on f in [0, 1], shape (windows, k), for a question.

    `law`: the laws of the windows, in rows; `sums`, `sizes`, shape (windows, levels, k): the sums
    of D and of abs(D), for each of k categories; `question`: the requested bounds;
    `totals`, shape (windows,): from :func:`estimators.weights.total_weight`, for ``anytime``.
    """
    observed, log_p = _weighted(law.coefficient, sums), question.log_p(sums.shape[2])
    if question.bound == "normal":
        margin = normal_quantile(log_p) * np.sqrt(_weighted(law.coefficient**2, sizes))
        return np.clip(observed - margin, 0, 1), np.clip(observed + margin, 0, 1)
    if question.bound == "anytime":
        lower, upper = self_normalised_interval(law, sums, sizes, log_p, totals)
    else:
        lower, upper = difference_interval(law, sums, sizes, log_p)
    estimate = np.clip(observed, 0, 1)  # both limits may be on one side, as if beta is near 1
    return np.minimum(lower, estimate), np.maximum(upper, estimate)


def _weighted(weight: Floats, numbers: Floats) -> Floats:
    """Return the sum over the levels, shape (..., k); `numbers`, shape (..., levels, k)."""
    return (weight[..., None, :] @ numbers)[..., 0, :]


# Theorem 8 of docs/proofs/differences.md
def difference_interval(law: DifferenceLaw, sums: Floats, sizes: Floats, log_p: float) -> Limits:
    """Return bounds on f, each failing with probability at most p.

    `law`, `sums`, `sizes`: as in :func:`difference_limits`; `log_p`: ln p, where p is the failure
    probability of each side.

    >>> one = np.ones(1)
    >>> law = DifferenceLaw(1e4 * one[None], 1e-4 * one[None], one, 0.5 * one, one)
    >>> sums, sizes = np.array([[[2000.0]]]), np.array([[[7000.0]]])
    >>> lower, upper = difference_interval(law, sums, sizes, np.log(0.025))
    >>> float(lower[0, 0].round(4)), float(upper[0, 0].round(4))
    (0.1827, 0.2172)
    """
    if law.has_single_block and not (law.free or law.fixed):
        signs = Law(law.counts, law.coefficient, law.contrast)
        lower, upper = intervals_of_categories(signs, _weighted(law.coefficient, sums), log_p)
        return np.clip(lower, 0, 1), np.clip(upper, 0, 1)
    least_edge = -MIN_CELL_REPORTS * log_p * law.coefficient.max(axis=1, keepdims=True) ** 2
    log_choice = log_p + math.log(CELL_CHOICE_SHARE)
    first_cell, last_cell, first_interval = _choose_cells(law, sums, sizes, log_choice, least_edge)
    log_left = log_p + math.log1p(-4 * CELL_CHOICE_SHARE)
    lower, upper = np.ones_like(sums[:, 0]), np.zeros_like(sums[:, 0])
    cells = range(int(first_cell.min(initial=0)), int(last_cell.max(initial=0)) + 1)
    tilts, costs = cell_tilts(law, least_edge * BLOCK_CELL_RATIO ** np.arange(cells.stop), log_left)
    for cell in cells:
        window, category = members = np.nonzero((first_cell <= cell) & (cell <= last_cell))
        row: Any = window
        part: Any = (window, np.s_[:], category, None)
        if len(sums) == 1:  # all categories have the same law
            row, part = np.s_[:], np.s_[:, :, category]
        laws, terms = law.rows(row), (sums[part], sizes[part])
        if cell == 0:
            cell_limits = self_normalised_interval(laws, *terms, log_left)
        else:
            tilt, cost = tilts[row, cell - 1, None], costs[row, cell - 1, None]
            above, below = (x[..., 0, :] - cost for x in exponents(laws, tilt, *terms))
            cell_limits = laws.limits(tilt, above, below)
        lower[members] = np.minimum(lower[members], cell_limits[0].ravel())
        upper[members] = np.maximum(upper[members], cell_limits[1].ravel())
    return np.maximum(lower, first_interval[0]), np.minimum(upper, first_interval[1])


def _choose_cells(
    law: DifferenceLaw, sums: Floats, sizes: Floats, log_p: float, least_edge: Floats
) -> tuple[Indices, Indices, Limits]:
    """Return the first and last cell that may contain tau^2, and an interval for f.

    These are four statements, each wrong with probability at most p. `least_edge`, shape (windows,
    1): the end of cell 0.
    """
    square = law.coefficient**2
    largest = (law.counts * square * law.largest_share).sum(axis=1, keepdims=True)
    if law.fixed:
        interval_of_f = np.zeros_like(sums[:, 0]), np.ones_like(sums[:, 0])
        terms, unit = sizes - law.contrast[:, None] * sums, square * (1 + law.contrast)
        total = _weighted(square, terms)
        low, high = bernstein_limits(total, unit.max(axis=1, keepdims=True), log_p)
    else:
        interval_of_f = self_normalised_interval(law, sums, sizes, log_p, refined=False)
        low, high = square_sum_interval(law, sizes, log_p)
        low = low - law.explained_variance(interval_of_f[1])
        high = high - law.explained_variance(interval_of_f[0])

    def steps(variance: Floats) -> Floats:
        ratio = np.maximum(variance / least_edge, 1 / BLOCK_CELL_RATIO)
        return np.log(ratio) / math.log(BLOCK_CELL_RATIO)

    rounding, last_cell = 1e-12 * largest, np.maximum(np.ceil(steps(largest)), 0)
    first, last = (
        np.clip(np.floor(steps(x)) + 1, 0, last_cell).astype(np.intp)
        for x in (low - rounding, high + rounding)
    )
    return first, last, interval_of_f


def square_sum_interval(law: DifferenceLaw, sizes: Floats, log_p: float) -> Limits:
    """Return an interval for the mean of sum s^2 abs(D); each end is wrong with probability <= p.

    `law`: the law of the reports; `sizes`, shape (..., levels, k): the sums of abs(D); `log_p`: ln
    p, where p is the failure probability of each side.
    """
    square = law.coefficient**2
    weight, is_known = law.counts * square, law.least_share == law.largest_share
    least, largest = (
        (weight * share).sum(axis=-1, keepdims=True)
        for share in (law.least_share, law.largest_share)
    )
    known = (weight * np.where(is_known, law.least_share, 0)).sum(axis=-1, keepdims=True)
    low = high = np.broadcast_to(known, (*sizes.shape[:-2], sizes.shape[-1]))
    if not is_known.all():
        unknown_square = np.where(is_known, 0, square)
        unit = unknown_square.max(axis=-1, keepdims=True)
        sums = bernstein_limits(_weighted(unknown_square, sizes), unit, log_p)
        low, high = low + sums[0], high + sums[1]
    return np.clip(low, least, largest), np.clip(high, least, largest)


def bernstein_limits(total: Floats, unit: Floats, log_p: float) -> Limits:
    """Return bounds on the mean of a sum of terms in [0, unit]: Theorem 7 of differences.md.

    `total`, shape (..., k): the observed sums; `unit`, shape (..., 1): the largest value of a term;
    `log_p`: ln p, where p is the failure probability of each side.
    """
    log_inverse_p, unit_count = -log_p, total / unit
    low = (
        unit_count
        + 2 * log_inverse_p / 3
        - np.sqrt(4 * log_inverse_p**2 / 9 + 2 * log_inverse_p * unit_count)
    )
    return unit * low, unit * (
        unit_count + log_inverse_p + np.sqrt(log_inverse_p**2 + 2 * log_inverse_p * unit_count)
    )


def cell_tilts(law: DifferenceLaw, edges: Floats, log_p: float) -> tuple[Floats, Floats]:
    """Return the tilt and ln(R / p) of each cell; a tilt is nearly the best for the cell's middle.

    `law`: the law of the reports; `edges`, shape (..., cells + 1): the edges of the cells of tau^2,
    ascending; `log_p`: ln p, where p is the failure probability of each side.
    """
    least_variance, largest_variance = edges[..., :-1], edges[..., 1:]
    cost = np.full_like(least_variance, -log_p)
    for _ in range(3):
        tilt = np.sqrt(np.maximum(2 * cost, 1.0) / np.sqrt(least_variance * largest_variance))
        log_remainders = [log_remainder(law, x, least_variance) for x in law.tilts(tilt)]
        cost = LOG_P_SAFETY - log_p + np.maximum(*log_remainders)
    return tilt, cost


# Theorems 4 to 6 of docs/proofs/differences.md
def log_remainder(law: DifferenceLaw, x: Floats, least_variance: Floats) -> Floats:
    """Return an upper bound on ln R for all laws whose tau^2 is at least `least_variance`.

    `law`: the law of the reports; `x`, shape (..., cells, levels): the factors x of D, from
    :meth:`DifferenceLaw.tilts`; `least_variance`, shape (..., cells): the least tau^2.
    """
    tanh, psi, c = np.tanh(x), log_cosh(x), law.contrast
    gain = (x - psi) / law.coefficient[..., None, :]
    variance_factor = (1 - tanh) * gain**2 / (1 + c * tanh)
    sd = np.sqrt(variance_factor.min(axis=-1) * law.unexplained_share * least_variance)
    xi, zeta = x * tanh - psi, x - psi * tanh
    deviation_up = x + psi + (law.largest_share * xi + c * zeta) / (1 + c * tanh)
    deviation_down = x - psi + c * zeta / (1 - c * tanh)
    max_deviation = np.minimum(2 * x, np.maximum(deviation_up, deviation_down)).max(axis=-1)
    return log_wealth_remainder(sd, max_deviation)
