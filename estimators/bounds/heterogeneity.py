"""Tests whether values depend on the privacy level, by Cochran's Q over levels with reports.

Theorems 7 to 12 of docs/proofs/laws.md. The true mean is unknown, so the least Q over all common
means is tested. With many reports, the law of this least Q is chi-square with one degree of freedom
less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from estimators.bounds.block_differences.law import DifferenceLaw
from estimators.bounds.normal import chi_square_tail
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.scores import (
    SignDeviances,
    binomial_scores,
    difference_scores,
    mean_scores,
    select_levels,
)
from estimators.bounds.signs.law import Law, blocks
from estimators.bounds.sketches import HashTable, max_collision_share
from estimators.estimate import Bools, Floats, Indices
from estimators.interruption import checkpoint

MIN_REPORTS = 25
"""Levels with fewer reports are not compared. The choice depends on counts, never on values."""
MIN_VECTORS = 100
"""Levels of directions with fewer reports are not compared, as their means may not be normal."""
CATEGORIES_PER_SEARCH = 64
"""The number of categories whose least Q is searched for together."""
COLLISION_P_VALUE = 1e-7
"""The part of a p-value for the event that collisions exceed their bound."""
GRID_POINTS, MAX_ZOOMS, MAX_SHARED_ZOOM = 9, 30, 16
"""In a search for the least Q: the points of a grid; the most grids, each with steps a quarter as
wide as before; and the most categories for which two grids are evaluated together."""
NEAR_STEPS = np.linspace(-1, 1, 21)[:, None]
"""Where the least Q mostly is, relative to the pooled mean, in its standard deviations."""
MAX_NEWTON_STEPS = 20
Q_TOLERANCE = 0.01
"""The search ends when the least Q is known to within this, or to within this share of it."""
Tail = Callable[[int, float], float]
"""A function from the number of levels and Q to a p-value."""
Scores = Callable[[Floats, Indices], Floats]
"""A function from means, shape (points, c), of c categories, and the indices of these categories to
scores, shape (levels, points, c)."""


def heterogeneity(law: Law, means: Floats) -> float | None:
    """Return the p-value of the hypothesis that all levels have the same mean.

    The p-value is proved for levels of single signs. For noise, symbols and repeated signs, scores
    of few reports can be too large, but in simulations p-values were valid. It is None if fewer
    than two levels have 25 reports. `law`: the law of the levels that have reports; `means`, shape
    (levels, k): theta_l: the unbiased mean of each level, in [-1, 1] plus noise, for k categories.

    >>> law = Law(np.array([1e4, 1e4]), np.array([5e-5, 5e-5]), np.array([0.5, 1.0]))
    >>> round(heterogeneity(law, np.array([[0.10], [0.11]])), 3)
    0.915
    >>> heterogeneity(law, np.array([[0.10], [0.30]])) < 1e-12
    True
    """
    levels = np.flatnonzero(law.counts >= MIN_REPORTS)
    if not means.size or levels.size < 2:  # a query of an open vocabulary may name no strings
        return None
    if has_signs(law):
        return heterogeneity_of_categories(law, means[None])[0]
    scores, means = _scores(law, levels, means), means[levels]
    return _least_p_value(means, _precision(law)[levels, None], scores, -1.0)


def heterogeneity_of_windows(law: Law, means: Floats) -> list[float | None]:
    """Return the result of :func:`heterogeneity`, or None, for each of many windows of one number.

    `law`: the laws of the windows, in rows; the same levels have 25 reports or more in all windows;
    `means`, shape (levels, windows): the unbiased mean of each level.
    """
    levels = np.flatnonzero(law.counts[0] >= MIN_REPORTS)
    if has_signs(law):
        return heterogeneity_of_categories(law, means.T[:, :, None])
    if levels.size < 2:
        return [None] * means.shape[1]
    scores, means = _scores(law, levels, means), means[levels]
    precision = _precision(law).T[levels]
    statistics, is_close = _least_statistics_near(scores, means, precision, -1.0)
    for window in np.flatnonzero(~is_close)[:, None]:  # one by one, as for a single window
        extremes = means[:, window].min(axis=0), means[:, window].max(axis=0)
        low, high = np.clip(extremes, -1.0, 1.0)
        statistics[window] = _search_least_statistics(scores, low, high, window)
    return [min(1.0, chi_square_tail(levels.size, x)) for x in statistics.tolist()]


def heterogeneity_of_categories(law: Law, means: Floats) -> list[float | None]:
    """Return the result of :func:`heterogeneity`, or None, for each of many windows.

    `law`: the laws of the windows, in rows, in all of which the same levels have 25 reports or
    more, or the law of a single window; `means`, shape (windows, levels, k): the unbiased mean of
    each level.
    """
    windows, _, k = means.shape
    counts = np.atleast_2d(law.counts)
    levels = np.flatnonzero(counts[0] >= MIN_REPORTS)
    if levels.size < 2 or not k:
        return [None] * windows
    statistics = _largest_statistics(law, levels, means[:, levels]).tolist()
    return [min(1.0, k * chi_square_tail(levels.size, x)) for x in statistics]


# Theorem 11 of docs/proofs/laws.md
def _largest_statistics(law: Law, levels: Indices, means: Floats) -> Floats:
    """Return the largest least Q over the k categories of each window, for signs.

    It is 0 if the p-value is 1. `law`: the laws in rows, or the law of a single window; `levels`:
    the compared levels; `means`, shape (windows, levels, k): the unbiased mean of each level.
    """
    windows, _, k = means.shape
    means = np.moveaxis(means, 1, 2).reshape(windows * k, levels.size)
    laws = select_levels(law, levels).of_rows(np.repeat(np.arange(windows), k))
    theta = _pooled(means.T, np.broadcast_to(_precision(laws), means.shape).T, -1.0)
    at_pooled = [
        SignDeviances(laws.of_rows(part), means[part]).at(theta[part])[0]
        for part in blocks(len(means), levels.size)
    ]
    statistic = np.concatenate(at_pooled)
    first = k * np.arange(windows) + statistic.reshape(windows, k).argmax(axis=1)
    ascending = np.sort(statistic[first]).tolist()
    certain = bisect_left(ascending, 1, key=lambda x: k * chi_square_tail(levels.size, x) < 1)
    no_evidence = [0.0, *ascending][certain]  # a Q of this size has the p-value 1
    largest = np.zeros(windows)
    for chosen in (first, None):  # then the categories whose least Q may be larger
        if chosen is None:
            statistic[first] = 0.0  # these have been searched
            chosen = np.flatnonzero(statistic > np.repeat(largest, k))
        chosen = chosen[statistic[chosen] > no_evidence]
        for part in blocks(chosen.size, levels.size):
            rows = chosen[part]
            deviances = SignDeviances(laws.of_rows(rows), means[rows])
            np.maximum.at(largest, rows // k, _least_statistics(deviances, theta[rows]))
    return largest


# Theorem 11 of docs/proofs/laws.md
def _least_statistics(deviances: SignDeviances, theta: Floats) -> Floats:
    """Return lower bounds on the least Q of categories, which are close to it, by Newton's method.

    `deviances`: the terms of Q; `theta`, shape (k,): a guess of the common mean.
    """
    means = deviances.means
    least, most = (np.clip(x, -1.0, 1.0) for x in (means.min(axis=1), means.max(axis=1)))
    low, high, theta = least, most, np.clip(theta, least, most)
    lower_bounds: Floats = np.zeros_like(theta)
    is_close = np.zeros(theta.shape, dtype=np.bool_)
    for _ in range(MAX_NEWTON_STEPS):
        checkpoint()
        statistic, slope, bend = deviances.at(theta)
        low, high = np.where(slope < 0, theta, low), np.where(slope > 0, theta, high)
        loss = np.abs(slope) * np.where(slope > 0, theta - least, most - theta)
        lower_bounds = np.where(is_close, lower_bounds, np.maximum(statistic - loss, 0.0))
        is_close |= loss <= Q_TOLERANCE
        if is_close.all():
            break
        next_theta = theta - slope / np.maximum(bend, 1e-300)
        is_inside = (next_theta > low) & (next_theta < high)
        theta = np.where(is_inside, next_theta, (low + high) / 2)
    return lower_bounds


def has_signs(law: Law) -> bool:
    """Return whether reports are signs, without noise."""
    return law.rate is None and not isinstance(law, PiecewiseLaw)


def _scores(law: Law, levels: Indices, means: Floats) -> Scores:
    """Return the scores, as a function, of reports that are not signs; `means`: (levels, k)."""

    def scores(theta: Floats, chosen: Indices) -> Floats:
        chosen_law = law.rows(chosen) if law.counts.ndim > 1 else law
        return mean_scores(chosen_law, levels, means[levels][:, None, chosen], theta)

    return scores


def heterogeneity_of_differences(law: DifferenceLaw, sums: Floats, sizes: Floats) -> float | None:
    """Return the p-value of equal frequencies at all levels, for reports that are +1, -1 or 0.

    None if fewer than two levels have 25 reports. The p-value is proved for f = 0, and tested by
    simulation otherwise. The share of reports that are not 0 is taken to be the observed share, or
    the least that f permits if that is larger. `law`: the law of the reports; `sums`, `sizes`,
    shape (levels, k): the sums of D and of abs(D), where D is a report.
    """
    levels = np.flatnonzero(law.counts >= MIN_REPORTS)
    if not sums.size or levels.size < 2:
        return None
    n, contrast = law.counts[levels, None], law.contrast[levels, None]
    sums, sizes, least_share = sums[levels], sizes[levels], law.least_share[levels, None]
    # if there is only one block, all reports are in it
    share_slope = np.where(least_share > 1 - 1e-12, 0.0, contrast)

    def scores(theta: Floats, chosen: Indices) -> Floats:
        permitted = least_share[:, None] + share_slope[:, None] * np.abs(theta)
        share = np.clip(np.maximum((sizes / n)[:, None, chosen], permitted), 0.0, 1.0)
        mean = contrast[:, None] * theta
        return difference_scores(sums[:, None, chosen], n[:, None], mean, share)

    precision = (n * contrast) ** 2 / np.maximum(sizes, n * least_share + 1e-12)
    return _least_p_value(sums / (n * contrast), precision, scores, -1.0 if law.signed else 0.0)


# Theorem 12 of docs/proofs/laws.md
def heterogeneity_of_points(law: Law, means: Floats, tables: Sequence[HashTable]) -> float | None:
    """Return the p-value of equal frequencies at all levels, for reports of hashed points.

    None if fewer than two levels have 25 reports. The p-value allows for collisions, which differ
    between levels. `law`: the law of signs of the levels that have reports; `means`, shape (levels,
    k): the unbiased mean 2 (f + (1 - f) c) - 1 of each level, for each of k strings; `tables`: for
    each of these levels, the number of rows and the number of points of a row.

    >>> law = Law(np.array([1e6, 1e6]), np.array([5e-7, 5e-7]), np.array([0.5, 1.0]))
    >>> for apart in (0.01, 0.1):
    ...     means = np.array([[-0.5], [-0.5 + apart]])
    ...     heterogeneity_of_points(law, means, [(1024, 364)] * 2) < 1e-6
    False
    True
    """
    levels = np.flatnonzero(law.counts >= MIN_REPORTS)
    if not means.size or levels.size < 2:
        return None
    log_p = np.log(COLLISION_P_VALUE / (levels.size * means.shape[1]))
    bounds = [max_collision_share(*tables[level], float(log_p)) for level in levels.tolist()]
    excess, means = np.array(bounds)[:, None], means[levels]
    n, contrast, offset = (x[levels, None] for x in (law.counts, law.contrast, law.offsets))
    ones = np.rint(n * (1 + offset + contrast * means) / 2)

    def scores(theta: Floats, chosen: Indices) -> Floats:
        def score(mean: Floats) -> Floats:
            chance = (1 + contrast[:, None] * mean + offset[..., None]) / 2
            return binomial_scores(ones[:, None, chosen], n[:, None], chance)

        without_collisions, with_collisions = theta, theta + (1 - theta) * excess[..., None]
        return np.minimum(score(without_collisions), 0.0) + np.maximum(score(with_collisions), 0.0)

    least_means = (means - excess) / np.maximum(1 - excess, 1e-12)
    p_value = _least_p_value(means, _precision(law)[levels, None], scores, -1.0, least_means)
    return min(1.0, p_value + COLLISION_P_VALUE)


def heterogeneity_of_vectors(counts: Floats, squares: Floats, means: Floats) -> float | None:
    """Return the p-value of equal mean vectors at all levels, with Bonferroni's correction.

    None if fewer than two levels have 100 reports. Each coordinate of the directions u has a Q. A
    level's mean of n reports B u has the variance (E (B u)^2 - theta^2) / n and is taken to be
    normal; levels with fewer than 100 reports are left out. `counts`, shape (levels,): reports of
    each level; `squares`, shape (levels, d) or (levels, 1): E (B u)^2 of each coordinate, including
    rounding to the grid; exact or observed; `means`, shape (levels, d): each level's unbiased mean,
    in the unit ball plus noise.

    >>> counts, squares = np.array([1e4, 1e4]), np.array([[4.5], [1.2]])
    >>> heterogeneity_of_vectors(counts, squares, np.array([[0.1, 0.1], [0.3, 0.1]])) < 1e-12
    True
    """
    levels = np.flatnonzero(counts >= MIN_VECTORS)
    if levels.size < 2:
        return None
    n, means = counts[levels, None], means[levels]
    mean_square = np.broadcast_to(squares[levels], means.shape)

    def scores(theta: Floats, chosen: Indices) -> Floats:
        deviation = means[:, None, chosen] - theta
        variance: Floats = mean_square[:, None, chosen] - theta**2
        return deviation / np.sqrt(np.maximum(variance, 1e-12) / n[:, None])

    return _least_p_value(means, n / np.maximum(mean_square, 1e-12), scores, -1.0)


def heterogeneity_of_bounded(
    counts: Floats, squares: Floats, largest: Floats, means: Floats
) -> float | None:
    """Return the p-value of equal means of bounded numbers: Theorem 9 of docs/proofs/laws.md.

    None if fewer than two levels have 25 reports. `counts`, shape (levels,): reports of each level;
    `squares`, `largest`, shape (levels, k): upper bounds on E d^2 and on abs(d) for the number d of
    a report, for any values; `means`, shape (levels, k): each level's mean of d, whose expectation
    is in [-1, 1].

    >>> counts, ones = np.array([1e4, 1e4]), np.ones((2, 1))
    >>> round(heterogeneity_of_bounded(counts, ones, ones, np.array([[0.1], [0.14]])), 3)
    0.255
    >>> heterogeneity_of_bounded(counts, ones, ones, np.array([[0.1], [0.3]])) < 1e-12
    True
    """
    levels = np.flatnonzero(counts >= MIN_REPORTS)
    if levels.size < 2:
        return None
    n, means = counts[levels, None], means[levels]
    square, max_size = squares[levels][:, None], largest[levels][:, None]

    def scores(theta: Floats, chosen: Indices) -> Floats:
        from scipy.special import rel_entr

        deviation = means[:, None, chosen] - theta
        variance = np.maximum(square[..., chosen] - theta**2, 1e-12)
        max_deviation = np.maximum(max_size[..., chosen] - np.sign(deviation) * theta, 1e-12)
        chance = variance / (variance + max_deviation**2)
        shift = max_deviation * np.abs(deviation) / (variance + max_deviation**2)
        tilted = np.minimum(chance + shift, 1.0)
        entropy = rel_entr(tilted, chance) + rel_entr(1 - tilted, 1 - chance)
        roots: Floats = np.sqrt(2 * n[:, None] * np.maximum(entropy, 0.0))
        return np.sign(deviation) * roots

    return _least_p_value(means, n / squares[levels], scores, -1.0, tail=_tail_of_exponents)


def _precision(law: Law) -> Floats:
    """Return the approximate precision of each level's mean."""
    precision: Floats = law.counts * law.contrast**2 / law.variances(np.zeros(1))[0]
    return precision


def _tail_of_exponents(levels: int, statistic: float) -> float:
    """Return a bound on the probability that `statistic` is exceeded if `levels` levels agree.

    The statistic is twice the sum of the levels' exponents n I (Theorem 9 of docs/proofs/laws.md).
    """
    return chi_square_tail(2 * levels, max(statistic - 2 * levels * float(np.log(2)), 0.0))


def _least_p_value(
    means: Floats,
    precision: Floats,
    scores: Scores,
    lowest: float,
    least_means: Floats | None = None,
    tail: Tail = chi_square_tail,
) -> float:
    """Return k times the p-value of the category whose least Q over all common means is largest.

    It is at most 1; the factor k, the number of categories, is Bonferroni's correction.
    `precision`, shape (levels, 1) or (levels, k): the weights of the levels in a first guess of the
    common mean, which is in [lowest, 1]; `least_means`, shape (levels, k): the least common mean at
    which a level's score can be zero; by default the level's mean.
    """
    levels, k = means.shape
    lowest_means = means if least_means is None else least_means
    if k == 1 and least_means is None:
        statistic, is_close = _least_statistics_near(scores, means, precision, lowest)
        if is_close[0]:
            return min(1.0, tail(levels, float(statistic[0])))
    pooled = _pooled(means, precision, lowest)
    pooled_statistic = _statistic(scores, pooled[None, :], np.arange(k))[0]
    order, least_statistic = np.argsort(-pooled_statistic, kind="stable"), 0.0
    for begin in range(0, k, CATEGORIES_PER_SEARCH):
        chosen = order[begin : begin + CATEGORIES_PER_SEARCH]
        largest_statistic = pooled_statistic[chosen[0]]
        if largest_statistic <= least_statistic or k * tail(levels, float(largest_statistic)) >= 1:
            break
        extremes = [lowest_means[:, chosen].min(axis=0), means[:, chosen].max(axis=0)]
        low, high = np.clip(extremes, lowest, 1.0)
        statistics = _search_least_statistics(scores, low, high, chosen)
        least_statistic = max(least_statistic, float(statistics.max()))
    return float(min(1.0, k * tail(levels, least_statistic)))


def _pooled(means: Floats, precision: Floats, lowest: float) -> Floats:
    """Return a guess of the common mean, shape (k,)."""
    total = np.maximum(precision.sum(axis=0), 1e-300)
    pooled: Floats = np.clip((precision * means).sum(axis=0) / total, lowest, 1.0)
    return pooled


# Theorem 11 of docs/proofs/laws.md
def _least_statistics_near(
    scores: Scores, means: Floats, precision: Floats, lowest: float
) -> tuple[Floats, Bools]:
    """Return a lower bound on the least Q of each category, and whether it is close to this Q.

    Q is evaluated at means near the pooled one. The parameters are those of :func:`_least_p_value`.
    """
    column = np.arange(means.shape[1])
    sd = 1 / np.sqrt(np.maximum(precision.sum(axis=0), 1e-300))
    theta = _pooled(means, precision, lowest) + NEAR_STEPS * sd
    is_inside = (theta[0] >= lowest) & (theta[-1] <= 1)
    theta = np.concatenate([np.clip(theta, lowest, 1.0), np.zeros((1, column.size))])
    statistic = _statistic(scores, theta, column)
    middle = np.clip(statistic[:-1].argmin(axis=0), 1, len(NEAR_STEPS) - 2)
    left, centre, right = statistic[middle + np.array([[-1], [0], [1]]), column]
    highest = np.maximum(left, right)
    is_close = is_inside & (centre <= np.minimum(left, right))
    is_close &= highest - centre <= Q_TOLERANCE * (1 + centre)
    lower_bounds = np.minimum(np.maximum(2 * centre - highest, 0.0), statistic[-1])
    return lower_bounds, is_close


# Theorem 11 of docs/proofs/laws.md
def _search_least_statistics(scores: Scores, low: Floats, high: Floats, chosen: Indices) -> Floats:
    """Return a lower bound on the least Q of each of the `chosen` categories.

    The largest bound is close to its Q. For few categories two steps of the search share one
    evaluation, on a finer grid.
    """
    zooms = 2 if chosen.size <= MAX_SHARED_ZOOM else 1
    stride, column = 4 ** (zooms - 1), np.arange(chosen.size)
    grid = np.linspace(0, 1, stride * (GRID_POINTS - 1) + 1)[:, None]
    bound, least_statistic = np.zeros(chosen.size), np.full(chosen.size, np.inf)
    result: Floats = np.zeros(chosen.size)
    for turn in range(MAX_ZOOMS // zooms):
        checkpoint()
        theta = low + grid * (high - low)
        if turn == 0:  # the first grid also has zero
            theta = np.concatenate([theta, np.zeros((1, chosen.size))])
        statistic = _statistic(scores, theta, chosen)
        at_zero = statistic[grid.size :].min(axis=0, initial=np.inf)
        least_statistic = np.minimum(least_statistic, at_zero)
        rows = np.repeat(stride * np.arange(GRID_POINTS)[:, None], chosen.size, axis=1)
        for _ in range(zooms):
            points = statistic[rows, column]
            middle = np.clip(points.argmin(axis=0), 1, GRID_POINTS - 2)
            left, centre, right = points[middle + np.array([[-1], [0], [1]]), column]
            bound = np.maximum(bound, 2 * centre - np.maximum(left, right))
            least_statistic = np.minimum(least_statistic, points.min(axis=0))
            result = np.minimum(bound, least_statistic)
            largest = float(least_statistic.max())
            if largest - float(bound.max()) <= Q_TOLERANCE * (1 + largest):
                return result
            first, last = rows[middle - 1, column], rows[middle + 1, column]
            rows = first + np.arange(GRID_POINTS)[:, None]
        low, high = theta[first, column], theta[last, column]
    return result


def _statistic(scores: Scores, theta: Floats, chosen: Any) -> Floats:
    """Return Q, the sum of squared scores, shape of `theta`."""
    statistic: Floats = (scores(theta, chosen) ** 2).sum(axis=0)
    return statistic
