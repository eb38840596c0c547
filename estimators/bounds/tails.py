"""Upper bounds on the probability that a sum of reports is as large as the observed one.

All hold for every number of reports. They use logarithms, so the probability may be tiny.
"""

from __future__ import annotations

import numpy as np

from estimators.bounds.laws.law import Cumulant, Law
from estimators.estimate import Floats

BERRY_ESSEEN = 0.56
"""Sums of independent, not identically distributed terms: Shevtsova (2010)."""


def log_tail(law: Law, theta: Floats, tilt: Floats, observed: Floats, cumulant: Cumulant) -> Floats:
    """Bound ln P(S >= observed) from above, for a law of mean `theta`.

    Parameters
    ----------
    law : Law
    theta, tilt, observed : ndarray of float64, shape (k,)
    cumulant : Cumulant
        The cumulant of `law` at `theta` and `tilt`. Every tilt gives a valid bound; a good tilt
        gives a sharp one.

    Returns
    -------
    ndarray of float64, shape (k,)
        The least of the bounds for this law.
    """
    chernoff = cumulant.value - tilt * observed
    if law.is_determined_by_mean:
        return chernoff + _log_tilted_remainder(tilt, observed, cumulant)
    bounds = [chernoff, _log_berry_esseen(law, theta, observed)]
    if law.rate is None:
        excess = np.maximum(observed - theta, 0)
        bounds.append(-(excess**2) / (2 * law.proxy))
    result: Floats = np.minimum.reduce(bounds)
    return result


def _log_tilted_remainder(tilt: Floats, observed: Floats, cumulant: Cumulant) -> Floats:
    """Sharpen Chernoff's bound by the Berry-Esseen theorem for the tilted law.

    P(S >= s) = e^(K - tilt s) E'[e^(-tilt U); U >= 0], U = S - s, under the law E' with density
    e^(tilt S - K). The expectation is the integral of tilt e^(-tilt u) P'(0 <= U <= u) over u > 0,
    and P' of an interval differs from the normal law N with the same mean m and variance v by at
    most twice the Berry-Esseen term. Hence it is at most E[e^(-tilt N); N >= 0] + 2 * 0.56 * sum
    rho / v^1.5, and at most 1 (Chernoff). The error is relative to the tail, not added to it: after
    Bahadur and Ranga Rao (1960).
    """
    from scipy.special import log_ndtr

    is_sharper = cumulant.third < cumulant.curvature**1.5
    sd = np.sqrt(np.where(is_sharper, cumulant.curvature, 1.0))
    standardized_shift = (cumulant.by_tilt - observed) / sd
    standardized_tilt = tilt * sd
    normal = np.exp(
        np.minimum(
            log_ndtr(standardized_shift - standardized_tilt)
            + standardized_tilt * (standardized_tilt / 2 - standardized_shift),
            0,
        )
    )
    remainder: Floats = np.where(
        is_sharper, normal + 2 * BERRY_ESSEEN * cumulant.third / sd**3, 1.0
    )
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
    normal_tail = ndtr(-excess / np.sqrt(moments.largest_variance))
    least_variance = np.maximum(moments.least_variance, 1e-12 * law.worst_variance)
    tail_bound = normal_tail + BERRY_ESSEEN * moments.third / least_variance**1.5
    result: Floats = np.log(np.minimum(tail_bound.max(axis=1), 1))
    return result
