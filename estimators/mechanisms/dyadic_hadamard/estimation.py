"""From Haar sums in a tree to a distribution: values, band, quantiles, whether levels agree."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from estimators.bounds.heterogeneity import heterogeneity_of_bounded
from estimators.estimate import Counts, Floats, Indices
from estimators.mechanisms.dyadic_hadamard import haar
from estimators.mechanisms.dyadic_hadamard.bands import (
    Band,
    Scores,
    SingleNumberBounds,
    normal_band,
    quantile_edges,
    simultaneous_band,
)
from estimators.mechanisms.dyadic_hadamard.constants import LevelConstants
from estimators.mechanisms.dyadic_hadamard.scores import ScoreTables, haar_bounds, haar_moments
from estimators.question import Question

CENTRE_COUNT = 17
SHARE_ROUNDING = 1e-12  # subtracted from q: rounding must not decide where a flat F reaches q
COMPARED_DEPTHS = 3
"""The test whether the levels agree uses the 7 Haar sums of the depths 0 to 2."""

QuantileLimits = Callable[[Floats], Indices]
"""A function that returns two edges around each q-quantile, shape (..., 2, k), for k numbers q."""


def read_distributions(
    tree: ScoreTables, tables: Counts, weights: Floats, question: Question
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the estimated distribution of each window, from the tables of all windows.

    These are the numbers of an estimate (F, unbiased, at the edges of the bins; its band; effective
    reports; the p-value of equal levels) and, by name, the fields of a
    :class:`estimators.DistributionEstimate` that follow from reports, in bins. Without reports,
    estimates are NaN, and the band is the widest possible. `tree`: the constants of the mechanism;
    `tables`, shape (windows, levels, columns): all with reports of the same levels; `weights`,
    shape (levels,): the weight of one report; `question`: its `asked` lists the quantiles, if any.
    """
    counts, bins = tables[..., 0], tree.bins
    quantile_levels = np.zeros(0) if question.asked is None else question.asked
    inner = slice(bins + 1)
    used = np.flatnonzero(counts[0])
    if not used.size:
        edges = np.arange(bins + 1)
        trivial = (edges == bins).astype(np.float64), (edges > 0).astype(np.float64)
        unknown = np.full(bins + 1, np.nan)
        rows = np.array([[q, np.nan, 0, bins] for q in quantile_levels.tolist()]).reshape(-1, 4)
        curves = {"monotone": unknown, "smooth": unknown, "quantiles": rows}
        return [((unknown, trivial, 0.0, None), curves)] * len(tables)
    sums, pooled = _pooled(tree, tables, weights)
    clipped = haar.clipped_masses(pooled, bins)
    scores = _scores(tree, counts, weights, pooled, question)
    band, limits = _band(scores, clipped, question, quantile_levels.size == 1)
    ends = band.lower[:, inner], band.upper[:, inner]
    levels = tuple(tree.levels[row] for row in used.tolist())
    noise = _noise(levels, counts[:, used], weights[used], clipped)
    shrunk = haar.clipped_masses(haar.smoothed(pooled, noise), bins)
    shown, smooth = (
        _clipped_into(haar.cumulated(masses[-1])[:, inner], *ends) for masses in (clipped, shrunk)
    )
    quantile_limits = limits(quantile_levels)
    effective = (1 / (4 * scores.worst_variance[:, : bins - 1].max(axis=1))).tolist()
    distributions: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    for row in range(len(tables)):
        value, bounds = scores.estimate[row, inner], (ends[0][row], ends[1][row])
        p_value = heterogeneity(levels, counts[row, used], sums[row])
        quantiles = _quantiles(quantile_levels, shown[row], quantile_limits[row])
        curves = {"monotone": shown[row], "smooth": smooth[row], "quantiles": quantiles}
        numbers = value, bounds, effective[row], p_value
        distributions.append((numbers, curves | {"crossed": bool(band.crossed[row])}))
    return distributions


def scores_of(
    tree: ScoreTables, table: Counts, weights: Floats, question: Question
) -> Scores | None:
    """Return the scores of a statistic's reports; None if there are no reports.

    `tree`: the constants of the mechanism; `table`, shape (levels, columns); `weights`, shape
    (levels,): the weight of one report; `question`: says for which times and users bounds must
    hold.
    """
    counts = table[:, 0]
    if not counts.any():
        return None
    return _scores(tree, counts, weights, _pooled(tree, table, weights)[1], question)


def worst_scores(
    tree: ScoreTables, table: Counts, weights: Floats, edges: Indices
) -> tuple[Floats, Floats, Floats]:
    """Return F at some edges, and bounds on its scores for any data, each of shape (k,).

    Returns `value`: F, unbiased; `largest`: the largest weighted and centred score, in absolute
    value; `variance`: an upper bound on the variance of the sum, which depends on the numbers of
    reports alone. `tree`: the constants of the mechanism; `table`, shape (levels, columns);
    `weights`, shape (levels,): the weight of one report; the weights of all reports add up to 1;
    `edges`, shape (k,): the indices of inner edges among all edges.
    """
    used = np.where(weights[:, None] > 0, table, 0)
    value = haar.cumulated(haar.masses(_pooled(tree, used, weights)[1])[-1])[edges]
    inner = edges - 1
    largest, variance = np.zeros(edges.size), np.zeros(edges.size)
    for level in np.flatnonzero(weights).tolist():
        largest = np.maximum(largest, weights[level] * tree.centred[level, inner])
        worst = _worst_variance(*tree.of_level(level, inner))
        variance += used[level, 0] * weights[level] ** 2 * worst
    return value, largest, variance


def _worst_variance(second: Floats, mean: Floats) -> Floats:
    """Return a bound on the variance of one score, for any data, shape (edges,).

    The bound is the mean square around a fixed centre in the worst shell, for the best such centre.
    `second`, `mean`, shape (edges, h + 1): from :meth:`ScoreTables.of_level`.
    """
    centres = np.linspace(mean.min(), mean.max(), CENTRE_COUNT)[:, None, None]
    moments = second - 2 * centres * mean + centres**2
    return np.asarray(moments.max(axis=2).min(axis=0))


def _scores(
    tree: ScoreTables, counts: Counts, weights: Floats, pooled: haar.Tree, question: Question
) -> Scores:
    estimate = haar.cumulated(haar.masses(pooled)[-1])
    estimate[..., tree.bins :] = 1.0
    return Scores.of(tree, counts, weights, estimate, question)


def _pooled(tree: ScoreTables, table: Counts, weights: Floats) -> tuple[Floats, haar.Tree]:
    """Return each level's Haar sums times its number of reports, and the levels' weighted mean.

    `table`, shape (..., levels, columns): the statistics of windows with reports of the same
    levels.
    """
    counts = table[..., 0]
    used = np.flatnonzero(counts.reshape(-1, len(tree.levels))[0])
    levels = tuple(tree.levels[row] for row in used.tolist())
    sums = haar.haar_sums(levels, table[..., used, :])
    return sums, haar.split_tree(weights[used] @ sums / (counts @ weights)[..., None])


def _band(
    scores: Scores, clipped: haar.Tree, question: Question, is_one: bool
) -> tuple[Band, QuantileLimits]:
    """Return the band of a question, and the limits of its quantiles.

    `is_one`: whether only one number is asked for. If bounds must hold at all times, a single
    quantile has the limits that hold at all edges, because it may move from edge to edge.
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
        return simultaneous_band(scores, question, question.beta)[0], number.quantiles
    return number.pointwise(), number.quantiles


def _clipped_into(values: Floats, lower: Floats, upper: Floats) -> Floats:
    """Return the distribution function `values`, made ascending and clipped into a band."""
    clipped: Floats = np.clip(np.clip(values, 0, 1), lower, upper)
    return np.maximum.accumulate(clipped, axis=-1)


def _quantiles(q: Floats, shown: Floats, limits: Indices) -> Floats:
    """Return rows of q, the displayed quantile and its limits, in bins; shape (k, 4)."""
    edge = np.clip(np.searchsorted(shown, q - SHARE_ROUNDING), 1, shown.size - 1)
    step, lower, upper = shown[edge] - shown[edge - 1], *limits.astype(np.float64)
    share = np.where(step > 0, (q - shown[edge - 1]) / np.where(step > 0, step, 1.0), 1.0)
    share = np.minimum(share, 1.0)
    return np.stack([q, np.clip(edge - 1 + share, lower, upper), lower, upper], axis=1)


def _noise(
    levels: tuple[LevelConstants, ...], counts: Counts, weights: Floats, clipped: haar.Tree
) -> haar.Tree:
    """Return the variances of the pooled Haar sums, estimated from the `clipped` masses."""
    halves = np.concatenate([node[..., 0::2] - node[..., 1::2] for node in clipped[1:]], axis=-1)
    part = counts * (weights / (counts @ weights)[..., None]) ** 2
    excess = np.maximum(haar_moments(levels, clipped[:-1]) - halves[..., None, :] ** 2, 0.0)
    return haar.split_tree(np.matmul(part[..., None, :], excess)[..., 0, :])


def heterogeneity(levels: tuple[LevelConstants, ...], counts: Counts, sums: Floats) -> float | None:
    """Return the p-value of the hypothesis that all levels have the same distribution.

    None if fewer than two levels have enough reports. `levels`: the constants of the levels;
    `counts`, shape (levels,): above zero; `sums`, shape (levels, B - 1): the Haar sums of each
    level, times its number of reports.
    """
    splits = min(COMPARED_DEPTHS, levels[0].height)
    bounds = [haar_bounds(level, splits) for level in levels]
    squares, largest = (
        np.array([np.concatenate(tree) for tree in kind]) for kind in zip(*bounds, strict=True)
    )
    means = sums[:, : (1 << splits) - 1] / counts[:, None]
    return heterogeneity_of_bounded(counts.astype(np.float64), squares, largest, means)
