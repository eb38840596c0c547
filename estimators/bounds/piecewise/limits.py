"""Bounds on a mean from counts of symbols: Theorems 3, 7 and 8 of docs/proofs/bets.md."""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS
from estimators.bounds.normal import normal_quantile
from estimators.bounds.piecewise.bets import MAX_STAKE, SymbolBets
from estimators.bounds.piecewise.cells import (
    CellBet,
    cell_edges,
    cells_meeting,
    limits_in_all_cells,
)
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats
from estimators.question import Question

CELL_CHOICE_SHARE = 0.01
"""d: of the failure probability, for each of the four statements that choose cells."""
MAX_CENTRE_DISTANCE = 0.15
"""Of a report's least standard deviation: how far a mean is from the centre of squares at most."""
CENTRES_PER_BATCH = 64  # of squares, whose intervals are computed together


def symbol_limits(
    bets: SymbolBets, question: Question, log_p: float, total: float
) -> tuple[float, float]:
    """Return bounds on the mean in [-1, 1] for a question.

    With p near 1/2, both sides may reject the estimate.

    Parameters
    ----------
    bets : SymbolBets
    question : Question
        Its `bound` determines the interval.
    log_p : float
    total : float
        From :func:`estimators.weights.total_weight`, for ``anytime``.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from estimators.bounds import PiecewiseLaw
    >>> from estimators.exact.piecewise_shapes import shape_at
    >>> shape, counts = shape_at(Fraction(4)), np.full((1, 30), 100)
    >>> law = PiecewiseLaw.of([shape], np.array([3e3]), np.array([1 / 3e3]), free=False)
    >>> question = Question(bound="fixed")
    >>> lower, upper = symbol_limits(SymbolBets(law, counts), question, np.log(0.025), 3e3)
    >>> round(lower, 3), round(upper, 3)
    (-0.033, 0.033)
    """
    if question.bound == "normal":
        return _normal_limits(bets, log_p)
    if question.bound == "anytime":
        return anytime_lower_limit(bets, log_p, total), -anytime_lower_limit(
            bets.mirrored(), log_p, total
        )
    return fixed_limits(bets, log_p)


# Theorem 3 of docs/proofs/bets.md
def anytime_lower_limit(bets: SymbolBets, log_p: float, total: float) -> float:
    """Return a theta that the mixture rejects as too small: now, or at any time before.

    Parameters are as in :func:`symbol_limits`.
    """
    tilts = MIXTURE_TILTS * total
    allowed = tilts <= bets.max_tilt
    tilts = tilts[allowed]
    return bets.lower_limit(
        tilts, bets.gains(tilts) + LOG_MIXTURE_WEIGHTS[allowed] + log_p - LOG_P_SAFETY
    )


# Theorem 7 of docs/proofs/bets.md
def fixed_limits(bets: SymbolBets, log_p: float) -> tuple[float, float]:
    """Return both limits for a number of reports that is fixed in advance."""
    law, log_statement_p = bets.law, log_p + math.log(CELL_CHOICE_SHARE)
    low, high = mean_interval(bets, log_statement_p)
    log_left = log_p + math.log1p(-4 * CELL_CHOICE_SHARE)
    edges = cell_edges(law)
    cells = [
        CellBet(law, float(edges[cell]), float(edges[cell + 1]), bets.max_tilt, log_left)
        for cell in cells_meeting(edges, variance_interval(bets, (low, high), log_statement_p))
    ]
    lower, upper = limits_in_all_cells(bets, cells, (low, -high))
    return lower, -upper


def mean_interval(bets: SymbolBets, log_p: float) -> tuple[float, float]:
    """Return an interval for the mean; each of its ends fails with probability p.

    Fabricated counts may reject all means: it is then from the one limit to the other.
    """
    total = float(bets.law.counts.sum())  # the tilts of the mixture suit reports of one weight
    limits = [
        anytime_lower_limit(bets, log_p, total),
        -anytime_lower_limit(bets.mirrored(), log_p, total),
    ]
    return min(limits), max(limits)


def _normal_limits(bets: SymbolBets, log_p: float) -> tuple[float, float]:
    """Return the limits of a normal law with the variance that was observed."""
    theta = bets.mean
    variance = bets.observed_variance(min(max(theta, -1.0), 1.0))
    margin = normal_quantile(log_p) * math.sqrt(variance)
    lower, upper = np.clip([theta - margin, theta + margin], -1, 1).tolist()
    return lower, upper


# Theorem 8 of docs/proofs/bets.md
def variance_interval(
    bets: SymbolBets, mean_interval: tuple[float, float], log_p: float
) -> tuple[float, float]:
    """Return an interval for tau^2; each of its ends fails with probability p.

    Parameters
    ----------
    bets : SymbolBets
    mean_interval : tuple of float
        The ends of an interval for the mean, which has to be right.
    log_p : float
    """
    law, weight = bets.law, bets.square_weight
    half = MAX_CENTRE_DISTANCE * math.sqrt(law.least_variance / weight)
    first, last = (math.floor(x / (2 * half) + 0.5) for x in mean_interval)
    low, high = math.inf, -math.inf
    for start in range(first, last + 1, CENTRES_PER_BATCH):
        stop = min(start + CENTRES_PER_BATCH, last + 1)
        centres = 2 * half * np.arange(start, stop, dtype=np.float64)
        square_low, square_high = square_sum_intervals(bets, centres, log_p)
        low, high = min(low, float(square_low.min())), max(high, float(square_high.max()))
    rounding = 1e-12 * law.worst_variance
    return low - half**2 * weight - rounding, high + rounding


def square_sum_intervals(bets: SymbolBets, centres: Floats, log_p: float) -> tuple[Floats, Floats]:
    """Return lower and upper limits, (k,), of the mean sum of (s Y - m)^2: m is s a, or a / n.

    Parameters
    ----------
    bets : SymbolBets
    centres : ndarray of float64, shape (k,)
        a.
    log_p : float
        ln of the probability with which each end fails, for each a by itself.
    """
    law = bets.law
    n, s = float(law.counts.sum()), law.coefficient
    centre_per_report = centres[:, None] * (np.full_like(s, 1 / n) if law.free else s)
    squared_deviations = (s[:, None] * law.symbols.values - centre_per_report[..., None]) ** 2
    max_square = (np.abs(s * law.symbols.largest) + np.abs(centre_per_report)).max(axis=1) ** 2
    tilt_count = 2 + max(0, math.ceil(math.log2(n) / 2))
    tilts = MAX_STAKE / max_square[:, None] * 2.0 ** -np.arange(tilt_count)
    stakes = tilts[:, :, None] * squared_deviations.reshape(centres.size, 1, -1)
    gain_above, gain_below = (np.log1p(x) @ bets.counts.ravel() for x in (stakes, -stakes))
    cost = LOG_P_SAFETY - log_p + math.log(tilt_count)
    low = n / tilts * np.expm1((gain_above - cost) / n)
    high = -n / tilts * np.expm1((gain_below - cost) / n)
    return low.max(axis=1), high.min(axis=1)
