"""Bounds for any number of zeros: Theorem 3 of docs/proofs/differences.md."""

from __future__ import annotations

import numpy as np

from estimators.bounds.block_differences.law import DifferenceLaw
from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS
from estimators.bounds.signs.law import MAX_SIGN_TILT
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats


# Theorem 3 of docs/proofs/differences.md
def self_normalised_interval(
    law: DifferenceLaw,
    sums: Floats,
    sizes: Floats,
    log_p: float,
    total: float | None = None,
    *,
    refined: bool = True,
) -> tuple[Floats, Floats]:
    """Return bounds on f, shape (k,), each failing with probability at most p.

    Parameters
    ----------
    law : DifferenceLaw
    sums, sizes : ndarray of float64, shape (levels, k)
        The sums of D and of abs(D), for each of k categories.
    log_p : float
    total : float, optional
        From :func:`estimators.weights.total_weight`: the bounds then hold at all times at once.
    refined : bool
        See :meth:`DifferenceLaw.limits`.

    Examples
    --------
    >>> one = np.ones(1)
    >>> law = DifferenceLaw(1e4 * one, 1e-4 * one, one, 0.5 * one, one)
    >>> sums, sizes = np.array([[2000.0]]), np.array([[7000.0]])
    >>> lower, upper = self_normalised_interval(law, sums, sizes, np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.1778, 0.222)
    """
    tilts = _tilts(law, log_p)
    log_shares = np.full(len(tilts), -np.log(len(tilts)))
    if total is not None:
        max_tilt = MAX_SIGN_TILT / float(law.coefficient.max())
        tilt_grid = MIXTURE_TILTS * total
        is_near = (tilt_grid >= tilts.min() / 2) & (tilt_grid <= min(2 * tilts.max(), max_tilt))
        tilts, log_shares = tilt_grid[is_near], LOG_MIXTURE_WEIGHTS[is_near]
    lower, upper = np.full(sums.shape[1], law.lowest), np.ones(sums.shape[1])
    for tilt_number, tilt in enumerate(tilts.tolist()):
        above, below = exponents(law, tilts[tilt_number : tilt_number + 1], sums, sizes)
        cost = LOG_P_SAFETY - log_p - float(log_shares[tilt_number])
        low, high = law.limits(tilt, above[0] - cost, below[0] - cost, refined)
        lower, upper = np.maximum(lower, low), np.minimum(upper, high)
    return lower, upper


def exponents(
    law: DifferenceLaw, tilt: Floats, sums: Floats, sizes: Floats
) -> tuple[Floats, Floats]:
    """Return sum x D - sum abs(D) ln cosh x for D and for -D, each of shape (tilts, k).

    Parameters
    ----------
    law, sums, sizes
        As in :func:`self_normalised_interval`.
    tilt : ndarray of float64, shape (tilts,)
        As in :meth:`DifferenceLaw.tilts`.
    """
    plus, minus = law.tilts(tilt)
    above, spent = plus @ sums, log_cosh(plus) @ sizes
    if minus is plus:
        return above - spent, -above - spent
    return above - spent, -(minus @ sums) - log_cosh(minus) @ sizes


def _tilts(law: DifferenceLaw, log_p: float) -> Floats:
    """Return tilts for the range of possible variances, a factor of 2 apart.

    The nearest is within a factor of sqrt 2 of the best, which costs at most 6% of the width.
    """
    weight = law.counts * law.coefficient**2
    # a steeper tilt than this gains nothing, and loses digits
    min_variance = -2 * log_p * (float(law.coefficient.max()) / MAX_SIGN_TILT) ** 2
    least_variance = max(float(weight @ law.least_share), min_variance)
    largest_variance = max(float(weight @ law.largest_share), 2 * min_variance)
    steps = max(1, int(np.ceil(np.log2(largest_variance / least_variance) / 2)))
    variance_grid = np.geomspace(least_variance, largest_variance, 2 * steps + 1)[1::2]
    return np.sqrt(-2 * log_p / variance_grid)


def log_cosh(z: Floats) -> Floats:
    """Return ln cosh z for z >= 0, without overflow."""
    log_cosh_z: Floats = z + np.log1p(np.exp(-2 * z)) - np.log(2)
    return log_cosh_z
