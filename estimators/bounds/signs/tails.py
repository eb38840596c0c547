"""Upper bounds, as logarithms, on the probability that a sum is as large as the observed one."""

from __future__ import annotations

import numpy as np

from estimators.bounds.normal import BERRY_ESSEEN
from estimators.bounds.signs.law import Cumulant, Law
from estimators.estimate import Floats


def log_tail(law: Law, theta: Floats, tilt: Floats, observed: Floats, cumulant: Cumulant) -> Floats:
    """Return upper bounds on ln P(S >= observed), shape (k,), for a law of mean `theta`.

    `law`: the law of the reports; `theta`, `tilt`, `observed`, shape (k,): the mean, a tilt and the
    observed sum of each row; `cumulant`: the cumulant of `law` at `theta` and `tilt`. Every tilt
    gives a valid bound.
    """
    chernoff = cumulant.value - tilt * observed
    if law.is_determined_by_mean:
        return chernoff + _log_tilted_remainder(tilt, observed, cumulant)
    bounds = [chernoff, _log_berry_esseen(law, theta, observed)]
    if law.rate is None:
        excess = np.maximum(observed - theta, 0)
        bounds.append(-(excess**2) / (2 * law.proxy))
    least_bound: Floats = np.minimum.reduce(bounds)
    return least_bound


def _log_tilted_remainder(tilt: Floats, observed: Floats, cumulant: Cumulant) -> Floats:
    """Return ln R: Theorem 3 of docs/proofs/inversion.md."""
    from scipy.special import log_ndtr

    is_sharper = cumulant.third < cumulant.curvature**1.5
    sd = np.sqrt(np.where(is_sharper, cumulant.curvature, 1.0))
    standardized_shift = (cumulant.by_tilt - observed) / sd
    standardized_tilt = tilt * sd
    exponent = standardized_tilt * (standardized_tilt / 2 - standardized_shift)
    log_normal = log_ndtr(standardized_shift - standardized_tilt) + exponent
    berry_esseen = 2 * BERRY_ESSEEN * cumulant.third / sd**3
    normal = np.exp(np.minimum(log_normal, 0))
    remainder: Floats = np.where(is_sharper, normal + berry_esseen, 1.0)
    return np.log(np.minimum(remainder, 1))


# Theorem 5 of docs/proofs/inversion.md
def _log_berry_esseen(law: Law, theta: Floats, observed: Floats) -> Floats:
    """Return upper bounds on ln P(S >= observed) if only ranges of the moments are known."""
    from scipy.special import ndtr

    excess = np.maximum(observed - theta, 0)[:, None]
    moments = law.moments(theta)
    normal_tail = ndtr(-excess / np.sqrt(moments.largest_variance))
    least_variance = np.maximum(moments.least_variance, 1e-12 * law.worst_variance)
    tail_bound = normal_tail + BERRY_ESSEEN * moments.third / least_variance**1.5
    log_bound: Floats = np.log(np.minimum(tail_bound.max(axis=1), 1))
    return log_bound
