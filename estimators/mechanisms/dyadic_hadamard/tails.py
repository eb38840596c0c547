"""Bounds how far a sum of bounded scores can be from its mean, given its variance.

Let b be a bound on the absolute value of one centred score, and V one on the variance of the sum.
The results are in units of b and depend on r = V / b^2 alone.

Sources: Bentkus, "On Hoeffding's inequalities", Annals of Probability 32 (2004); Kuchibhotla and
Zheng, "Near-optimal confidence sequences for bounded random variables" (2021); Howard, Ramdas,
McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences" (2021).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from estimators.estimate import Floats, Indices

LOWEST_LOG_RATIO = math.log(0.5)
LOG_RATIO_STEP, RATIO_CELLS = 0.25, 60
"""The grid of ln r for a fixed number of reports; the last cell holds for all larger r."""
LOG_OMITTED = 60.0
"""Atoms of a Poisson law are left out if they are below e^-60 of the tail's probability."""
TIME_STEP, LOWEST_RATIO, TIME_CELLS = 0.01, 1e-6, 6_000
"""The grid of ln r for all times. No r is beyond it: r is at most the number of reports."""
LOWEST_CELL = math.floor(math.log(LOWEST_RATIO) / TIME_STEP)
MIXTURE_RATES = 2 * 1.5 ** -np.arange(30.0)
MAX_NEWTON_STEPS = 200


def fixed_deviation(ratio: Floats, tail: float) -> Floats:
    """Return x such that a sum is above its mean by x b with probability at most `tail`.

    `ratio`: r = V / b^2, above 0; `tail`: in (0, 1). From r = 1/2 on it is Bentkus's bound, in the
    symbols of theorem 2 of docs/proofs/distributions.md, below that Bernstein's. The best h is
    searched for at the atoms of T, on a grid of r. x / sqrt(r) falls with r, so the grid's entry
    below r is valid.
    """
    log_tail = -math.log(tail)
    root = np.sqrt(ratio)
    cell = np.floor((np.log(np.maximum(ratio, 1e-300)) - LOWEST_LOG_RATIO) / LOG_RATIO_STEP)
    index = np.clip(cell, 0, RATIO_CELLS - 1).astype(np.intp)
    table = _bentkus_table(tail)
    for entry in set(index[np.isnan(table[index])].tolist()):
        table[entry] = _bentkus(entry, tail)
    bernstein = math.sqrt(2 * log_tail) * root + log_tail / 3
    return np.where(cell < 0, bernstein, root * table[index])


@functools.lru_cache(maxsize=256)
def _bentkus_table(tail: float) -> Floats:
    """Return the table of :func:`_bentkus` for a `tail`; NaN where nothing is computed yet."""
    return np.full(RATIO_CELLS, np.nan)


def _bentkus(cell: int, tail: float) -> float:
    """Return Bentkus's bound x, over sqrt(r), for r at the lower end of a cell of the grid."""
    from scipy.special import gammaln, xlogy

    r, depth = math.exp(LOWEST_LOG_RATIO + LOG_RATIO_STEP * cell), LOG_OMITTED - math.log(tail)
    width = math.sqrt(2 * r * depth) + depth
    atoms = np.arange(math.floor(r), math.ceil(r + width) + 1, dtype=np.float64)
    chances = np.exp(xlogy(atoms, r) - r - gammaln(atoms + 1))
    # E(N - k)_+ = sum of P(N >= j) over j > k, and (n - k)^2 = 2 sum of (n - j) over j >= k, - n+k
    at_least = np.cumsum(chances[::-1])[::-1]
    excess = np.cumsum(at_least[::-1])[::-1] - at_least
    square = 2 * np.cumsum(excess[::-1])[::-1] - excess
    return float((atoms - r + np.sqrt(square / tail)).min() / math.sqrt(r))


def anytime_deviation(ratio: Floats, tail: float) -> Floats:
    """Return x such that with probability >= 1 - `tail` a sum is never above its mean by x b.

    `ratio`: r = V / b^2 at the present time, above 0; b is the same at all times; `tail`: in (0,
    1). Theorem 2 of docs/proofs/distributions.md, with a mixture over 30 rates. x grows with r, so
    the grid's entry above r is valid.
    """
    cell = np.ceil(np.log(np.maximum(ratio, LOWEST_RATIO)) / TIME_STEP).astype(np.intp)
    index = cell - LOWEST_CELL
    table = _mixture_table(tail)
    missing = np.unique(index[np.isnan(table[index])])
    if missing.size:
        table[missing] = _mixture_deviation(missing, tail)
    return table[index]


@functools.lru_cache(maxsize=16)
def _mixture_table(tail: float) -> Floats:
    """Return the table of x from the cell LOWEST_CELL on; NaN where nothing is computed yet."""
    return np.full(TIME_CELLS, np.nan)


def _mixture_deviation(index: Indices, tail: float) -> Floats:
    """Return the bound x for all times, for r at the upper ends of cells of the grid."""
    r = np.exp(TIME_STEP * (index + LOWEST_CELL))[:, None]
    goal = -math.log(tail) + math.log(MIXTURE_RATES.size)
    psi = np.expm1(MIXTURE_RATES) - MIXTURE_RATES
    # the best rate alone gives an x that is large enough; from there Newton's method descends to
    # the root of a convex function
    x = ((goal + psi * r) / MIXTURE_RATES).min(axis=1)
    for _ in range(MAX_NEWTON_STEPS):
        terms = MIXTURE_RATES * x[:, None] - psi * r
        top = terms.max(axis=1)
        parts = np.exp(terms - top[:, None])
        mass = parts.sum(axis=1)
        step = (top + np.log(mass) - goal) * mass / np.vecdot(parts, MIXTURE_RATES)
        is_moving = step >= 1e-10 * x  # row by row: entries do not depend on others
        x = np.where(is_moving, x - step, x)
        if not is_moving.any():
            break
    return np.asarray(x * (1 + 1e-9))
