"""Bounds on a mean from counts of symbols: Theorems 3, 7 and 8 of docs/proofs/bets.md."""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS
from estimators.bounds.normal import normal_quantile
from estimators.bounds.piecewise.bets import MAX_STAKE, SymbolBets
from estimators.bounds.piecewise.cells import CellBets, limits_in_all_cells
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Counts, Floats, Indices, Limits
from estimators.question import Question

CELL_CHOICE_SHARE = 0.01
"""d: the share of the failure probability for each of the four statements that choose cells."""
MAX_CENTRE_DISTANCE = 0.15
"""The largest distance of a mean from the centre of squares, in a report's standard deviations."""
CENTRES_PER_BATCH = 64  # centres of squares whose intervals are computed together
WINDOWS_PER_BATCH = 32  # windows computed together: a processor's cache holds their arrays


def symbol_limits(
    bets: SymbolBets, question: Question, log_p: float, total: Floats | float
) -> Limits:
    """Return bounds on the mean in [-1, 1] for a question, for each window.

    If p is near 1/2, both limits may be on one side of the estimate. `bets`: the bets of one
    window, or of many windows in rows; results are numbers, or have the shape (windows,);
    `question`: its `bound` determines the interval; `log_p`: ln p, where p is the failure
    probability of each side; `total`: from :func:`estimators.weights.total_weight`, for
    ``anytime``.

    >>> from fractions import Fraction
    >>> from estimators.bounds import PiecewiseLaw
    >>> from estimators.exact.piecewise_shapes import shape_at
    >>> shape, counts = shape_at(Fraction(4)), np.full((1, 30), 100)
    >>> law = PiecewiseLaw.of([shape], np.array([3e3]), np.array([1 / 3e3]), free=False)
    >>> question = Question(bound="fixed")
    >>> lower, upper = symbol_limits(SymbolBets(law, counts), question, np.log(0.025), 3e3)
    >>> round(float(lower), 3), round(float(upper), 3)
    (-0.033, 0.033)
    """
    if question.bound == "normal":
        return _normal_limits(bets, log_p)
    if question.bound == "anytime":
        lower, mirrored = anytime_lower_limits(bets, log_p, total)
        return lower, -mirrored
    return fixed_limits(bets, log_p)


# Theorem 3 of docs/proofs/bets.md
def anytime_lower_limits(bets: SymbolBets, log_p: float, total: Floats | float) -> Floats:
    """Return lower limits of theta and of -theta that hold at all times, shape (2, ...).

    `bets`, `log_p`, `total`: as in :func:`symbol_limits`.
    """
    tilts = MIXTURE_TILTS * np.asarray(total)[..., None]
    is_allowed = tilts <= bets.max_tilt[..., None]
    used = is_allowed.any(axis=tuple(range(is_allowed.ndim - 1)))
    cost = np.where(is_allowed, LOG_P_SAFETY - log_p - LOG_MIXTURE_WEIGHTS, np.inf)
    if not used.any():
        return np.full((2, *tilts.shape[:-1]), -1.0)
    return bets.lower_limits(tilts[..., used], cost[..., used])


# Theorem 7 of docs/proofs/bets.md
def fixed_limits(bets: SymbolBets, log_p: float) -> Limits:
    """Return both limits for a number of reports that is fixed in advance.

    `bets`, `log_p`: as in :func:`symbol_limits`.
    """
    if bets.counts.ndim == 2:
        lower, upper = fixed_limits(bets.rows(None), log_p)
        return lower[0], upper[0]
    if len(bets.counts) > WINDOWS_PER_BATCH:
        begins = range(0, len(bets.counts), WINDOWS_PER_BATCH)
        parts = [bets.rows(slice(begin, begin + WINDOWS_PER_BATCH)) for begin in begins]
        limits = [fixed_limits(part, log_p) for part in parts]
        lower, upper = (np.concatenate(side) for side in zip(*limits, strict=True))
        return lower, upper
    log_statement_p = log_p + math.log(CELL_CHOICE_SHARE)
    low, high = mean_interval(bets, log_statement_p)
    variance = variance_interval(bets, (low, high), log_statement_p)
    log_left = log_p + math.log1p(-4 * CELL_CHOICE_SHARE)
    cells = CellBets.meeting(bets.law, variance, bets.max_tilt, log_left)
    lower, mirrored = limits_in_all_cells(bets, cells, (low, -high))
    return lower, -mirrored


def mean_interval(bets: SymbolBets, log_p: float) -> Limits:
    """Return an interval for the mean; each of its ends is wrong with probability at most p.

    Fabricated counts may reject all means; the interval is then the one between the two limits.
    `bets`, `log_p`: as in :func:`symbol_limits`.
    """
    total = bets.law.counts.sum(axis=-1)  # as if all reports had the same weight
    lower, mirrored = anytime_lower_limits(bets, log_p, total)
    return np.minimum(lower, -mirrored), np.maximum(lower, -mirrored)


def _normal_limits(bets: SymbolBets, log_p: float) -> Limits:
    """Return the limits for a normal law with the observed variance."""
    variance = bets.observed_variance(np.clip(bets.mean, -1.0, 1.0))
    margin = normal_quantile(log_p) * np.sqrt(variance)
    return np.clip(bets.mean - margin, -1, 1), np.clip(bets.mean + margin, -1, 1)


# Theorem 8 of docs/proofs/bets.md
def variance_interval(bets: SymbolBets, mean_interval: Limits, log_p: float) -> Limits:
    """Return an interval for tau^2; each of its ends is wrong with probability at most p.

    `bets`: the bets of the windows, in rows; `mean_interval`, shape (windows,): the ends of an
    interval for the mean; the result is valid if this interval contains the mean; `log_p`: ln p,
    where p is the failure probability of each side.
    """
    law, weight = bets.law, bets.square_weight
    half = MAX_CENTRE_DISTANCE * np.sqrt(law.least_variances / weight)
    first, last = (np.floor(x / (2 * half) + 0.5) for x in mean_interval)
    size = (last - first).astype(np.intp) + 1
    window, starts = np.repeat(np.arange(size.size), size), np.cumsum(size) - size
    centres = 2 * half[window] * (np.arange(window.size) - (starts - first)[window])
    ends = np.empty((2, window.size))
    for begin in range(0, window.size, CENTRES_PER_BATCH):
        part = slice(begin, begin + CENTRES_PER_BATCH)
        ends[:, part] = square_sum_intervals(bets, window[part], centres[part], log_p)
    rounding = 1e-12 * law.worst_variances
    low = np.minimum.reduceat(ends[0], starts) - half**2 * weight - rounding
    return low, np.maximum.reduceat(ends[1], starts) + rounding


def square_sum_intervals(
    bets: SymbolBets, windows: Indices, centres: Floats, log_p: float
) -> Limits:
    """Return limits, (k,), of the mean of the sum of (s Y - m)^2; m is s a, or a / n if free.

    `bets`: the bets of the windows, in rows; `windows`, `centres`, shape (k,): windows, and centres
    a; `log_p`: ln of the probability with which each end fails, for each a alone.
    """
    law, (counts, levels, values) = bets.law.rows(windows), bets.reported
    n, s = law.counts.sum(axis=-1)[:, None], law.coefficient
    centre_per_report = centres[:, None] * (1 / n + 0 * s if law.free else s)
    max_square = (np.abs(s * law.symbols.largest) + np.abs(centre_per_report)).max(axis=1) ** 2
    squares = (s[:, levels] * values - centre_per_report[:, levels]) ** 2
    return square_limits(squares, counts[0, windows], max_square, n[:, 0], log_p)


def square_limits(
    squares: Floats, counts: Counts | Floats, largest: Floats, n: Floats, log_p: float
) -> Limits:
    """Return lower and upper limits, (k,), of the mean of a sum of independent squares.

    `squares`, shape (k, kinds): the square of a report of each kind; `counts`, shape (k, kinds) or
    (kinds,): how many reports are of each kind; `largest`, shape (k,): the largest possible square;
    `n`, shape (k,): the number of reports; `log_p`: ln of the probability with which each limit
    fails.
    """
    n = n[:, None]
    tilt_count = 2 + np.maximum(0, np.ceil(np.log2(n) / 2))
    rank = np.arange(float(tilt_count.max()))
    tilts = MAX_STAKE / largest[:, None] * 2.0**-rank
    stakes = tilts[:, :, None] * squares[:, None]
    gain_above, gain_below = (
        np.vecdot(np.log1p(x), counts[..., None, :]) for x in (stakes, -stakes)
    )
    cost = LOG_P_SAFETY - log_p + np.log(tilt_count)
    low = n / tilts * np.expm1((gain_above - cost) / n)
    high = -n / tilts * np.expm1((gain_below - cost) / n)
    is_used = rank < tilt_count
    low, high = np.where(is_used, low, -np.inf), np.where(is_used, high, np.inf)
    return low.max(axis=1), high.min(axis=1)
