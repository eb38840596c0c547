"""Bounds that hold at all times at once, for running totals: a mixture over tilts.

Theorems 9 to 11 of docs/proofs/inversion.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.inversion import LOG_P_SAFETY, LOG_P_TOLERANCE, THETA_ROUNDING
from estimators.bounds.laws.law import Law
from estimators.estimate import Floats
from estimators.interruption import checkpoint

RowIndices = NDArray[np.intp]

CENTRAL_TILT = 2.0**-6
"""The tilt with the largest weight: the best one for some 40,000 reports of variance 1."""
TILT_RATIO = 2.0  # between neighbours: with finer steps, no width gains more than 2%
TILTS_PER_SIDE = 20  # steps either way: from below one report to beyond 10^12
LOG_TILT_SPREAD = 2.0  # of the weights, in units of ln(lambda)
MIXTURE_TERMS, TERMS_BELOW_BEST = (
    6,
    3,
)  # that are summed, and how many of them are below the best: measured as RATIO
MAX_DEVIATION_STEPS = 30
MAX_TANGENT_ROUNDS = 6  # of tangents for one sum; three are enough
LINE_NEWTON_STEPS = 5  # steps of Newton's method on a sum of lines
CATEGORIES_PER_BLOCK = 2**13  # categories at a time, which a cache holds

_LOG_TILT_OFFSETS = np.arange(-TILTS_PER_SIDE, TILTS_PER_SIDE + 1) * np.log(TILT_RATIO)
MIXTURE_TILTS = CENTRAL_TILT * np.exp(_LOG_TILT_OFFSETS)
"""lambda, on the scale of T."""
LOG_MIXTURE_WEIGHTS = -np.log1p((_LOG_TILT_OFFSETS / LOG_TILT_SPREAD) ** 2)
LOG_MIXTURE_WEIGHTS -= np.log(np.exp(LOG_MIXTURE_WEIGHTS).sum())


def lower_limit(
    law: Law, observed: Floats, pivots: Floats, pivot_of_sum: RowIndices, log_p: float, total: float
) -> Floats:
    """Return a theta that the mixture rejects as too small, now or before, or -1; shape (k,).

    Parameters
    ----------
    law : Law
        Its coefficients are c_l / N.
    observed : ndarray of float64, shape (k,)
        The sums S, one a category; the law is the same for all.
    pivots : ndarray of float64, shape (m,)
        Sums at whose limits tangents touch. Any are valid; limits are best for sums near them.
    pivot_of_sum : ndarray of intp, shape (k,)
    log_p : float
        ln p, the failure probability over all times.
    total : float
        N, from :func:`estimators.weights.total_weight`.
    """
    goal = LOG_P_SAFETY - log_p
    terms = _terms(law, pivots, goal, total)
    centre = np.clip(pivots, -1.0, 1.0)
    theta = np.maximum(centre - terms.width, (centre - 1) / 2)
    for _ in range(MAX_TANGENT_ROUNDS):
        checkpoint()
        lines = _tangents(law, theta, terms)
        next_theta = lines.solve(pivots, goal)
        converged = np.abs(next_theta - theta) <= LOG_P_TOLERANCE * terms.width
        theta = next_theta
        if converged.all():
            break
    limits = np.empty_like(observed)
    for begin in range(0, observed.size, CATEGORIES_PER_BLOCK):
        block = slice(begin, begin + CATEGORIES_PER_BLOCK)
        limits[block] = lines.of_rows(pivot_of_sum[block]).solve(observed[block], goal)
    return np.maximum(limits - (THETA_ROUNDING + law.offset_rounding), -1.0)


class _Terms(NamedTuple):
    """Tilts on the scale of S and log weights, shape (m, MIXTURE_TERMS), and a first width."""

    tilts: Floats
    log_weights: Floats
    width: Floats


def _terms(law: Law, pivots: Floats, goal: float, total: float) -> _Terms:
    """Choose the terms near the best tilt of a normal law with the variance near the limit."""
    score_width = np.sqrt(2 * (goal + 2))
    centre = np.clip(pivots, -1.0, 1.0)
    theta = np.maximum(centre - score_width * np.sqrt(law.worst_variance), (centre - 1) / 2)
    sd = np.sqrt(law.largest_variance(theta))
    best_term = np.log(
        np.minimum(score_width / sd, law.max_tilt) / (total * CENTRAL_TILT)
    ) / np.log(TILT_RATIO)
    first_term = np.clip(
        np.floor(best_term).astype(int) + TILTS_PER_SIDE - TERMS_BELOW_BEST,
        0,
        MIXTURE_TILTS.size - MIXTURE_TERMS,
    )
    term_index = first_term[:, None] + np.arange(MIXTURE_TERMS)
    tilts = MIXTURE_TILTS[term_index] * total
    is_too_steep = tilts > law.max_tilt
    return _Terms(
        np.minimum(tilts, law.max_tilt),
        np.where(is_too_steep, -np.inf, LOG_MIXTURE_WEIGHTS[term_index]),
        score_width * sd,
    )


class LinearMixture(NamedTuple):
    """A mixture whose cumulants are lines: rows of terms, and `theta`, where the lines touch."""

    theta: Floats
    tilts: Floats
    log_weights: Floats
    value: Floats
    slope: Floats

    def of_rows(self, rows: RowIndices) -> LinearMixture:
        """Return the lines of these rows."""
        return LinearMixture(*(part[rows] for part in self))

    def log_mixture(self, theta: Floats, observed: Floats) -> tuple[Floats, Floats]:
        """Return the logarithm of the mixture and how fast it falls with theta, each (rows,)."""
        moved = self.value + self.slope * (theta - self.theta)[:, None]
        terms = self.log_weights + self.tilts * observed[:, None] - moved
        largest = terms.max(axis=1)
        # all terms are too steep only if there is hardly a report: nothing is rejected then
        shifted = np.exp(terms - np.where(np.isfinite(largest), largest, 0.0)[:, None])
        mass = np.maximum(shifted.sum(axis=1), 1e-300)
        falls = (shifted * self.slope).sum(axis=1) / mass
        return largest + np.log(mass), np.maximum(falls, 1e-300)

    def solve(self, observed: Floats, goal: float) -> Floats:
        """Return thetas in [-1, 1] at which the mixture has reached `goal`, or -1."""
        theta = self.theta
        for _ in range(LINE_NEWTON_STEPS):
            value, falls = self.log_mixture(theta, observed)
            theta = theta + (value - goal) / falls
        return np.clip(theta, -1.0, 1.0)


def _tangents(law: Law, theta: Floats, terms: _Terms) -> LinearMixture:
    """Return the mixture of lines that touch the cumulants at `theta`, of shape (m,)."""
    value, slope = touch_cumulants(law, theta, terms.tilts)
    return LinearMixture(theta, terms.tilts, terms.log_weights, value, slope)


def touch_cumulants(law: Law, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
    """Return lines that bound the cumulants for all means: Theorem 11 of docs/proofs/inversion.md.

    Parameters
    ----------
    law : Law
    theta : ndarray of float64, shape (m,)
        Where they touch.
    tilts : ndarray of float64, shape (m, terms)
        On the scale of S.

    Returns
    -------
    value, slope : ndarray of float64, shape (m, terms)
        The lines' values at theta, and their slopes.
    """
    flat, shape = tilts.ravel(), tilts.shape
    at = law.tangent(np.repeat(theta, shape[1]), flat)
    value, slope = (x.reshape(shape) for x in at)
    if law.free:
        plain = tilts * theta[:, None] + _hoeffding(law, flat).reshape(shape)
        slope = np.where(plain < value, tilts, slope)
        value = np.minimum(value, plain)
    return value, slope


def _hoeffding(law: Law, tilts: Floats) -> Floats:
    """Bound ln E exp(tilt (S - theta)) by Hoeffding's lemma, for free means."""
    from estimators.exact import discrete_laplace

    result: Floats = tilts**2 / 2 * law.proxy
    if law.rate is not None:
        step = law.unit * law.coefficient
        result = result + discrete_laplace.cumulant(law.rate, tilts[:, None] * step)[0] @ law.counts
    return result


def deviation_bound(
    cumulant: Callable[[Floats], Floats], max_tilt: float, log_p: float, total: float
) -> float:
    """Bound |S - E S| at all times with probability 1 - 2 p, for noise independent of the mean.

    Parameters
    ----------
    cumulant : callable
        Bounds ln E exp(tilt (S - E S)), for an array of tilts up to `max_tilt`.
    max_tilt : float
    log_p : float
        ln p, the failure probability of one side over all times.
    total : float
        N, from :func:`estimators.weights.total_weight`.

    Returns
    -------
    float
        In the unit of S; infinite for very few reports.
    """
    tilts, log_weights = usable_tilts(max_tilt, total)
    if not tilts.size:
        return np.inf
    return float(deviation_bounds(cumulant(tilts)[None], tilts, log_weights, log_p)[0])


def usable_tilts(max_tilt: float, total: float) -> tuple[Floats, Floats]:
    """Return the mixture's tilts on the scale of S, up to `max_tilt`, and their log weights."""
    tilts = MIXTURE_TILTS * total
    allowed = tilts <= max_tilt
    return tilts[allowed], LOG_MIXTURE_WEIGHTS[allowed]


def deviation_bounds(value: Floats, tilts: Floats, log_weights: Floats, log_p: float) -> Floats:
    """Return :func:`deviation_bound` of k sums, shape (k,).

    Parameters
    ----------
    value : ndarray of float64, shape (k, tilts)
        Bounds on the cumulants.
    tilts, log_weights : ndarray of float64, shape (tilts,)
        From :func:`usable_tilts`; not empty.
    log_p : float
    """
    goal = LOG_P_SAFETY - log_p
    # the best single term is enough; from there Newton's method falls to the root of a convex sum
    bound = np.min((goal - log_weights + value) / tilts, axis=1)
    for _ in range(MAX_DEVIATION_STEPS):
        checkpoint()
        terms = log_weights + tilts * bound[:, None] - value
        largest = terms.max(axis=1)
        chance = np.exp(terms - largest[:, None])
        total = chance.sum(axis=1)
        excess = largest + np.log(total) - goal
        if (excess <= LOG_P_TOLERANCE).all():
            break
        step = (excess - LOG_P_TOLERANCE / 2) * (total / (chance @ tilts))
        bound = np.where(excess <= LOG_P_TOLERANCE, bound, bound - step)
    deviation_bounds: Floats = bound * (1 + THETA_ROUNDING)
    return deviation_bounds
