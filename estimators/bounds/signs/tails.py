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
    return chernoff


def _log_tilted_remainder(tilt: Floats, observed: Floats, cumulant: Cumulant) -> Floats:
    """Return an upper bound on ln R: Theorem 3 of docs/proofs/inversion.md."""
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
def berry_esseen_bound(law: Law, theta: Floats, observed: Floats, log_p: float) -> Floats:
    """Return the largest mean that is rejected if the law has the moments of a mean of `theta`.

    So `theta` is rejected if it is at most this mean. The result has the shape (k,); it is -inf if
    no mean is rejected. `law`: the law of the sum of reports; `theta`, `observed`, shape (k,):
    means, and observed sums; `log_p`: ln of the probability of a false rejection.
    """
    from scipy.special import ndtri

    moments = law.moments(theta)
    rounding = 1e-12 * np.asarray(law.worst_variance)[..., None]
    sd = np.sqrt(np.maximum(moments.least_variance, rounding))
    remaining_p = np.exp(log_p) - BERRY_ESSEEN * moments.third / sd**3
    quantile = ndtri(np.maximum(remaining_p, 0.0))  # -inf where nothing remains
    bound: Floats = observed + (quantile * np.sqrt(moments.largest_variance)).min(axis=1)
    return bound
