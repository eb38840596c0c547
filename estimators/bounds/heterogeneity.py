"""Tests whether values depend on the privacy level, by Cochran's Q over levels with reports.

Theorems 7 to 12 of docs/proofs/laws.md. The true mean is unknown, so the least Q over all common
means is tested. With many reports, the law of this least Q is chi-square with one degree of freedom
less.
"""

from __future__ import annotations

import functools
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
COLLISION_P_VALUE = 1e-7
"""The part of a p-value for the event that collisions exceed their bound."""
GRID_POINTS, MAX_ZOOMS = 33, 15
"""In a search for the least Q: the points of a grid; the most grids, each with steps a sixteenth as
wide as before."""
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
    return heterogeneity_of_windows(law, means[None])[0]


def heterogeneity_of_windows(law: Law, means: Floats) -> list[float | None]:
    """Return the result of :func:`heterogeneity`, or None, for each of many windows.

    `law`: the laws of the windows, in rows, in all of which the same levels have 25 reports or
    more, or the law of a single window; `means`, shape (windows, levels, k): the unbiased mean of
    each level.
    """
    windows, _, k = means.shape
    levels = np.flatnonzero(np.atleast_2d(law.counts)[0] >= MIN_REPORTS)
    if levels.size < 2 or not k:  # a query of an open vocabulary may name no strings
        return [None] * windows
    means, window = _columns(means[:, levels]), np.repeat(np.arange(windows), k)
    precision = np.broadcast_to(_precision(law), (windows, law.contrast.size))[window].T[levels]
    if not has_signs(law):

        def scores(theta: Floats, categories: Indices) -> Floats:
            chosen_laws = law.of_rows(window[categories])
            return mean_scores(chosen_laws, levels, means[:, None, categories], theta)

        return [*_least_p_values(means, precision, scores, -1.0, windows)]
    laws, theta = select_levels(law, levels).of_rows(window), _pooled(means, precision, -1.0)
    of_columns = np.ascontiguousarray(means.T)

    def deviances(rows: Any) -> SignDeviances:
        return SignDeviances(laws.of_rows(rows), of_columns[rows])

    def least(categories: Indices) -> Floats:
        return _least_statistics(deviances(categories), theta[categories])

    at_pooled = [deviances(part).at(theta[part])[0] for part in blocks(theta.size, levels.size)]
    return [*_p_values(np.concatenate(at_pooled).reshape(windows, k), levels.size, least)]


def _columns(numbers: Floats) -> Floats:
    """Return numbers of the shape (windows, levels, k) in the shape (levels, windows k)."""
    return np.moveaxis(numbers, 1, 0).reshape(numbers.shape[1], -1)


# Theorem 11 of docs/proofs/laws.md
def _p_values(
    at_pooled: Floats, levels: int, least: Callable[[Indices], Floats], tail: Tail = chi_square_tail
) -> list[float]:
    """Return for each window k times the p-value of the category whose least Q is largest.

    It is at most 1; the factor k, the number of categories, is Bonferroni's correction.
    `at_pooled`, shape (windows, k): Q at the pooled means; `levels`: the number of levels; `least`:
    a function of categories, counted on over the windows, to lower bounds on their least Q.
    """
    windows, k = at_pooled.shape
    statistic = at_pooled.ravel()
    first = k * np.arange(windows) + at_pooled.argmax(axis=1)
    ascending = np.sort(statistic[first]).tolist()
    certain = bisect_left(ascending, 1, key=lambda x: k * tail(levels, x) < 1)
    no_evidence = [0.0, *ascending][certain]  # a Q of this size has the p-value 1
    largest = np.zeros(windows)
    for categories in (first, None):  # then the categories whose least Q may be larger
        if categories is None:
            statistic[first] = 0.0  # these have been searched
            categories = np.flatnonzero(statistic > np.repeat(largest, k))
        categories = categories[statistic[categories] > no_evidence]
        for part in blocks(categories.size, levels):
            np.maximum.at(largest, categories[part] // k, least(categories[part]))
    return [float(min(1.0, k * tail(levels, x))) for x in largest.tolist()]


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


def heterogeneity_of_differences(
    law: DifferenceLaw, sums: Floats, sizes: Floats
) -> list[float | None]:
    """Return the p-value of equal frequencies at all levels, for reports that are +1, -1 or 0.

    It has one for each window; None if fewer than two levels have 25 reports. The p-value is proved
    for f = 0, and tested by simulation otherwise. The share of reports that are not 0 is taken to
    be the observed share, or the least that f permits if that is larger. `law`: as in
    :func:`heterogeneity_of_windows`; `sums`, `sizes`, shape (windows, levels, k): the sums of D and
    of abs(D), where D is a report.
    """
    windows, _, k = sums.shape
    counts = np.atleast_2d(law.counts)
    levels = np.flatnonzero(counts[0] >= MIN_REPORTS)
    if levels.size < 2 or not k:
        return [None] * windows
    n, sums, sizes = (_columns(x[:, levels]) for x in (counts[..., None].repeat(k, 2), sums, sizes))
    contrast, least_share = law.contrast[levels, None], law.least_share[levels, None]
    # if there is only one block, all reports are in it
    share_slope = np.where(least_share > 1 - 1e-12, 0.0, contrast)

    def scores(theta: Floats, categories: Indices) -> Floats:
        permitted = least_share[:, None] + share_slope[:, None] * np.abs(theta)
        trials, mean = n[:, None, categories], contrast[:, None] * theta
        share = np.clip(np.maximum(sizes[:, None, categories] / trials, permitted), 0.0, 1.0)
        return difference_scores(sums[:, None, categories], trials, mean, share)

    precision = (n * contrast) ** 2 / np.maximum(sizes, n * least_share + 1e-12)
    lowest = -1.0 if law.signed else 0.0
    return [*_least_p_values(sums / (n * contrast), precision, scores, lowest, windows)]


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

    def scores(theta: Floats, categories: Indices) -> Floats:
        def score(mean: Floats) -> Floats:
            chance = (1 + contrast[:, None] * mean + offset[..., None]) / 2
            return binomial_scores(ones[:, None, categories], n[:, None], chance)

        without_collisions, with_collisions = theta, theta + (1 - theta) * excess[..., None]
        return np.minimum(score(without_collisions), 0.0) + np.maximum(score(with_collisions), 0.0)

    least_means = (means - excess) / np.maximum(1 - excess, 1e-12)
    precision = _precision(law)[levels, None]
    p_value = _least_p_values(means, precision, scores, -1.0, least_means=least_means)[0]
    return min(1.0, p_value + COLLISION_P_VALUE)


def heterogeneity_of_vectors(counts: Floats, squares: Floats, means: Floats) -> list[float | None]:
    """Return the p-value of equal mean vectors at all levels, with Bonferroni's correction.

    It has one for each window; None if fewer than two levels have 100 reports. Each coordinate of
    the directions u has a Q. A level's mean of n reports B u has the variance (E (B u)^2 - theta^2)
    / n and is taken to be normal; levels with fewer than 100 reports are left out. `counts`, shape
    (windows, levels): reports of each level; `squares`, shape (windows or 1, levels, d or 1): E (B
    u)^2 of each coordinate, including rounding to the grid; exact or observed; `means`, shape
    (windows, levels, d): each level's unbiased mean, in the unit ball plus noise.

    >>> counts, squares = np.array([[1e4, 1e4]]), np.array([[[4.5], [1.2]]])
    >>> heterogeneity_of_vectors(counts, squares, np.array([[[0.1, 0.1], [0.3, 0.1]]]))[0] < 1e-12
    True
    """

    def scores(theta: Floats, categories: Indices, terms: tuple[Floats, ...]) -> Floats:
        mean, square, n = (x[:, None, categories] for x in terms)
        root: Floats = np.sqrt(np.maximum(square - theta**2, 1e-12) / n)
        return (mean - theta) / root

    mean_squares = np.broadcast_to(squares, means.shape)
    patterns, group = np.unique(counts >= MIN_VECTORS, axis=0, return_inverse=True)
    p_values: list[float | None] = [None] * len(counts)
    for number, pattern in enumerate(patterns):
        levels, windows = np.flatnonzero(pattern), np.flatnonzero(group == number)
        if levels.size < 2:
            continue
        chosen_windows = np.ix_(windows, levels)
        mean, square = _columns(means[chosen_windows]), _columns(mean_squares[chosen_windows])
        n = counts[chosen_windows].T.repeat(means.shape[2], axis=1)
        precision = n / np.maximum(square, 1e-12)
        of_windows = functools.partial(scores, terms=(mean, square, n))
        together = _least_p_values(mean, precision, of_windows, -1.0, windows.size)
        for window, p_value in zip(windows.tolist(), together, strict=True):
            p_values[window] = p_value
    return p_values


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

    def scores(theta: Floats, categories: Indices) -> Floats:
        from scipy.special import rel_entr

        deviation = means[:, None, categories] - theta
        variance = np.maximum(square[..., categories] - theta**2, 1e-12)
        max_deviation = np.maximum(max_size[..., categories] - np.sign(deviation) * theta, 1e-12)
        chance = variance / (variance + max_deviation**2)
        shift = max_deviation * np.abs(deviation) / (variance + max_deviation**2)
        tilted = np.minimum(chance + shift, 1.0)
        entropy = rel_entr(tilted, chance) + rel_entr(1 - tilted, 1 - chance)
        roots: Floats = np.sqrt(2 * n[:, None] * np.maximum(entropy, 0.0))
        return np.sign(deviation) * roots

    precision = n / squares[levels]
    return _least_p_values(means, precision, scores, -1.0, tail=_tail_of_exponents)[0]


def _precision(law: Law) -> Floats:
    """Return the approximate precision of each level's mean."""
    return np.asarray(law.counts * law.contrast**2 / law.variances(np.zeros(1))[0])


def _tail_of_exponents(levels: int, statistic: float) -> float:
    """Return a bound on the probability that `statistic` is exceeded if `levels` levels agree.

    The statistic is twice the sum of the levels' exponents n I (Theorem 9 of docs/proofs/laws.md).
    """
    return chi_square_tail(2 * levels, max(statistic - 2 * levels * float(np.log(2)), 0.0))


def _least_p_values(
    means: Floats,
    precision: Floats,
    scores: Scores,
    lowest: float,
    windows: int = 1,
    least_means: Floats | None = None,
    tail: Tail = chi_square_tail,
) -> list[float]:
    """Return the p-value of each window, of scores of the categories of all windows.

    `means`, shape (levels, windows k): the mean of each level; `precision`, of this shape or with
    one column: the weights of the levels in a first guess of the common mean, which is in [lowest,
    1]; `least_means`, shape (levels, windows k): the least common mean at which a level's score can
    be zero; by default the level's mean.
    """
    precision = np.broadcast_to(precision, means.shape)
    pooled, columns = _pooled(means, precision, lowest), means.shape[1]
    at_pooled = [
        _statistic(scores, pooled[None, part], np.arange(columns)[part])[0]
        for part in blocks(columns, len(means))
    ]

    def least(categories: Indices) -> Floats:
        statistics, is_close = np.zeros(categories.size), np.zeros(categories.size, dtype=np.bool_)
        if least_means is None:
            statistics, is_close = _least_statistics_near(
                scores, means[:, categories], precision[:, categories], lowest, categories
            )
        far = np.flatnonzero(~is_close)
        lowest_means = means if least_means is None else least_means
        for part in blocks(far.size, GRID_POINTS * len(means)):
            rows = categories[far[part]]
            extremes = [lowest_means[:, rows].min(axis=0), means[:, rows].max(axis=0)]
            low, high = np.clip(extremes, lowest, 1.0)
            statistics[far[part]] = _search_least_statistics(scores, low, high, rows)
        return statistics

    return _p_values(np.concatenate(at_pooled).reshape(windows, -1), len(means), least, tail)


def _pooled(means: Floats, precision: Floats, lowest: float) -> Floats:
    """Return a guess of the common mean, shape (k,)."""
    total = np.maximum(precision.sum(axis=0), 1e-300)
    return np.asarray(np.clip((precision * means).sum(axis=0) / total, lowest, 1.0))


# Theorem 11 of docs/proofs/laws.md
def _least_statistics_near(
    scores: Scores, means: Floats, precision: Floats, lowest: float, categories: Indices
) -> tuple[Floats, Bools]:
    """Return a lower bound on the least Q of each category, and whether it is close to this Q.

    Q is evaluated at means near the pooled one. `categories`: their indices; the other parameters
    are those of :func:`_least_p_values`, for these categories.
    """
    column = np.arange(categories.size)
    sd = 1 / np.sqrt(np.maximum(precision.sum(axis=0), 1e-300))
    theta = _pooled(means, precision, lowest) + NEAR_STEPS * sd
    is_inside = (theta[0] >= lowest) & (theta[-1] <= 1)
    theta = np.concatenate([np.clip(theta, lowest, 1.0), np.zeros((1, column.size))])
    statistic = _statistic(scores, theta, categories)
    middle = np.clip(statistic[:-1].argmin(axis=0), 1, len(NEAR_STEPS) - 2)
    left, centre, right = statistic[middle + np.array([[-1], [0], [1]]), column]
    highest = np.maximum(left, right)
    is_close = is_inside & (centre <= np.minimum(left, right))
    is_close &= highest - centre <= Q_TOLERANCE * (1 + centre)
    lower_bounds = np.minimum(np.maximum(2 * centre - highest, 0.0), statistic[-1])
    return lower_bounds, is_close


# Theorem 11 of docs/proofs/laws.md
def _search_least_statistics(
    scores: Scores, low: Floats, high: Floats, categories: Indices
) -> Floats:
    """Return lower bounds on the least Q of the `categories`, which are close to it.

    `low`, `high`, shape (categories,): the ends of intervals that contain the best common means.
    """
    column, grid = np.arange(categories.size), np.linspace(0, 1, GRID_POINTS)[:, None]
    bound, least_statistic = np.zeros(categories.size), np.full(categories.size, np.inf)
    lower_bounds: Floats = np.zeros(categories.size)
    is_close = np.zeros(categories.size, dtype=np.bool_)
    for turn in range(MAX_ZOOMS):
        checkpoint()
        theta = low + grid * (high - low)
        if turn == 0:  # the first grid also has zero
            theta = np.concatenate([theta, np.zeros((1, categories.size))])
        statistic = _statistic(scores, theta, categories)
        middle = np.clip(statistic[:GRID_POINTS].argmin(axis=0), 1, GRID_POINTS - 2)
        left, centre, right = statistic[middle + np.array([[-1], [0], [1]]), column]
        bound = np.maximum(bound, 2 * centre - np.maximum(left, right))
        least_statistic = np.minimum(least_statistic, statistic.min(axis=0))
        lower_bounds = np.where(is_close, lower_bounds, np.minimum(bound, least_statistic))
        is_close |= least_statistic - bound <= Q_TOLERANCE * (1 + least_statistic)
        if is_close.all():
            break
        low, high = theta[middle - 1, column], theta[middle + 1, column]
    return lower_bounds


def _statistic(scores: Scores, theta: Floats, categories: Any) -> Floats:
    """Return Q, the sum of squared scores, shape of `theta`."""
    return np.asarray((scores(theta, categories) ** 2).sum(axis=0))
