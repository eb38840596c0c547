"""Confidence bands of a cumulative distribution, valid for every number of reports.

A band holds at all edges at once: theorem 3 of docs/proofs/distributions.md. Arrays of a window may
have further axes in front, for many windows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from estimators.bounds.normal import normal_quantile
from estimators.estimate import Bools, Counts, Floats, Indices
from estimators.interruption import checkpoint
from estimators.mechanisms.dyadic_hadamard.scores import ScoreTables
from estimators.mechanisms.dyadic_hadamard.tails import anytime_deviation, fixed_deviation
from estimators.question import Question

BAND_ROUNDS = 4
COARSE_EDGES, COARSE_SHARE = 64, 0.8
"""The edges at multiples of B / 64 have 0.8 of beta together; all other edges share the rest."""
ONE_SHARE = 0.1
"""The share of beta for the band in which the bounds of a single number are searched for."""


@dataclasses.dataclass(frozen=True)
class Band:
    """Limits of a distribution function F at the B + 1 edges of B bins.

    `lower`, `upper`, shape (..., B + 1): ascending; `crossed`, shape (...): whether a lower limit
    was above an upper limit, so that no distribution is between them; the limits are then those
    without reports.
    """

    lower: Floats
    upper: Floats
    crossed: Bools


@functools.lru_cache(maxsize=16)
def _shells(height: int) -> Indices:
    """Return the node of each shell of each inner edge, shape (B - 1, h + 1).

    Shells are defined in :mod:`estimators.mechanisms.dyadic_hadamard.scores`. The node k at depth i
    has the number 2^i + k.
    """
    depth = np.minimum(np.arange(height + 1) + 1, height)
    nodes: Indices = (np.arange(1, 1 << height)[:, None] >> (height - depth)) + (1 << depth)
    nodes[:, :-1] ^= 1  # the sibling; the last shell is the bin itself
    return nodes


@dataclasses.dataclass(frozen=True)
class Scores:
    """The sum of the reports' weighted scores, at the inner edges of a tree.

    `height`: h, of a tree with B = 2^h bins; `bins`: how many of these bins can contain a value;
    `estimate`, shape (..., B + 1): F, unbiased; `second`, shape (..., B - 1, h + 1): Q, an upper
    bound on the variance if all users are in one shell; `free`: whether the levels may have
    different distributions; then Q has the worst shell only; `largest`, shape (B - 1,): b, a bound
    on the absolute value of one centred and weighted score; `total`, shape (..., 1): the sum of the
    weights.
    """

    height: int
    bins: int
    estimate: Floats
    second: Floats
    free: bool
    largest: Floats
    total: Floats

    @classmethod
    def of(
        cls, tree: ScoreTables, counts: Counts, weights: Floats, cdf: Floats, question: Question
    ) -> Scores:
        """Return the scores of a statistic's reports.

        `tree`: the moments of all levels of the metric; `counts`, shape (..., levels): the numbers
        of reports; in all windows the same levels have reports; `weights`, shape (levels,): the
        weight of one report; `cdf`, shape (..., B + 1): F; `question`: says at which times and for
        which users bounds must hold.
        """
        used = np.flatnonzero(counts.reshape(-1, len(weights))[0])
        free = used.size > 1 and not question.one_mean(used.size)
        # bounds for all times need a b that also covers levels without reports so far
        covered = slice(None) if question.bound == "anytime" else used
        largest = (weights[covered, None] * tree.centred[covered]).max(axis=0)
        size = cdf.shape[-1] - 1
        inner = np.clip(cdf, 0, 1)[..., 1:-1] - np.arange(1, size) / size
        centre, part = inner[..., None], counts * weights**2
        if free:
            second = np.zeros((*inner.shape, 1))
            for level in used.tolist():
                checkpoint()
                square, mean = tree.of_level(level)
                moment = square - 2 * centre * mean + centre**2
                second += part[..., level, None, None] * moment.max(axis=-1, keepdims=True)
        else:
            second, mean = tree.added(part)
            second += centre * (part.sum(axis=-1)[..., None, None] * centre - 2 * mean)
        total = (counts @ weights)[..., None]
        return cls(tree.height, tree.bins, cdf, second, free, largest, total)

    @property
    def worst_variance(self) -> Floats:
        """The variance of F at the inner edges if all users are in the worst shell."""
        return np.asarray(self.second.max(axis=-1) / self.total**2)

    def largest_variance(self, band: Band) -> Floats:
        """Return the largest possible variance of the sum, for distributions within a band."""
        if self.free:
            return self.second[..., 0]
        nodes, largest, steps = self._shells_by_variance
        widths = [1 << (self.height - depth) for depth in range(self.height + 1)]
        rises = (band.upper[..., width::width] - band.lower[..., :-width:width] for width in widths)
        limits = np.concatenate([np.zeros_like(band.lower[..., :1]), *rises], axis=-1)
        limit = np.take(np.maximum(limits, 0.0, out=limits), nodes)
        filled = np.minimum(np.cumsum(limit, axis=-1, out=limit), 1.0, out=limit)
        left = 1 - filled[..., -1]  # above 0 only if limits crossed
        return np.asarray(np.vecdot(steps, filled) + largest * left)

    @functools.cached_property
    def _shells_by_variance(self) -> tuple[Indices, Floats, Floats]:
        """The shells of each inner edge, by falling variance.

        These are the shells' nodes, as indices into the nodes of all windows; the largest variance;
        and by how much each variance exceeds the next one.
        """
        order = np.argsort(-self.second, axis=-1)
        nodes = np.take_along_axis(np.broadcast_to(_shells(self.height), order.shape), order, -1)
        windows = nodes.reshape(-1, self.second[..., 0].shape[-1], self.height + 1)
        windows += (2 << self.height) * np.arange(len(windows))[:, None, None]
        falling = np.take_along_axis(self.second, order, axis=-1)
        return nodes, falling[..., 0], -np.diff(falling, axis=-1, append=0.0)

    def variance_of(self, masses: list[Floats]) -> Floats:
        """Return the variance of F at the inner edges if the nodes have these masses.

        If levels may have different distributions, it is the worst variance.
        """
        if self.free:
            return self.worst_variance
        every = np.concatenate([masses[0], *masses], axis=-1)
        mass = every[..., _shells(self.height)]
        return np.asarray((self.second * mass).sum(axis=-1) / self.total**2)

    def trivial(self) -> Band:
        """Return the band without reports: F is 0 at the first edge and 1 at the last."""
        edges, shape = np.arange(self.estimate.shape[-1]), self.estimate.shape
        lower, upper = (
            np.broadcast_to(x.astype(np.float64), shape) for x in (edges >= self.bins, edges > 0)
        )
        return Band(lower, upper, np.zeros(shape[:-1], dtype=np.bool_))

    def around(self, width: Floats, outer: Band) -> Band:
        """Return the band F +- `width` at inner edges, made ascending and clipped to `outer`."""
        lower, upper = outer.lower.copy(), outer.upper.copy()
        inner = self.estimate[..., 1:-1]
        lower[..., 1:-1] = np.maximum(lower[..., 1:-1], inner - width)
        upper[..., 1:-1] = np.minimum(upper[..., 1:-1], inner + width)
        lower = np.maximum.accumulate(lower, axis=-1)
        upper = np.minimum.accumulate(upper[..., ::-1], axis=-1)[..., ::-1]
        crossed = outer.crossed | (lower > upper).any(axis=-1)
        return self.without_contradictions(Band(lower, upper, crossed))

    def without_contradictions(self, band: Band) -> Band:
        """Return a band with the trivial limits in windows where its limits cross."""
        if not band.crossed.any():
            return band
        trivial, crossed = self.trivial(), band.crossed[..., None]
        lower = np.where(crossed, trivial.lower, band.lower)
        return Band(lower, np.where(crossed, trivial.upper, band.upper), band.crossed)


def simultaneous_band(scores: Scores, question: Question, beta: float) -> tuple[Band, Floats]:
    """Return a band that holds at all edges at once, and bounds on the variances of the sums.

    The variance of the sum at an inner edge, shape (..., B - 1), is below its bound if the band
    holds; :meth:`Scores.largest_variance` of the band may give a smaller bound. `scores`: the
    scores of the reports; `question`: its `bound` says whether the band holds for a fixed number of
    reports or for all times; `beta`: the largest probability that the band is wrong.
    """
    tails = _tails(scores, beta)
    band, variance = scores.trivial(), np.full_like(scores.estimate[..., 1:-1], np.inf)
    for _ in range(1 if scores.free else BAND_ROUNDS):
        variance = np.minimum(variance, scores.largest_variance(band))
        band = scores.around(deviations(scores, question, variance, tails), band)
    return band, variance


def variance_bounds(scores: Scores, question: Question, beta: float) -> tuple[Band, Floats]:
    """Return the band of :func:`simultaneous_band`, and the smaller bounds on the variances.

    `scores`, `question`, `beta`: as for that function.
    """
    band, variance = simultaneous_band(scores, question, beta)
    return band, np.minimum(variance, scores.largest_variance(band))


def _tails(scores: Scores, beta: float) -> dict[float, Indices]:
    """Return the failure probabilities of one side, each with the inner edges that have it."""
    edges = np.arange(1, scores.bins)
    every = (edges * COARSE_EDGES) % (1 << scores.height) == 0
    if scores.bins <= COARSE_EDGES or every.all():
        return {beta / (2 * max(1, edges.size)): edges - 1}
    coarse, fine = edges[every] - 1, edges[~every] - 1
    return {
        COARSE_SHARE * beta / (2 * coarse.size): coarse,
        (1 - COARSE_SHARE) * beta / (2 * fine.size): fine,
    }


def deviations(
    scores: Scores, question: Question, variance: Floats, tails: dict[float, Indices]
) -> Floats:
    """Return the half-widths of the limits at the inner edges; infinite at edges without a tail.

    `scores`: the scores of the reports; `question`: its `bound` says whether limits hold for a
    fixed number of reports or for all times; `variance`, shape (..., B - 1): upper bounds on the
    variances of the sums; `tails`: the edges with each failure probability of one side.
    """
    deviation: Callable[[Floats, float], Floats] = (
        anytime_deviation if question.bound == "anytime" else fixed_deviation
    )
    half_widths = np.full(variance.shape, np.inf)
    for tail, edges in tails.items():
        b = scores.largest[edges]
        half_widths[..., edges] = b * deviation(variance[..., edges] / b**2, tail) / scores.total
    return half_widths


def normal_band(scores: Scores, masses: list[Floats], log_p: float) -> Band:
    """Return the asymptotic band: F +- a normal quantile times an estimated standard deviation.

    `scores`: the scores of the reports; `masses`: the estimated masses of the nodes at each depth;
    `log_p`: ln p, where p is the failure probability of each limit.
    """
    width = normal_quantile(log_p) * np.sqrt(scores.variance_of(masses))
    width[..., scores.bins - 1 :] = np.inf  # F is 1 there
    return scores.around(width, scores.trivial())


class SingleNumberBounds:
    """Bounds on F at one edge, or on one quantile, that was chosen before reports were seen.

    Theorem 5 of docs/proofs/distributions.md.
    """

    def __init__(self, scores: Scores, question: Question, beta: float) -> None:
        self.scores = scores
        self.outer, variance = variance_bounds(scores, question, ONE_SHARE * beta)
        tails = {(1 - ONE_SHARE) * beta / 2: np.arange(scores.bins - 1)}
        width = np.full(scores.estimate.shape, np.inf)
        width[..., 1:-1] = deviations(scores, question, variance, tails)
        self.low, self.high = scores.estimate - width, scores.estimate + width

    def pointwise(self) -> Band:
        """Return limits each of which holds at its edge alone."""
        lower = np.maximum(self.outer.lower, self.low)
        upper = np.minimum(self.outer.upper, self.high)
        # no ascending function is within limits that cross
        crossed = (np.maximum.accumulate(lower, axis=-1) > upper).any(axis=-1)
        return self.scores.without_contradictions(Band(lower, upper, self.outer.crossed | crossed))

    def quantiles(self, q: Floats) -> Indices:
        """Return two edges around each of k quantiles, shape (..., 2, k); each pair holds alone."""
        limits = quantile_edges(self.outer, q)
        edge, goal = np.arange(self.low.shape[-1]), q[:, None]
        before = np.concatenate([np.full_like(self.low[..., :1], np.inf), self.low[..., :-1]], -1)
        for window in zip(*np.nonzero(~self.outer.crossed), strict=True):
            first, last = limits[window][..., None]
            is_inside = (first < edge) & (edge <= last)
            reaching = is_inside & (self.high[window] >= goal)
            below = is_inside & (before[window] < goal)
            left = np.where(reaching.any(axis=1), reaching.argmax(axis=1), last[:, 0])
            right = edge[-1] - below[:, ::-1].argmax(axis=1)
            limits[window] = left - 1, np.where(below.any(axis=1), right, first[:, 0] + 1)
        return limits


def quantile_edges(band: Band, q: Floats) -> Indices:
    """Return two edges around each of k quantiles, which hold for all at once, shape (..., 2, k).

    For the quantile q, the first is the largest edge whose upper limit is below q, and the second
    is the smallest edge whose lower limit is at least q.
    """
    edges = np.empty((*band.lower.shape[:-1], 2, q.size), dtype=np.intp)
    for window in np.ndindex(band.lower.shape[:-1]):
        first = np.searchsorted(band.upper[window], q) - 1
        edges[window] = first, np.searchsorted(band.lower[window], q)
    return np.clip(edges, 0, band.lower.shape[-1] - 1)
