"""Upper bounds on the probability that a sum of reports is as large as the observed one.

All hold for every number of reports. They use logarithms, so the probability may be tiny.
"""

from __future__ import annotations

import numpy as np

from estimators.bounds.laws.law import Cumulant, Law
from estimators.estimate import Floats

BERRY_ESSEEN = 0.56
"""Sums of independent, not identically distributed terms: Shevtsova (2010)."""


def log_tail(law: Law, theta: Floats, tilt: Floats, observed: Floats, at: Cumulant) -> Floats:
    """Bound ln P(S >= observed) from above, for a law of mean `theta`.

    Parameters
    ----------
    law : Law
    theta, tilt, observed : ndarray of float64, shape (k,)
    at : Cumulant
        The cumulant of `law` at `theta` and `tilt`. Every tilt gives a valid bound; a good tilt
        gives a sharp one.

    Returns
    -------
    ndarray of float64, shape (k,)
        The least of the bounds for this law.
    """
    chernoff = at.value - tilt * observed
    if law.exact:
        return chernoff + _log_tilted_remainder(tilt, observed, at)
    bounds = [chernoff, _log_berry_esseen(law, theta, observed)]
    if law.rate is None:
        excess = np.maximum(observed - theta, 0)
        bounds.append(-(excess**2) / (2 * law.proxy))
    result: Floats = np.minimum.reduce(bounds)
    return result


def _log_tilted_remainder(tilt: Floats, observed: Floats, at: Cumulant) -> Floats:
    """Sharpen Chernoff's bound by the Berry-Esseen theorem for the tilted law.

    P(S >= s) = e^(K - tilt s) E'[e^(-tilt U); U >= 0], U = S - s, under the law E' with density
    e^(tilt S - K). The expectation is the integral of tilt e^(-tilt u) P'(0 <= U <= u) over u > 0,
    and P' of an interval differs from the normal law N with the same mean m and variance v by at
    most twice the Berry-Esseen term. Hence it is at most E[e^(-tilt N); N >= 0] + 2 * 0.56 * sum
    rho / v^1.5, and at most 1 (Chernoff). The error is relative to the tail, not added to it: after
    Bahadur and Ranga Rao (1960).
    """
    from scipy.special import log_ndtr

    helps = at.third < at.curvature**1.5
    sd = np.sqrt(np.where(helps, at.curvature, 1.0))
    shift = (at.by_tilt - observed) / sd
    steps = tilt * sd
    normal = np.exp(np.minimum(log_ndtr(shift - steps) + steps * (steps / 2 - shift), 0))
    remainder: Floats = np.where(helps, normal + 2 * BERRY_ESSEEN * at.third / sd**3, 1.0)
    return np.log(np.minimum(remainder, 1))


def log_dense_remainder(tilt: Floats, variance: Floats, third: Floats) -> Floats:
    """Bound the remainder above for all laws within one-sided bounds on the tilted moments.

    P' of an interval of length u is at most u / sqrt(2 pi v), the normal law's largest density,
    plus twice the Berry-Esseen term; so the expectation is at most 1 / (tilt sqrt(2 pi v)) + 2 *
    0.56 * sum rho / v^1.5, which falls with v and grows with rho.

    Parameters
    ----------
    tilt : ndarray of float64, shape (k,)
    variance, third : ndarray of float64, shape (k,)
        The least variance v and the largest sum of third absolute moments of the tilted law.
    """
    sd = np.sqrt(np.maximum(variance, 1e-60))
    remainder: Floats = 1 / (np.sqrt(2 * np.pi) * tilt * sd) + 2 * BERRY_ESSEEN * third / sd**3
    return np.log(np.minimum(remainder, 1))


def _log_berry_esseen(law: Law, theta: Floats, observed: Floats) -> Floats:
    """Bound by the Berry-Esseen theorem if only a range of the variance is known.

    P(S >= s) <= Phi(-(s - theta) / sd) + 0.56 sum rho / sd^3: the first term grows with the
    variance, for s > theta, and the second falls. In each piece of the range, each term is taken at
    its worse end, and the worst piece is used.
    """
    from scipy.special import ndtr

    excess = np.maximum(observed - theta, 0)[:, None]
    moments = law.moments(theta)
    normal = ndtr(-excess / np.sqrt(moments.largest_variance))
    least = np.maximum(moments.least_variance, 1e-12 * law.worst_variance)
    chance = normal + BERRY_ESSEEN * moments.third / least**1.5
    result: Floats = np.log(np.minimum(chance.max(axis=1), 1))
    return result
