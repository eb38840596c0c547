"""Turns tail bounds into a confidence interval: the means that the observed sum does not reject.

The lower limit is a theta at which the probability of a sum as large as the observed one is
*bounded* by p. That one evaluation is the proof. The largest probability over all laws of mean
theta grows with theta (a law on [-1, 1] can be moved up to any larger mean, and signs with a larger
mean are stochastically larger). So every smaller theta is rejected as well, whether or not the
bound itself is monotone. It does not matter how theta was found, and a search that stops early only
gives a wider interval.
"""

from __future__ import annotations

import numpy as np

from estimators.bounds.fourier.laplace import log_laplace_remainder
from estimators.bounds.laws.law import Law
from estimators.bounds.tails import log_tail
from estimators.estimate import Floats
from estimators.interruption import checkpoint

SAFETY = 1e-6
"""Relative to p: far above the rounding errors of the sums (below 1e-9 at 1e9 reports)."""
ROUNDING = 1e-12
"""In theta: far above the rounding errors of contrasts and coefficients, far below any width."""
STEPS = 40
WHOLE = 1e-3  # far above what rounding can move a count by (below 1e-5 at 1e9 reports)
CLOSE = 4e-3  # in ln p: below 0.1% of the half-width
TANGENTS = 4
BELOW = (0.85, 0.93)  # tilts over that of Chernoff's bound for a normal law
SPARSE = 8  # of so many limits one is searched for first, the others from between these


def lower_limit(law: Law, observed: Floats, log_p: float) -> Floats:
    """Return a theta that each observed sum rejects as too small, or -1.

    Parameters
    ----------
    law : Law
    observed : ndarray of float64, shape (k,)
        The sums S, one for each category, ascending; the law is the same for all.
    log_p : float
        ln p, the failure probability.

    Returns
    -------
    ndarray of float64, shape (k,)
        At least -1.
    """
    if law.binomial:
        found = _exact(law, observed, log_p)
    else:
        found = _limits(law, observed, log_p)[0]
        if law.rate is not None:
            found = np.maximum(found, _noisy_limits(law, law.rate, observed, log_p, found))
    return np.maximum(found - (ROUNDING + law.offset_rounding), -1.0)


def _exact(law: Law, observed: Floats, log_p: float) -> Floats:
    """Return the limits of Clopper and Pearson (1934), for signs of one level and one mean.

    The number of signs that are +1 is binomial, and its tail probability at a limit is an
    incomplete beta function. One evaluation of it is the proof.
    """
    from scipy.special import betainc, betaincinv

    n, offset = float(law.counts[0]), float(law.offsets[0])
    ones = (observed / float(law.coefficient[0]) + n * (1 + offset)) / 2
    ones = np.clip(np.ceil(ones - WHOLE), 0, n)  # a sum between two counts is the upper
    some = ones > 0
    goal = np.exp(log_p) * (1 - SAFETY)
    chance = betaincinv(ones[some], n - ones[some] + 1, goal * (1 - SAFETY))
    proved = betainc(ones[some], n - ones[some] + 1, chance) <= goal
    found = np.full_like(observed, -1.0)
    found[some] = np.where(proved, (2 * chance - 1 - offset) / float(law.contrast[0]), -1.0)
    return np.clip(found, -1.0, 1.0)


def _limits(law: Law, observed: Floats, log_p: float) -> tuple[Floats, Floats]:
    """Return rejected thetas and their tilts: first for some sums, then for the others."""
    if observed.size <= 4 * SPARSE:
        return _search(law, observed, log_p, None)
    some = np.append(observed[::SPARSE], observed[-1])
    theta, tilt = _limits(law, some, log_p)
    near = np.interp(observed, some, theta), np.interp(observed, some, tilt)
    return _search(law, observed, log_p, near)


def _noisy_limits(law: Law, rate: Floats, observed: Floats, log_p: float, theta: Floats) -> Floats:
    """Return limits of Chernoff's bound times the remainder of the noise, from nearby thetas.

    The data's transform has its largest modulus at tau = 0. So the noise alone determines the
    remainder, and theta is needed in the cumulant only. There it is concave; where a tangent is
    below the goal, the cumulant is, too.
    """
    step = law.unit * law.coefficient
    best = np.full_like(theta, -1.0)
    normal = np.sqrt(-2 * log_p / law.largest_variance(theta))
    for below in BELOW:
        tilt = np.minimum(below * normal, law.steepest)
        spare = log_laplace_remainder(law.counts, rate, step, tilt)
        goal, limit = tilt * observed + log_p - SAFETY - spare, theta
        for _ in range(TANGENTS):
            value, slope = law.tangent(limit, tilt)
            limit = np.clip(limit + (goal - value) / slope, -1.0, 1.0)
        best = np.maximum(best, limit)
    return best


def _search(
    law: Law, observed: Floats, log_p: float, near: tuple[Floats, Floats] | None
) -> tuple[Floats, Floats]:
    """Return the same, starting from nearby thetas and tilts, if known."""
    goal = log_p - SAFETY
    aim = goal - CLOSE / 2
    # for a normal tail, the slope of ln p(theta) is that of the cumulant times this
    sharper = 1 + 1 / max(1.0, -2 * log_p - 2)
    sd = np.sqrt(law.worst_variance) * np.ones_like(observed)
    if law.offset is not None:  # rare categories have a far smaller variance than the worst
        sd = np.sqrt(law.largest_variance(np.clip(observed, -1, 1)))
    flat = 1e-12 * law.worst_variance
    width = sd * np.sqrt(-2 * log_p)
    found = np.full_like(observed, -1.0)
    going = np.arange(observed.size)
    low, high = found.copy(), np.clip(observed, -1.0, 1.0)
    theta = np.maximum(high - width, (high - 1) / 2)
    high[observed > 1] = np.inf  # even a mean of 1 may be rejected
    tilt = np.minimum(law.steepest, np.sqrt(-2 * log_p) / sd)
    settled = np.zeros(observed.shape, dtype=np.bool_)
    if near is not None:
        theta, tilt, settled = np.minimum(near[0], high), near[1], ~settled
    tilts = tilt.copy()
    for _ in range(STEPS):
        checkpoint()
        at = law.cumulant(theta, tilt)
        log_tails = log_tail(law, theta, tilt, observed, at)
        rejected = log_tails <= goal
        low = np.where(rejected, np.maximum(low, theta), low)
        high = np.where(settled & ~rejected, np.minimum(high, theta), high)
        done = rejected & (log_tails >= goal - CLOSE)
        done |= (low >= 1) | (high - low <= CLOSE / 4 * np.maximum(observed - low, CLOSE * width))
        wanted = theta + (aim - log_tails) / (at.by_theta * sharper)
        inside = (wanted > low) & (wanted < high)
        between = np.where(wanted <= low, low + (high - low) / 16, (low + high) / 2)
        wanted = np.minimum(np.where(inside, wanted, between), 1.0)
        wanted = np.where(settled | rejected, wanted, theta)
        slope = at.by_tilt + at.cross * (wanted - theta)
        moved = tilt + (observed - slope) / np.maximum(at.curvature, flat)
        moved = np.minimum(np.clip(moved, tilt / 8, tilt * 8), law.steepest)
        settled = np.abs(moved - tilt) <= tilt / 4
        found[going], tilts[going] = low, tilt
        left = ~done
        if not left.any():
            break
        going, observed, low, high = going[left], observed[left], low[left], high[left]
        theta, tilt, settled, width = wanted[left], moved[left], settled[left], width[left]
    return found, tilts
