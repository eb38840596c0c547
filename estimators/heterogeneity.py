"""Do the values go with the privacy level? Cochran's Q over the levels in use.

Weights other than ``uniform`` take the level to be independent of the value. Where it is not, they
estimate the mean of another population, and this test says so.
"""

from __future__ import annotations

import numpy as np

from estimators.bounds import Law
from estimators.estimate import Floats

LEAST_EXPECTED = 25.0
"""Of the rarer sign: below it, a level's mean is too far from normal to be compared."""


def heterogeneity(law: Law, means: Floats) -> float | None:
    """Return the p-value of the hypothesis that all levels have the same mean.

    Q = sum (theta_l - theta)^2 / Var_l, theta the mean weighted by 1 / Var_l, against chi-square
    with (levels - 1) degrees of freedom. Source: Cochran, "The combination of estimates from
    different experiments" (1954).

    Parameters
    ----------
    law : Law
        Its counts, contrasts and noise; levels with reports only.
    means : ndarray of float64, shape (levels, k)
        theta_l: the unbiased mean of each level, in [-1, 1] but for noise, for k categories.

    Returns
    -------
    float or None
        None where fewer than two levels have enough reports. Asymptotic in the reports per level:
        a warning light, not a bound.

    Notes
    -----
    Var_l is that of the hypothesis: of signs with the common mean theta, (1 - a^2 theta^2) / (n
    a^2), plus the noise. Values that are no signs vary less than signs do, so for Laplace reports
    the p-value can only be too large.

    A frequency metric has a Q for each category. The categories' Q depend on each other (a report
    has one category), so the least p-value is multiplied by their number (Bonferroni): whatever the
    dependence, the result is below p with probability at most p, and one category that goes with
    the level is found among many that do not.

    Levels in which fewer than 25 reports of the rarer sign are expected are left out of that
    category's Q; they come to count as reports arrive.

    Examples
    --------
    >>> law = Law(np.array([1e4, 1e4]), np.array([5e-5, 5e-5]), np.array([0.5, 1.0]))
    >>> round(heterogeneity(law, np.array([[0.10], [0.11]])), 3)
    0.654
    >>> heterogeneity(law, np.array([[0.10], [0.30]])) < 1e-12
    True
    """
    from scipy.special import chdtrc

    n, contrast = law.counts[:, None], law.contrast[:, None]

    def variance(theta: Floats) -> Floats:
        spread: Floats = law.variances(np.clip(theta, -1, 1)).T / contrast**2
        return np.maximum(spread, 1e-12) / n

    def pooled(precision: Floats) -> Floats:
        total = np.maximum(precision.sum(axis=0), 1e-300)
        result: Floats = (precision * means).sum(axis=0) / total
        return result

    theta = pooled(1 / variance(np.zeros(means.shape[1])))
    rarer = (1 - np.abs(law.means(np.clip(theta, -1, 1)))).T / 2
    if law.rate is not None:
        rarer = np.where(np.isinf(law.rate)[:, None], rarer, 1.0)
    kept = n * rarer >= LEAST_EXPECTED
    theta = pooled(kept / variance(theta))
    statistic = (kept * (means - theta) ** 2 / variance(theta)).sum(axis=0)
    freedom = kept.sum(axis=0) - 1
    tested = freedom >= 1
    if not tested.any():
        return None
    least = float(chdtrc(freedom[tested], statistic[tested]).min())
    return min(1.0, least * int(tested.sum()))
