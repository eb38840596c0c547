r"""Bounds that hold at all times at once, for running totals: a mixture over tilts.

A total is looked at again and again, so that its bounds have to hold for every number of reports
together: P(at some time the mean is outside) <= beta. (A fixed-n bound fails sooner or later.)

Reports i = 1, 2, ... come in any order; the level l(i) of a report may depend on all that came
before, but not on its own value or noise. T_t is the sum of c_l(i) Y_i, with *fixed* coefficients
c_l = w_l / a_l: every policy gives one report of a level a weight w_l that depends on the metric's
definition alone. The counts enter only as the factor that makes shares sum to one: S = T / N, N =
sum n_l w_l. N cancels below, because the tilts are fixed on the scale of T.

**Martingale.** For a fixed lambda > 0 let f_l(m) = ln E exp(lambda c_l Y) for a user of level l
with mean m, or its upper bound in :meth:`Law.cumulant`. Given the past, a factor exp(lambda c_l Y_i
- f_l(m_i)) has mean at most 1, so M_t(lambda) = exp(lambda T_t - sum f_l(i)(m_i)) is a nonnegative
supermartingale that starts at 1, and so is every mixture over lambda with fixed weights. By Ville's
inequality the mixture reaches 1/p at any time with probability at most p. (With weights per report
that follow the evolving mix, c_l would be another one at each t, earlier terms of T_t would
change afterwards, and there would be no supermartingale.)

**One mean.** If all m_i are theta, sum f_l(i) = K_t(theta, lambda) depends on the counts alone. f
grows with m, so the mixture falls with theta, and the thetas at which it has reached 1/p are
those below a limit: it exceeds the mean at any time with probability at most p.

**Means of their own** (weights ``uniform``; the users' own values). m_i may be anything that does
not depend on report i's noise; theta_t is their mean weighted by w. Whatever they are, sum
f_l(i)(m_i) <= K_t(theta_t, lambda) with the bound for free means, path by path: f is concave in m.
If a limit L lies above theta_t, users can be moved up until their weighted mean is L, which only
adds to sum f; so sum f <= K_t(L, lambda) for all lambda at once, and the mixture of
supermartingales has reached 1/p.

**The estimate is inside.** K(theta, lambda) >= lambda N theta (Jensen), so at theta = S the mixture
is at most 1: an estimate within the domain is never outside its interval.

**The mixture** is discrete, in steps of 2, with weights that fall like a Cauchy density in
ln(lambda): no number of reports is tuned for at the cost of all others, as by a normal mixture, and
the width does not grow with every decade, as with a uniform prior over theta. Leaving terms out of
a sum of positive terms gives a smaller mixture and so a wider interval: only the terms near the
best tilt are summed, and they may be chosen by looking at anything. For signs of one level, tilting
is a change of theta, and the mixture is one of likelihood ratios.

Sources: Howard, Ramdas, McAuliffe and Sekhon (2021); Waudby-Smith, Wu and Ramdas (2023); Ville
(1939).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from estimators.bounds.inversion import CLOSE, ROUNDING, SAFETY
from estimators.bounds.law import Law
from estimators.estimate import Floats

CENTRE = 2.0**-6
"""The tilt with the largest weight: the best one for some 40,000 reports of variance 1."""
RATIO = 2.0  # between neighbours: with finer steps, no width gains more than 2%
REACH = 20  # steps either way: from below one report to beyond 10^12
SPREAD = 2.0  # of the weights, in units of ln(lambda)
TERMS, BELOW = 4, 2  # that are summed, and how many of them are below the best: measured as RATIO
STEPS = 30
SPARSE = 8  # of so many limits one is searched from far, the others from between these
BLOCK = 2**15  # cells at a time, which a cache holds: twice as fast with 1,024 categories

_OFFSETS = np.arange(-REACH, REACH + 1) * np.log(RATIO)
TILTS = CENTRE * np.exp(_OFFSETS)
"""lambda, on the scale of T."""
LOG_WEIGHTS = -np.log1p((_OFFSETS / SPREAD) ** 2)
LOG_WEIGHTS -= np.log(np.exp(LOG_WEIGHTS).sum())


def lower_limit(law: Law, observed: Floats, log_p: float, total: float) -> Floats:
    """Return a theta that the mixture rejects as too small, or -1: now, or at any time before.

    Parameters
    ----------
    law : Law
        Its coefficients are c_l / N.
    observed : ndarray of float64, shape (k,)
        The sums S, one a category, ascending; the law is the same for all.
    log_p : float
        ln p, the failure probability over all times.
    total : float
        N, from :func:`estimators.weights.total_weight`.

    Returns
    -------
    ndarray of float64, shape (k,)
        At least -1.
    """
    rows = max(1, BLOCK // (TERMS * law.counts.size))
    first = None
    if observed.size > 4 * SPARSE:
        some = np.append(observed[::SPARSE], observed[-1])
        first = np.interp(observed, some, lower_limit(law, some, log_p, total))
    found = [np.empty(0)]
    for start in range(0, observed.size, rows):
        part = slice(start, start + rows)
        guess = None if first is None else first[part]
        found.append(_lower_limit(law, observed[part], log_p, total, guess))
    return np.concatenate(found)


def _lower_limit(
    law: Law, observed: Floats, log_p: float, total: float, guess: Floats | None
) -> Floats:
    goal = SAFETY - log_p
    tilts, log_weights, width = _terms(law, observed, goal, total)
    found = np.full_like(observed, -1.0)
    going = np.arange(observed.size)
    low, high = found.copy(), np.clip(observed, -1.0, 1.0)
    theta = np.maximum(high - width, (high - 1) / 2)
    if guess is not None:
        theta = np.minimum(guess, high)
    high[observed > 1] = np.inf  # even a mean of 1 may be rejected
    for _ in range(STEPS):
        value, slope = _log_mixture(law, theta, tilts, log_weights, observed)
        rejected = value >= goal
        low = np.where(rejected, np.maximum(low, theta), low)
        high = np.where(rejected, high, np.minimum(high, theta))
        found[going] = low
        left = ~(rejected & (value <= goal + CLOSE)) & (low < 1)
        left &= high - low > CLOSE / 4 * width
        wanted = theta + (value - goal - CLOSE / 2) / slope
        middle = (low + np.minimum(high, 1.0)) / 2
        wanted = np.where((wanted > low) & (wanted < high), np.minimum(wanted, 1.0), middle)
        if not left.any():
            break
        going, low, high, theta = going[left], low[left], high[left], wanted[left]
        observed, width = observed[left], width[left]
        tilts, log_weights = tilts[left], log_weights[left]
    slack = ROUNDING if law.offset is None else ROUNDING + law.offset_rounding
    return np.maximum(found - slack, -1.0)


class _Terms(NamedTuple):
    """What is summed: tilts on the scale of S and their log weights, (k, TERMS); a first width."""

    tilts: Floats
    log_weights: Floats
    width: Floats


def _terms(law: Law, observed: Floats, goal: float, total: float) -> _Terms:
    """Choose the terms about the best tilt of a normal law with the variance near the limit."""
    reach = np.sqrt(2 * (goal + 2))
    centre = np.clip(observed, -1.0, 1.0)
    theta = np.maximum(centre - reach * np.sqrt(law.worst_variance), (centre - 1) / 2)
    sd = np.sqrt(law.largest_variance(theta))
    steps = np.log(np.minimum(reach / sd, law.steepest) / (total * CENTRE)) / np.log(RATIO)
    first = np.clip(np.floor(steps).astype(int) + REACH - BELOW, 0, TILTS.size - TERMS)
    chosen = first[:, None] + np.arange(TERMS)
    tilts = TILTS[chosen] * total
    too_steep = tilts > law.steepest
    return _Terms(
        np.minimum(tilts, law.steepest),
        np.where(too_steep, -np.inf, LOG_WEIGHTS[chosen]),
        reach * sd,
    )


def _log_mixture(
    law: Law, theta: Floats, tilts: Floats, log_weights: Floats, observed: Floats
) -> tuple[Floats, Floats]:
    """Return the logarithm of the mixture at `theta` and how fast it falls, each of shape (k,)."""
    flat = tilts.ravel()
    at = law.log_mgf(np.repeat(theta, tilts.shape[1]), flat)
    value, by_theta = (x.reshape(tilts.shape) for x in at)
    if law.free:
        plain = tilts * theta[:, None] + _hoeffding(law, flat).reshape(tilts.shape)
        by_theta = np.where(plain < value, tilts, by_theta)
        value = np.minimum(value, plain)
    terms = log_weights + tilts * observed[:, None] - value
    largest = terms.max(axis=1)
    # all terms are too steep only if there is hardly a report: nothing is rejected then
    shifted = np.exp(terms - np.where(np.isfinite(largest), largest, 0.0)[:, None])
    mass = np.maximum(shifted.sum(axis=1), 1e-300)
    slope = (shifted * by_theta).sum(axis=1) / mass
    return largest + np.log(mass), np.maximum(slope, 1e-300)


def _hoeffding(law: Law, tilts: Floats) -> Floats:
    """Bound ln E exp(tilt (S - theta)) by Hoeffding's lemma: every mean may be another one."""
    from estimators import discrete_laplace

    result: Floats = tilts**2 / 2 * law.proxy
    if law.rate is not None:
        step = law.unit * law.coefficient
        result = result + discrete_laplace.cumulant(law.rate, tilts[:, None] * step)[0] @ law.counts
    return result


def deviation(
    cumulant: Callable[[Floats], Floats], steepest: float, log_p: float, total: float
) -> float:
    """Bound noise whose law depends on no mean: |S - E S| at all times with probability 1 - 2 p.

    Parameters
    ----------
    cumulant : callable
        Bounds ln E exp(tilt (S - E S)), for an array of tilts up to `steepest`.
    steepest : float
    log_p : float
        ln p, the failure probability of one side over all times.
    total : float
        N, from :func:`estimators.weights.total_weight`.

    Returns
    -------
    float
        In the unit of S; infinite if hardly a report has arrived.
    """
    tilts = TILTS * total
    allowed = tilts <= steepest
    if not allowed.any():
        return np.inf
    tilts, log_weights = tilts[allowed], LOG_WEIGHTS[allowed]
    value, goal = cumulant(tilts), SAFETY - log_p
    # the best single term is enough; from there Newton's method falls to the root of a convex sum
    bound = float(np.min((goal - log_weights + value) / tilts))
    for _ in range(STEPS):
        terms = log_weights + tilts * bound - value
        chance = np.exp(terms - terms.max())
        excess = terms.max() + np.log(chance.sum()) - goal
        if excess <= CLOSE:
            break
        bound -= (excess - CLOSE / 2) * float(chance.sum() / (chance @ tilts))
    return bound * (1 + ROUNDING)
