"""Do the values go with the privacy level? Cochran's Q over the levels in use.

Weights other than ``uniform`` take the level to be independent of the value. Where it is not, they
estimate the mean of another population, and this test says so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from estimators.bounds import Law
from estimators.bounds.difference_law import DifferenceLaw
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
    if not means.size:  # an open vocabulary of which nothing is asked for
        return None
    n, unit = law.counts[:, None], (law.counts * law.contrast**2)[:, None]

    def spread(theta: Floats) -> tuple[Floats, Floats]:
        clipped = np.clip(theta, -1, 1)
        by_level = np.ascontiguousarray(law.variances(clipped).T)
        rarer = n / 2 * (1 - np.abs(np.ascontiguousarray(law.means(clipped).T)))
        if law.rate is not None:
            rarer = np.where(np.isinf(law.rate)[:, None], rarer, n)
        return np.maximum(by_level / unit, 1e-12 / n), rarer

    first = _pooled(1 / spread(np.zeros(1))[0], means)
    typical = np.median(first, keepdims=True)  # most of many categories are rare
    return _cochran(means, _pooled(1 / spread(typical)[0], means), spread)


def heterogeneity_of_differences(law: DifferenceLaw, sums: Floats, sizes: Floats) -> float | None:
    """Return the same p-value for reports that are +1, -1 or 0.

    The variance of a level's mean D / c is (A - (c f)^2) / (n c^2), with the observed share of
    reports that are not 0 for A: the share of a block may differ from one category to the next, and
    is not assumed to be the same at all levels' blocks. Levels whose sum of D has a variance below
    25 are left out, as those with fewer than 25 of the rarer sign are above.

    Parameters
    ----------
    law : DifferenceLaw
    sums, sizes : ndarray of float64, shape (levels, k)
        The sums of D and of abs(D), for each of k categories.
    """
    n, contrast, least = (x[:, None] for x in (law.counts, law.contrast, law.least))
    unit, most = n * contrast, np.maximum(sizes, n * least)

    def spread(theta: Floats) -> tuple[Floats, Floats]:
        scatter = np.maximum(most - n * contrast**2 * np.clip(theta, 0, 1) ** 2, 1e-12)
        return scatter / unit**2, scatter

    means = sums / unit
    precision = (sizes >= LEAST_EXPECTED) * unit**2 / np.maximum(most, 1e-12)
    return _cochran(means, _pooled(precision, means), spread)


def heterogeneity_of_vectors(
    counts: Floats, scale: Floats, rounding: float, means: Floats
) -> float | None:
    """Return the same p-value for directions: a Q for each coordinate, Bonferroni over them.

    A coordinate of a direction has E u^2 = 1/d whatever the data, because the data shift the law of
    u by an odd function; so a level's mean B u has variance (B^2 / d - theta^2) / n, and at most
    B^2 / 4 more for the rounding by one step. Levels in which n p (1 - p) is below 25 for a sign
    with the coordinate's mean are left out.

    Parameters
    ----------
    counts, scale : ndarray of float64, shape (levels,)
        n_l, each above zero, and B_l.
    rounding : float
        The step of the grid that directions are rounded to.
    means : ndarray of float64, shape (levels, d)
        Each level's unbiased mean, in the unit ball but for noise.

    Examples
    --------
    >>> counts, scale = np.array([1e4, 1e4]), np.array([3.0, 1.5])
    >>> heterogeneity_of_vectors(counts, scale, 0.0, np.array([[0.1, 0.1], [0.3, 0.1]])) < 1e-12
    True
    """
    n, square = counts[:, None], (scale**2)[:, None]
    largest = square / means.shape[1]

    def spread(theta: Floats) -> tuple[Floats, Floats]:
        left = largest - np.clip(theta, -1, 1) ** 2 + square * rounding**2 / 4
        scatter = n * (1 - np.minimum(1, theta**2 / largest)) / 4
        return np.maximum(left, 1e-12) / n, scatter

    return _cochran(means, _pooled(1 / spread(np.zeros(1))[0], means), spread)


def _pooled(precision: Floats, means: Floats) -> Floats:
    """Return the categories' means over levels, weighted by `precision`; of one column for all."""
    total = np.maximum(precision.sum(axis=0), 1e-300)
    if precision.shape[1] == 1:
        weighted = precision[:, 0] @ means
    else:
        weighted = np.einsum("lk,lk->k", precision, means)
    result: Floats = weighted / total
    return result


def _cochran(
    means: Floats, near: Floats, spread: Callable[[Floats], tuple[Floats, Floats]]
) -> float | None:
    """Return the p-value of Q, with the variances at the means `near`.

    `spread` gives the variance of each level's mean, and a number that has to be LEAST_EXPECTED or
    more for the level to count, for each level and category.
    """
    from scipy.special import chdtrc

    variance, enough = spread(near)
    kept = enough >= LEAST_EXPECTED
    precision = kept / variance
    apart = means - _pooled(precision, means)
    statistic = np.einsum("lk,lk,lk->k", precision, apart, apart)
    freedom = kept.sum(axis=0) - 1
    tested = freedom >= 1
    if not tested.any():
        return None
    largest = [(d, statistic[freedom == d].max()) for d in np.unique(freedom[tested]).tolist()]
    least = min(float(chdtrc(d, q)) for d, q in largest)
    return min(1.0, least * int(tested.sum()))
