"""Tests whether values depend on the privacy level, by Cochran's Q over the levels in use.

Weights other than ``uniform`` assume that the level is independent of the value. If it is not, they
estimate the mean of another population, and this test detects that.

Q is a sum of squared scores, one for each level. Scores of counts are conservative
(`estimators/bounds/scores.py`). With such scores, at the true common mean theta Q exceeds x no more
often than chi-square with as many degrees of freedom as levels. The test compares the least Q over
all theta with chi-square. The least Q is smaller still, so the true theta need not be known, and
the p-value is at most p with probability at most p, for any number of reports. This is proved for
counts, and for numbers of bounded size with another law in place of chi-square: Q is convex, so the
search returns a lower bound on the least Q. The scores of other reports can be slightly too large;
measurements found no share of p-values below p that was above p, because the least Q has a spare
degree of freedom (docs/bounds.md). That degree of freedom is the price: with many reports, the
least Q has the law of chi-square with one less (Cochran, "The combination of estimates from
different experiments", 1954).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bounds import Law
from estimators.bounds.laws.difference_law import DifferenceLaw
from estimators.bounds.laws.repeated import RepeatedLaw
from estimators.bounds.laws.window_law import WindowLaw
from estimators.bounds.point_collisions import Table, most_collisions
from estimators.bounds.scores import binomial_scores, difference_scores, mean_scores
from estimators.estimate import Floats
from estimators.interruption import checkpoint

LEAST_REPORTS = 25
"""Of a level: with fewer there is little to compare. It looks at counts, never at values."""
LEAST_VECTORS = 100
"""Of a level of directions, whose means are taken for normal."""
CANDIDATES = 64
"""Categories whose least Q is searched for at once."""
SPENT = 1e-7
"""The part of a p-value that is for collisions beyond their bound."""
POINTS, ZOOMS = 9, 30
"""Of a search for the least Q: each grid has a quarter of the steps of the one before."""
CLOSE = 0.01
"""The search ends when the least Q is known to this, or to this share of it."""
Tail = Callable[[int, float], float]
"""From a number of levels and Q to a p-value."""
Scores = Callable[[Floats, NDArray[np.intp]], Floats]
"""From means of shape (points, c) and the c categories they are of, shape (levels, points, c)."""


def heterogeneity(law: Law, means: Floats) -> float | None:
    """Return the p-value of the hypothesis that all levels have the same mean.

    Parameters
    ----------
    law : Law
        With the counts, contrasts and noise of levels with reports only.
    means : ndarray of float64, shape (levels, k)
        theta_l: the unbiased mean of each level, in [-1, 1] plus noise, for k categories.

    Returns
    -------
    float or None
        None if fewer than two levels have 25 reports.

    Notes
    -----
    Levels of single signs are binomial counts, whose scores are proved for every count. Levels of
    noise (Laplace), of symbols or of repeated signs have scores from their cumulant. These can be
    too large for few reports; in measurements, no p-value was too small too often. Values between
    the signs vary less than signs, so p can only be too large.

    A frequency metric has a Q for each category. These depend on each other (a report has one
    category), so the least p-value is multiplied by their number (Bonferroni). Whatever the
    dependence, the result is below p with probability at most p (for counts), and the test finds
    one category that depends on the level among many that do not.

    Examples
    --------
    >>> law = Law(np.array([1e4, 1e4]), np.array([5e-5, 5e-5]), np.array([0.5, 1.0]))
    >>> round(heterogeneity(law, np.array([[0.10], [0.11]])), 3)
    0.916
    >>> heterogeneity(law, np.array([[0.10], [0.30]])) < 1e-12
    True
    """
    used = np.flatnonzero(law.counts >= LEAST_REPORTS)
    if not means.size or used.size < 2:  # an open vocabulary of which nothing is asked for
        return None
    means = means[used]
    n, contrast = law.counts[used, None], law.contrast[used, None]
    offset = law.offsets[used, None]
    ones = np.rint(n * (1 + offset + contrast * means) / 2)
    single = np.full(used.size, True)
    if isinstance(law, RepeatedLaw):
        single = law.repeats[used] == 1
    elif isinstance(law, WindowLaw) or law.rate is not None:
        single = np.full(used.size, False)

    def scores(theta: Floats, chosen: NDArray[np.intp]) -> Floats:
        found = np.empty((used.size, *theta.shape))
        if single.any():
            chance = (1 + contrast[:, None] * theta + offset[..., None]) / 2
            of_signs = (ones[single][:, None, chosen], n[single][:, None], chance[single])
            found[single] = binomial_scores(*of_signs)
        if not single.all():
            own = means[~single][:, None, chosen]
            found[~single] = mean_scores(law, used[~single], own, theta)
        return found

    precision = (law.counts * law.contrast**2 / law.variances(np.zeros(1))[0])[used]
    return _least(means, precision[:, None], scores, -1.0)


def heterogeneity_of_differences(law: DifferenceLaw, sums: Floats, sizes: Floats) -> float | None:
    """Return the p-value for reports that are +1, -1 or 0.

    The number A of reports that are not 0 may differ between categories and between levels. Their
    share is taken as A / n, or the least that f permits. For f = 0 the score is proved like that of
    a count (given A the signs are binomial, and A ln cosh t <= n ln(1 + (cosh t - 1) A / n));
    otherwise it is measured.

    Parameters
    ----------
    law : DifferenceLaw
    sums, sizes : ndarray of float64, shape (levels, k)
        The sums of D and of abs(D), for each of k categories.
    """
    used = np.flatnonzero(law.counts >= LEAST_REPORTS)
    if not sums.size or used.size < 2:
        return None
    n, contrast, least = (x[used, None] for x in (law.counts, law.contrast, law.least))
    sums, sizes = sums[used], sizes[used]

    own = np.where(least > 1 - 1e-12, 0.0, contrast)  # of one block, all reports are in it

    def scores(theta: Floats, chosen: NDArray[np.intp]) -> Floats:
        share = (sizes / n)[:, None, chosen]
        share = np.clip(np.maximum(share, least[:, None] + own[:, None] * np.abs(theta)), 0.0, 1.0)
        mean = contrast[:, None] * theta
        return difference_scores(sums[:, None, chosen], n[:, None], mean, share)

    precision = (n * contrast) ** 2 / np.maximum(sizes, n * least + 1e-12)
    return _least(sums / (n * contrast), precision, scores, -1.0 if law.signed else 0.0)


def heterogeneity_of_points(law: Law, means: Floats, tables: Sequence[Table]) -> float | None:
    """Return the p-value for reports of hashed points, whose collisions differ between levels.

    A level's mean is not f but f + (1 - f) c, with its own c: between 0 and B for all levels and
    strings at once, except with probability 1e-7 (:mod:`estimators.bounds.point_collisions`). The
    score of a level is the one nearest to zero over these c, so Q at the true f is at most the Q at
    the true c. The p-value is 1e-7 larger for the exception.

    Parameters
    ----------
    law : Law
        Of signs, with the counts of levels with reports only.
    means : ndarray of float64, shape (levels, k)
        The unbiased mean 2 (f + (1 - f) c) - 1 of each level, for each of k strings.
    tables : sequence of pairs of int
        The rows and the points of a row of these levels.

    Examples
    --------
    >>> law = Law(np.array([1e6, 1e6]), np.array([5e-7, 5e-7]), np.array([0.5, 1.0]))
    >>> for apart in (0.01, 0.1):
    ...     means = np.array([[-0.5], [-0.5 + apart]])
    ...     heterogeneity_of_points(law, means, [(1024, 364)] * 2) < 1e-6
    False
    True
    """
    used = np.flatnonzero(law.counts >= LEAST_REPORTS)
    if not means.size or used.size < 2:
        return None
    log_p = np.log(SPENT / (used.size * means.shape[1]))
    bounds = [most_collisions(*tables[level], float(log_p)) for level in used.tolist()]
    excess, means = np.array(bounds)[:, None], means[used]
    n, contrast = law.counts[used, None], law.contrast[used, None]
    offset = law.offsets[used, None]
    ones = np.rint(n * (1 + offset + contrast * means) / 2)

    def scores(theta: Floats, chosen: NDArray[np.intp]) -> Floats:
        def score(mean: Floats) -> Floats:
            chance = (1 + contrast[:, None] * mean + offset[..., None]) / 2
            return binomial_scores(ones[:, None, chosen], n[:, None], chance)

        alone, crowded = theta, theta + (1 - theta) * excess[..., None]
        return np.minimum(score(alone), 0.0) + np.maximum(score(crowded), 0.0)

    precision = (law.counts * law.contrast**2 / law.variances(np.zeros(1))[0])[used, None]
    without = (means - excess) / np.maximum(1 - excess, 1e-12)
    found = _least(means, precision, scores, -1.0, without)
    return min(1.0, found + SPENT)


def heterogeneity_of_vectors(counts: Floats, squares: Floats, means: Floats) -> float | None:
    """Return the p-value for directions: a Q for each coordinate, Bonferroni over them.

    A level's mean of B u has the variance (E (B u)^2 - theta^2) / n. Means are assumed normal;
    levels with fewer than 100 reports are left out.

    Parameters
    ----------
    counts : ndarray of float64, shape (levels,)
        n_l, each above zero.
    squares : ndarray of float64, shape (levels, d) or (levels, 1)
        E (B u)^2 of a coordinate, with what rounding to the grid adds; known or observed.
    means : ndarray of float64, shape (levels, d)
        Each level's unbiased mean, in the unit ball plus noise.

    Examples
    --------
    >>> counts, squares = np.array([1e4, 1e4]), np.array([[4.5], [1.2]])
    >>> heterogeneity_of_vectors(counts, squares, np.array([[0.1, 0.1], [0.3, 0.1]])) < 1e-12
    True
    """
    used = np.flatnonzero(counts >= LEAST_VECTORS)
    if used.size < 2:
        return None
    n, means = counts[used, None], means[used]
    square = np.broadcast_to(squares[used], means.shape)

    def scores(theta: Floats, chosen: NDArray[np.intp]) -> Floats:
        apart = means[:, None, chosen] - theta
        left: Floats = square[:, None, chosen] - theta**2
        return apart / np.sqrt(np.maximum(left, 1e-12) / n[:, None])

    return _least(means, n / np.maximum(square, 1e-12), scores, -1.0)


def heterogeneity_of_bounded(
    counts: Floats, squares: Floats, largest: Floats, means: Floats
) -> float | None:
    """Return the p-value for numbers of bounded size: a Q for each, Bonferroni over them.

    Parameters
    ----------
    counts : ndarray of float64, shape (levels,)
        n_l, each above zero.
    squares, largest : ndarray of float64, shape (levels, k)
        At least E d^2 and abs(d) of one report, whatever the values are.
    means : ndarray of float64, shape (levels, k)
        Each level's mean of d, whose expectation is in [-1, 1].

    Notes
    -----
    The squared score of a level is 2 n I. By Hoeffding's bound for variables of at most a variance
    and a size ("Probability inequalities for sums of bounded random variables", 1963), n I exceeds
    x on either side with probability at most exp(-x). So n I is stochastically at most ln 2 plus an
    exponential variable, and Q at most 2 L ln 2 plus chi-square with 2 L degrees of freedom: for
    any number of reports. I is convex in the mean: it is the supremum over t of t d - ln M, and M,
    the largest E exp(t d) of all laws with a mean and at most a second moment, is concave in the
    mean.

    Examples
    --------
    >>> counts, ones = np.array([1e4, 1e4]), np.ones((2, 1))
    >>> round(heterogeneity_of_bounded(counts, ones, ones, np.array([[0.1], [0.14]])), 3)
    0.257
    >>> heterogeneity_of_bounded(counts, ones, ones, np.array([[0.1], [0.3]])) < 1e-12
    True
    """
    used = np.flatnonzero(counts >= LEAST_REPORTS)
    if used.size < 2:
        return None
    n, means = counts[used, None], means[used]
    square, size = squares[used][:, None], largest[used][:, None]

    def scores(theta: Floats, chosen: NDArray[np.intp]) -> Floats:
        from scipy.special import rel_entr

        apart = means[:, None, chosen] - theta
        variance = np.maximum(square[..., chosen] - theta**2, 1e-12)
        most = np.maximum(size[..., chosen] - np.sign(apart) * theta, 1e-12)
        chance = variance / (variance + most**2)
        tilted = np.minimum(chance + most * np.abs(apart) / (variance + most**2), 1.0)
        entropy = rel_entr(tilted, chance) + rel_entr(1 - tilted, 1 - chance)
        found: Floats = np.sign(apart) * np.sqrt(2 * n[:, None] * np.maximum(entropy, 0.0))
        return found

    return _least(means, n / squares[used], scores, -1.0, tail=_tail_of_exponents)


def _tail_of_squares(levels: int, statistic: float) -> float:
    """Return the chance that the sum of squares of so many standard normal numbers is larger."""
    from scipy.special import chdtrc

    return float(chdtrc(levels, statistic))


def _tail_of_exponents(levels: int, statistic: float) -> float:
    """Return what bounds the chance that twice the sum of so many exponents n I is larger."""
    return _tail_of_squares(2 * levels, max(statistic - 2 * levels * float(np.log(2)), 0.0))


def _least(
    means: Floats,
    precision: Floats,
    scores: Scores,
    lowest: float,
    least_means: Floats | None = None,
    tail: Tail = _tail_of_squares,
) -> float:
    """Return the p-value of the category whose least Q over all common means is largest.

    A Q at any mean bounds the least Q from above. So only categories in which it exceeds the
    largest least Q so far are searched. That one is a lower bound, so the p-value is an upper one.

    Parameters
    ----------
    means : ndarray of float64, shape (levels, k)
    precision : ndarray of float64, shape (levels, 1) or (levels, k)
        Approximate precision of the levels' means, for a first guess of the common mean.
    scores : callable
    lowest : float
        The least possible mean; the largest is 1.
    least_means : ndarray of float64, shape (levels, k), optional
        The least common mean at which the score of a level can be zero; its mean by default.
    tail : callable
    """
    levels, k = means.shape
    low = means if least_means is None else least_means
    total = np.maximum(precision.sum(axis=0), 1e-300)
    pooled = np.clip((precision * means).sum(axis=0) / total, lowest, 1.0)
    above = _statistic(scores, pooled[None, :], np.arange(k))[0]
    order, largest = np.argsort(-above, kind="stable"), 0.0
    for begin in range(0, k, CANDIDATES):
        chosen = order[begin : begin + CANDIDATES]
        most = above[chosen[0]]
        if most <= largest or k * tail(levels, float(most)) >= 1:
            break
        ends = np.clip([low[:, chosen].min(axis=0), means[:, chosen].max(axis=0)], lowest, 1.0)
        largest = max(largest, _largest_bound(scores, ends[0], ends[1], chosen))
    return float(min(1.0, k * tail(levels, largest)))


def _largest_bound(scores: Scores, low: Floats, high: Floats, chosen: NDArray[np.intp]) -> float:
    """Return a lower bound on the largest least Q of these categories, close to it.

    The least Q is between the levels' means: outside, every score is larger. The square of the
    score of a count is convex in the mean, because relative entropy is. So Q is convex, and lies
    above its chords where they are extended. So between three neighbouring points of a grid, around
    the least one, Q is at least twice its middle value less the larger of the other two. Squares of
    other scores are convex, or nearly so. For sums of +1, -1 and 0 of a category that nobody holds
    the result is at most Q at the true mean, 0, in any case.
    """
    share = np.linspace(0, 1, POINTS)[:, None]
    bound = np.zeros(chosen.size)
    least = _statistic(scores, np.zeros((1, chosen.size)), chosen)[0]
    for _ in range(ZOOMS):
        checkpoint()
        theta = low + share * (high - low)
        found = _statistic(scores, theta, chosen)
        middle = np.clip(found.argmin(axis=0), 1, POINTS - 2)
        places = middle + np.array([[-1], [0], [1]])
        left, own, right = np.take_along_axis(found, places, axis=0)
        bound = np.maximum(bound, 2 * own - np.maximum(left, right))
        least = np.minimum(least, found.min(axis=0))
        if least.max() - bound.max() <= CLOSE * (1 + least.max()):
            break
        low, _, high = np.take_along_axis(theta, places, axis=0)
    return float(np.minimum(bound, least).max())


def _statistic(scores: Scores, theta: Floats, chosen: Any) -> Floats:
    """Return Q, the sum of squared scores, shape of `theta`."""
    result: Floats = (scores(theta, chosen) ** 2).sum(axis=0)
    return result
