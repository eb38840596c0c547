"""From a statistic to a distribution: values, band, quantiles, and whether the levels agree."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.heterogeneity import heterogeneity_of_bounded
from estimators.estimate import Counts, Floats
from estimators.mechanisms.dyadic_hadamard.bands import (
    Band,
    Scores,
    SingleNumberBounds,
    normal_band,
    quantile_edges,
    simultaneous_band,
)
from estimators.mechanisms.dyadic_hadamard.constants import LevelConstants
from estimators.mechanisms.dyadic_hadamard.haar import (
    Tree,
    clipped_masses,
    cumulated,
    haar_sums,
    masses,
    smoothed,
)
from estimators.mechanisms.dyadic_hadamard.scores import ScoreTables, haar_bounds, haar_moments
from estimators.question import Question

CENTRE_COUNT = 17
COMPARED_DEPTHS = 3
"""The Haar sums of lower depths, 7 of them, test whether the levels agree."""

Limits = Callable[[float], tuple[int, int]]
"""Maps q to two edges that enclose its quantile."""


@dataclasses.dataclass(frozen=True)
class TreeConstants:
    """The tree over the bins, and the constants of all levels of the metric."""

    bins: int
    levels: tuple[LevelConstants, ...]
    tables: list[ScoreTables]


@dataclasses.dataclass(frozen=True)
class BinDistribution:
    """A distribution over bins; arrays have one number for each of the bins + 1 edges.

    `estimate`: F, unbiased; `monotone`: the distribution function that is shown; `smooth`: another
    one: smoother, and biased; `quantiles`, shape (k, 4): rows of q, value, lower, upper, in bins.
    """

    estimate: Floats
    monotone: Floats
    smooth: Floats
    band: Band
    quantiles: Floats
    effective_reports: float
    heterogeneity: float | None


def read_distribution(
    tree: TreeConstants, table: Counts, weights: Floats, question: Question
) -> BinDistribution:
    """Return the distribution from a statistic's table.

    `table`, shape (levels, columns); `weights`, shape (levels,): the weight of one report;
    `question`: its `asked` has the quantiles; none by default.
    """
    counts, bins = table[:, 0], tree.bins
    quantile_levels = np.zeros(0) if question.asked is None else question.asked
    inner = slice(bins + 1)
    if not counts.any():
        edges = np.arange(bins + 1)
        band = Band((edges == bins).astype(np.float64), (edges > 0).astype(np.float64))
        unknown = np.full(bins + 1, np.nan)
        ends = np.array([[q, np.nan, 0, bins] for q in quantile_levels.tolist()]).reshape(-1, 4)
        return BinDistribution(unknown, unknown, unknown, band, ends, 0.0, None)
    sums, pooled = _pooled(tree, table, weights)
    clipped = clipped_masses(pooled, bins)
    scores = _scores(tree, counts, weights, pooled, question)
    band, limits = _band(scores, clipped, question, quantile_levels.size == 1)
    inner_band = Band(band.lower[inner], band.upper[inner], band.crossed)
    shown = _clipped_into(cumulated(clipped[-1])[inner], inner_band)
    noise = _noise(tree.levels, counts, weights, clipped)
    shrunk = clipped_masses(smoothed(pooled, noise), bins)
    smooth = _clipped_into(cumulated(shrunk[-1])[inner], inner_band)
    quantiles = np.array(
        [_quantile(q, shown, limits(q)) for q in quantile_levels.tolist()], dtype=np.float64
    ).reshape(-1, 4)
    effective = 1 / (4 * float(scores.worst[: bins - 1].max()))
    p_value = heterogeneity(tree.levels, counts, sums)
    return BinDistribution(
        scores.estimate[inner], shown, smooth, inner_band, quantiles, effective, p_value
    )


def scores_of(
    tree: TreeConstants, table: Counts, weights: Floats, question: Question
) -> Scores | None:
    """Return the scores of a statistic's reports; None without reports.

    `table`, shape (levels, columns); `weights`, shape (levels,): the weight of one report.
    """
    counts = table[:, 0]
    if not counts.any():
        return None
    return _scores(tree, counts, weights, _pooled(tree, table, weights)[1], question)


def worst_scores(
    tree: TreeConstants, table: Counts, weights: Floats, edges: NDArray[np.intp]
) -> tuple[Floats, Floats, Floats]:
    """Return F at some edges, and bounds of its scores that no data can exceed, each of shape (k,).

    Returns `value`: F, unbiased; `largest`: the largest weighted and centred score, in absolute
    value; `variance`: of the sum, at most; it depends on the numbers of reports alone.

    `table`, shape (levels, columns); `weights`, shape (levels,): the weight of one report; with the
    numbers of reports they add up to 1; `edges`, shape (k,): of inner edges among all edges.
    """
    used = np.where(weights[:, None] > 0, table, 0)
    value = cumulated(masses(_pooled(tree, used, weights)[1])[-1])[edges]
    inner = edges - 1
    largest, variance = np.zeros(edges.size), np.zeros(edges.size)
    for scores, count, weight in zip(tree.tables, used[:, 0], weights.tolist(), strict=True):
        if weight > 0:
            largest = np.maximum(largest, weight * scores.centred[inner])
            variance += count * weight**2 * _worst_variance(scores, inner)
    return value, largest, variance


def _worst_variance(scores: ScoreTables, inner: NDArray[np.intp]) -> Floats:
    """Return the variance of one score in the worst shell, around the best of fixed centres."""
    second, mean = scores.second[inner][None], scores.mean[inner][None]
    centres = np.linspace(mean.min(), mean.max(), CENTRE_COUNT)[:, None, None]
    moments = second - 2 * centres * mean + centres**2
    variance: Floats = moments.max(axis=2).min(axis=0)
    return variance


def _scores(
    tree: TreeConstants, counts: Counts, weights: Floats, pooled: Tree, question: Question
) -> Scores:
    estimate = cumulated(masses(pooled)[-1])
    estimate[tree.bins :] = 1.0
    return Scores.of(tree.tables, counts, weights, estimate, tree.bins, question)


def _pooled(tree: TreeConstants, table: Counts, weights: Floats) -> tuple[dict[int, Tree], Tree]:
    """Return the Haar sums of each level with reports, times its reports, and their mean."""
    counts = table[:, 0]
    used = np.flatnonzero(counts).tolist()
    sums = {row: haar_sums(tree.levels[row], table[row]) for row in used}
    total = float(counts @ weights)
    pooled: Tree = [
        sum((weights[row] * sums[row][i] for row in used), np.zeros(1 << i)) / total
        for i in range(tree.levels[0].height)
    ]
    return sums, pooled


def _band(scores: Scores, clipped: Tree, question: Question, is_one: bool) -> tuple[Band, Limits]:
    """Return the band of a question, and the limits of its quantiles.

    A single edge is tested for one quantile at all times. So a quantile that may move from edge to
    edge has the limits that hold at all edges at once.
    """
    if question.bound == "normal":
        band = normal_band(scores, clipped, question.log_p(scores.bins - 1))
        return band, functools.partial(quantile_edges, band)
    at_once, alone = question.simultaneous, is_one or not question.simultaneous
    if question.may_move or not alone:
        common = simultaneous_band(scores, question, question.beta)[0]
        band = (
            common if at_once else SingleNumberBounds(scores, question, question.beta).pointwise()
        )
        return band, functools.partial(quantile_edges, common)
    number = SingleNumberBounds(scores, question, question.beta)
    if at_once:
        return simultaneous_band(scores, question, question.beta)[0], number.quantile
    return number.pointwise(), number.quantile


def _clipped_into(values: Floats, band: Band) -> Floats:
    """Return an ascending distribution function, clipped into a band."""
    clipped: Floats = np.clip(np.clip(values, 0, 1), band.lower, band.upper)
    return np.maximum.accumulate(clipped)


def _quantile(q: float, shown: Floats, limits: tuple[int, int]) -> list[float]:
    """Return q, the quantile of what is shown, and its limits, in bins."""
    lower, upper = limits
    edge = int(np.searchsorted(shown, q, side="left"))
    edge = min(max(edge, 1), shown.size - 1)
    step = shown[edge] - shown[edge - 1]
    value = edge - 1 + (q - shown[edge - 1]) / step if step > 0 else float(edge)
    return [q, float(np.clip(value, lower, upper)), float(lower), float(upper)]


def _noise(
    levels: tuple[LevelConstants, ...], counts: Counts, weights: Floats, clipped: Tree
) -> Tree:
    """Return the plug-in variances of the pooled Haar sums."""
    total, halves = float(counts @ weights), _halves(clipped)
    variances = [np.zeros_like(half) for half in halves]
    for row in np.flatnonzero(counts).tolist():
        moments = haar_moments(levels[row], clipped, len(halves))
        part = counts[row] * (weights[row] / total) ** 2
        for variance, moment, half in zip(variances, moments, halves, strict=True):
            variance += part * np.maximum(moment - half**2, 0.0)
    return variances


def _halves(clipped: Tree) -> Tree:
    """Return the Haar sums of given masses."""
    return [node[0::2] - node[1::2] for node in clipped[1:]]


def heterogeneity(
    levels: tuple[LevelConstants, ...], counts: Counts, sums: dict[int, Tree]
) -> float | None:
    """Return the p-value of the hypothesis that all `levels` have the same distribution.

    `counts`, shape (levels,); `sums`: the Haar sums of each level with reports, times its number of
    reports.
    """
    splits, used = min(COMPARED_DEPTHS, levels[0].height), [*sums]
    bounds = [haar_bounds(levels[row], splits) for row in used]
    squares, largest = (
        np.array([np.concatenate(tree) for tree in kind]) for kind in zip(*bounds, strict=True)
    )
    means = np.array([np.concatenate(sums[row][:splits]) / counts[row] for row in used])
    return heterogeneity_of_bounded(counts[used].astype(np.float64), squares, largest, means)
