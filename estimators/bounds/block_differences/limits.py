"""Bounds for a fixed number of reports: Theorems 4 to 8 of docs/proofs/differences.md."""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.block_differences.law import (
    DifferenceLaw,
    exponents,
    log_cosh,
    self_normalised_interval,
)
from estimators.bounds.normal import log_wealth_remainder, normal_quantile
from estimators.bounds.signs.law import Law
from estimators.bounds.signs.limits import interval
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats, Limits
from estimators.question import Question

CELL_CHOICE_SHARE = 0.01
"""d: the share of the failure probability for each of the four statements that choose cells."""
BLOCK_CELL_RATIO = 1.25  # of the ends of a cell: finer cells narrow no width by more than 2%
MIN_CELL_REPORTS = 16.0  # least variance of a cell over -ln(p) max s^2: below, R is no help


def difference_limits(
    law: DifferenceLaw, sums: Floats, sizes: Floats, question: Question, log_p: float, total: float
) -> Limits:
    """Return bounds on f in [0, 1], shape (k,), for a question.

    `law`: the law of the reports; `sums`, `sizes`, shape (levels, k): the sums of D and of abs(D),
    for each of k categories; `question`: the requested bound and target; `log_p`: ln p, where p is
    the failure probability of each side; `total`: from :func:`estimators.weights.total_weight`, for
    ``anytime``.
    """
    if question.bound == "normal":
        observed = law.coefficient @ sums
        margin = normal_quantile(log_p) * np.sqrt(law.coefficient**2 @ sizes)
        return np.clip(observed - margin, 0, 1), np.clip(observed + margin, 0, 1)
    if question.bound == "anytime":
        return self_normalised_interval(law, sums, sizes, log_p, total)
    return difference_interval(law, sums, sizes, log_p)


# Theorem 8 of docs/proofs/differences.md
def difference_interval(law: DifferenceLaw, sums: Floats, sizes: Floats, log_p: float) -> Limits:
    """Return bounds on f, each failing with probability at most p.

    `law`, `sums`, `sizes`, `log_p`: as in :func:`difference_limits`.

    >>> one = np.ones(1)
    >>> law = DifferenceLaw(1e4 * one, 1e-4 * one, one, 0.5 * one, one)
    >>> sums, sizes = np.array([[2000.0]]), np.array([[7000.0]])
    >>> lower, upper = difference_interval(law, sums, sizes, np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.1827, 0.2172)
    """
    observed = law.coefficient @ sums
    if law.has_single_block and not (law.free or law.fixed):
        signs = Law(law.counts, law.coefficient, law.contrast)
        lower, upper = interval(signs, observed, log_p)
        return np.clip(lower, 0, 1), np.clip(upper, 0, 1)
    weight = law.counts * law.coefficient**2
    largest_variance = float(weight @ law.largest_share)
    least_edge = -MIN_CELL_REPORTS * log_p * float(law.coefficient.max()) ** 2
    cell_count = max(
        0, math.ceil(math.log(largest_variance / least_edge) / math.log(BLOCK_CELL_RATIO))
    )
    edges = least_edge * BLOCK_CELL_RATIO ** np.arange(cell_count + 1, dtype=np.float64)
    first_cell, last_cell, first_interval = _choose_cells(
        law, sums, sizes, log_p + math.log(CELL_CHOICE_SHARE), edges
    )
    log_left = log_p + math.log1p(-4 * CELL_CHOICE_SHARE)
    lower, upper = np.ones_like(observed), np.zeros_like(observed)
    tilts, costs = cell_tilts(law, edges, log_left)
    for cell in range(int(first_cell.min(initial=0)), int(last_cell.max(initial=0)) + 1):
        members = np.flatnonzero((first_cell <= cell) & (cell <= last_cell))
        if members.size == 0:
            continue
        if cell == 0:
            cell_limits = self_normalised_interval(
                law, sums[:, members], sizes[:, members], log_left
            )
        else:
            tilt, cost = tilts[cell - 1 : cell], float(costs[cell - 1])
            above, below = (x[0, members] - cost for x in exponents(law, tilt, sums, sizes))
            cell_limits = law.limits(float(tilt[0]), above, below)
        lower[members] = np.minimum(lower[members], cell_limits[0])
        upper[members] = np.maximum(upper[members], cell_limits[1])
    estimate = np.clip(observed, 0, 1)  # if beta is near 1, both limits may be on one side of it
    return (
        np.minimum(np.maximum(lower, first_interval[0]), estimate),
        np.maximum(np.minimum(upper, first_interval[1]), estimate),
    )


def _choose_cells(
    law: DifferenceLaw, sums: Floats, sizes: Floats, log_p: float, edges: Floats
) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
    """Return the first and last cell that may contain tau^2, and an interval for f.

    These are four statements, each wrong with probability at most p. Cell 0 ends at the first edge.
    """
    square = law.coefficient**2
    largest = float(law.counts * square @ law.largest_share)
    if law.fixed:
        interval_of_f = np.zeros(sums.shape[1]), np.ones(sums.shape[1])
        terms, unit = sizes - law.contrast[:, None] * sums, square * (1 + law.contrast)
        low, high = bernstein_limits(square @ terms, float(unit.max()), log_p)
    else:
        interval_of_f = self_normalised_interval(law, sums, sizes, log_p, refined=False)
        low, high = square_sum_interval(law, sizes, log_p)
        low = low - law.explained_variance(interval_of_f[1])
        high = high - law.explained_variance(interval_of_f[0])
    rounding, last_cell = 1e-12 * largest, edges.size - 1
    return (
        np.minimum(np.searchsorted(edges, low - rounding, side="right"), last_cell),
        np.minimum(np.searchsorted(edges, high + rounding, side="right"), last_cell),
        interval_of_f,
    )


def square_sum_interval(law: DifferenceLaw, sizes: Floats, log_p: float) -> Limits:
    """Return an interval for the mean of sum s^2 abs(D); each end is wrong with probability <= p.

    `law`: the law of the reports; `sizes`, shape (levels, numbers): the sums of abs(D); `log_p`: ln
    p, where p is the failure probability of each side.
    """
    square = law.coefficient**2
    is_known = law.least_share == law.largest_share
    low = high = np.full(
        sizes.shape[1], float((law.counts * square)[is_known] @ law.least_share[is_known])
    )
    if not is_known.all():
        unknown_square = np.where(is_known, 0, square)
        sums = bernstein_limits(unknown_square @ sizes, float(unknown_square.max()), log_p)
        low, high = low + sums[0], high + sums[1]
    weight = law.counts * square
    least, largest = float(weight @ law.least_share), float(weight @ law.largest_share)
    return np.clip(low, least, largest), np.clip(high, least, largest)


def bernstein_limits(total: Floats, unit: float, log_p: float) -> Limits:
    """Return bounds on the mean of a sum of terms in [0, unit]: Theorem 7 of differences.md.

    `total`: the observed sums; `unit`: the largest value of a term; `log_p`: ln p, where p is the
    failure probability of each side.
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

    `law`: the law of the reports; `edges`: the edges of the cells of tau^2, ascending; `log_p`: ln
    p, where p is the failure probability of each side.
    """
    least_variance, largest_variance = edges[:-1], edges[1:]
    cost = np.full_like(least_variance, -log_p)
    for _ in range(3):
        tilt = np.sqrt(np.maximum(2 * cost, 1.0) / np.sqrt(least_variance * largest_variance))
        log_remainders = [log_remainder(law, x, least_variance) for x in law.tilts(tilt)]
        cost = LOG_P_SAFETY - log_p + np.maximum(*log_remainders)
    return tilt, cost


# Theorems 4 to 6 of docs/proofs/differences.md
def log_remainder(law: DifferenceLaw, x: Floats, least_variance: Floats) -> Floats:
    """Return an upper bound on ln R for all laws whose tau^2 is at least `least_variance`.

    `law`: the law of the reports; `x`, shape (cells, levels): the factors x of D, from
    :meth:`DifferenceLaw.tilts`; `least_variance`, shape (cells,): the least tau^2.
    """
    tanh, psi, c = np.tanh(x), log_cosh(x), law.contrast
    variance_factor = (1 - tanh) * ((x - psi) / law.coefficient) ** 2 / (1 + c * tanh)
    sd = np.sqrt(variance_factor.min(axis=1) * law.unexplained_share * least_variance)
    xi, zeta = x * tanh - psi, x - psi * tanh
    deviation_up = x + psi + (law.largest_share * xi + c * zeta) / (1 + c * tanh)
    deviation_down = x - psi + c * zeta / (1 - c * tanh)
    max_deviation = np.minimum(2 * x, np.maximum(deviation_up, deviation_down)).max(axis=1)
    return log_wealth_remainder(sd, max_deviation)
