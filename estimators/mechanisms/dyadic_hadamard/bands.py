"""Confidence bands of a cumulative distribution, valid for every number of reports.

A band holds at all edges at once: theorem 3 of docs/proofs/distributions.md.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from estimators.estimate import Counts, Floats, Indices, Integers
from estimators.interruption import checkpoint
from estimators.mechanisms.dyadic_hadamard.scores import ScoreTables
from estimators.mechanisms.dyadic_hadamard.tails import anytime_deviation, fixed_deviation
from estimators.question import Question

BAND_ROUNDS = 4
COARSE_EDGES, COARSE_SHARE = 64, 0.8
"""The edges at multiples of B / 64 have 0.8 of beta together; all other edges share the rest."""
ONE_SHARE = 0.1
"""The share of beta for the band within which the bounds of a single number are searched for."""


@dataclasses.dataclass(frozen=True)
class Band:
    """Limits of a distribution function F at the B + 1 edges of B bins.

    `lower`, `upper`, shape (B + 1,): ascending; `crossed`: whether a lower limit was above an upper
    one, so no distribution gives such reports; the limits are then those without any report.
    """

    lower: Floats
    upper: Floats
    crossed: bool = False


@functools.lru_cache(maxsize=16)
def _shells(height: int) -> tuple[Integers, Integers]:
    """Return the first and the last edge of each shell of each inner edge, shape (B - 1, h + 1).

    Shells are defined in :mod:`estimators.mechanisms.dyadic_hadamard.scores`.
    """
    edges = np.arange(1, 1 << height)[:, None]
    width = 1 << np.maximum(height - np.arange(height + 1) - 1, 0)
    node = edges // width
    node[:, :-1] ^= 1  # the sibling; the last shell is the bin itself
    first = node * width
    return first, first + width


@dataclasses.dataclass(frozen=True)
class Scores:
    """The sum of the reports' weighted scores, at the inner edges of a tree.

    `height`: h, of a tree with B = 2^h bins; `bins`: how many of these a value can be in;
    `estimate`, shape (B + 1,): F, unbiased; `second`, shape (B - 1, h + 1): Q, an upper bound on
    the variance if all users are in one shell; `free`: whether the levels may have different
    distributions; then Q has the worst shell only; `largest`, shape (B - 1,): b, a bound on the
    absolute value of one centred and weighted score; `total`: the sum of the weights.
    """

    height: int
    bins: int
    estimate: Floats
    second: Floats
    free: bool
    largest: Floats
    total: float

    @classmethod
    def of(
        cls,
        tables: list[ScoreTables],
        counts: Counts,
        weights: Floats,
        estimate: Floats,
        bins: int,
        question: Question,
    ) -> Scores:
        """Return the scores of a statistic's reports.

        `tables`: the moments of all levels of the metric; `counts`, shape (levels,): the numbers of
        reports; `weights`, shape (levels,): the weight of one report; `estimate`, shape (B + 1,):
        F; `bins`: the number of bins; `question`: it says when and for which users bounds hold.
        """
        used = int((counts > 0).sum())
        free = used > 1 and not question.one_mean(used)
        size = estimate.size - 1
        centre = np.clip(estimate, 0, 1)[1:-1] - np.arange(1, size) / size
        second, mean = np.zeros_like(tables[0].second), np.zeros_like(tables[0].second)
        largest, part = np.zeros(size - 1), counts * weights**2
        for table, count, weight, square in zip(tables, counts, weights, part, strict=True):
            checkpoint()
            # bounds for all times need a b that also covers levels without reports so far
            if count or question.bound == "anytime":
                largest = np.maximum(largest, weight * table.centred)
            if not count:
                continue
            if free:
                moment = table.second - 2 * centre[:, None] * table.mean + centre[:, None] ** 2
                second += square * moment.max(axis=1, keepdims=True)
            else:
                second += square * table.second
                mean += square * table.mean
        if free:
            second = second[:, :1]
        else:
            second += centre[:, None] * (part.sum() * centre[:, None] - 2 * mean)
        total = float(counts @ weights)
        return cls(size.bit_length() - 1, bins, estimate, second, free, largest, total)

    @property
    def worst(self) -> Floats:
        """The variance of F at the inner edges if all users are in the worst shell."""
        worst: Floats = self.second.max(axis=1) / self.total**2
        return worst

    def variance(self, band: Band) -> Floats:
        """Return the largest possible variance of the sum, for distributions within a band."""
        if self.free:
            return self.second[:, 0].copy()
        first, last, largest, steps = self._falling
        limit = np.maximum(band.upper[last] - band.lower[first], 0.0)
        filled = np.minimum(np.cumsum(limit, axis=1), 1.0)
        left = 1 - filled[:, -1]  # above 0 only if limits crossed
        variance: Floats = np.vecdot(steps, filled) + largest * left
        return variance

    @functools.cached_property
    def _falling(self) -> tuple[Integers, Integers, Floats, Floats]:
        """Each inner edge's shells by falling variance: first and last edges, maximum, steps."""
        order = np.argsort(-self.second, axis=1, kind="stable")
        first, last = (np.take_along_axis(x, order, axis=1) for x in _shells(self.height))
        falling = np.take_along_axis(self.second, order, axis=1)
        return first, last, falling[:, 0], -np.diff(falling, axis=1, append=0.0)

    def at(self, masses: list[Floats]) -> Floats:
        """Return the variance of F at the inner edges if the nodes have these masses."""
        if self.free:
            return self.worst
        edges = np.concatenate([[0.0], np.cumsum(masses[-1])])
        first, last = _shells(self.height)
        mass = np.maximum(edges[last] - edges[first], 0.0)
        variance: Floats = (self.second * mass).sum(axis=1) / self.total**2
        return variance

    def trivial(self) -> Band:
        """Return the band without reports: F is 0 at the first edge and 1 at the last."""
        edges = np.arange(self.estimate.size)
        return Band((edges >= self.bins).astype(np.float64), (edges > 0).astype(np.float64))

    def around(self, width: Floats, outer: Band) -> Band:
        """Return the band F +- `width` at the inner edges, made ascending and cut to `outer`."""
        lower, upper = outer.lower.copy(), outer.upper.copy()
        inner = self.estimate[1:-1]
        lower[1:-1] = np.maximum(lower[1:-1], inner - width)
        upper[1:-1] = np.minimum(upper[1:-1], inner + width)
        lower = np.maximum.accumulate(lower)
        upper = np.minimum.accumulate(upper[::-1])[::-1]
        return self.contradiction() if (lower > upper).any() else Band(lower, upper)

    def contradiction(self) -> Band:
        """Return the trivial band, marked as crossed: no distribution gives such reports."""
        return dataclasses.replace(self.trivial(), crossed=True)


def simultaneous_band(scores: Scores, question: Question, beta: float) -> tuple[Band, Floats]:
    """Return a band that holds at all edges at once, and bounds on the variances of the sums.

    The variance of the sum at an inner edge, shape (B - 1,), is below its bound if the band holds.
    `scores`: those of the reports; `question`: its `bound` says whether the band holds for a fixed
    number of reports or for all times; `beta`: the largest probability that the band is wrong.
    """
    tails = _tails(scores, beta)
    band, variance = scores.trivial(), scores.variance(scores.trivial())
    for _ in range(1 if scores.free else BAND_ROUNDS):
        band = scores.around(deviations(scores, question, variance, tails), band)
        if band.crossed:
            break
        variance = np.minimum(variance, scores.variance(band))
    return band, variance


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
    """Return the half-widths at the inner edges; infinite where there is no tail.

    `scores`: those of the reports; `question`: its `bound` is for a fixed number of reports or for
    all times; `variance`, shape (B - 1,): upper bounds on the variances of the sums; `tails`: the
    failure probabilities of one side, each with the edges that have it.
    """
    deviation: Callable[[Floats, float], Floats] = (
        anytime_deviation if question.bound == "anytime" else fixed_deviation
    )
    half_widths = np.full(variance.size, np.inf)
    for tail, edges in tails.items():
        b = scores.largest[edges]
        half_widths[edges] = b * deviation(variance[edges] / b**2, tail) / scores.total
    return half_widths


def normal_band(scores: Scores, masses: list[Floats], log_p: float) -> Band:
    """Return the asymptotic band: F +- a normal quantile times an estimated standard deviation.

    `scores`: those of the reports; `masses`: the estimated masses of the nodes at each depth;
    `log_p`: ln p, where p is the failure probability of each limit.
    """
    from scipy.special import ndtri_exp

    z = -float(ndtri_exp(log_p))
    width = z * np.sqrt(scores.at(masses))
    width[scores.bins - 1 :] = np.inf  # F is 1 there
    return scores.around(width, scores.trivial())


class SingleNumberBounds:
    """Bounds of F at one edge, or of one quantile, that was chosen before the reports were seen.

    Theorem 5 of docs/proofs/distributions.md.
    """

    def __init__(self, scores: Scores, question: Question, beta: float) -> None:
        self.scores = scores
        self.outer, variance = simultaneous_band(scores, question, ONE_SHARE * beta)
        tails = {(1 - ONE_SHARE) * beta / 2: np.arange(scores.bins - 1)}
        width = np.concatenate([[np.inf], deviations(scores, question, variance, tails), [np.inf]])
        self.low, self.high = scores.estimate - width, scores.estimate + width

    def pointwise(self) -> Band:
        """Return limits each of which holds at its edge alone."""
        lower = np.maximum(self.outer.lower, self.low)
        upper = np.minimum(self.outer.upper, self.high)
        if self.outer.crossed or (np.maximum.accumulate(lower) > upper).any():
            return self.scores.contradiction()  # no ascending function is within these limits
        return Band(lower, upper)

    def quantiles(self, q: Floats) -> Indices:
        """Return two edges around each of k quantiles; each pair holds by itself, shape (2, k)."""
        edges = quantile_edges(self.outer, q)
        if self.outer.crossed:
            return edges
        for column, (first, last) in enumerate(edges.T.tolist()):
            reaching = np.flatnonzero(self.high[first + 1 : last + 1] >= q[column])
            below = np.flatnonzero(self.low[first:last] < q[column])
            left = first + int(reaching[0]) if reaching.size else last - 1
            edges[:, column] = left, first + int(below[-1] if below.size else 0) + 1
        return edges


def quantile_edges(band: Band, q: Floats) -> Indices:
    """Return two edges around each of k quantiles, which hold for all at once, shape (2, k).

    For the quantile q, the first is the largest edge whose upper limit is below q, and the second
    is the smallest edge whose lower limit is at least q.
    """
    first, last = np.searchsorted(band.upper, q) - 1, np.searchsorted(band.lower, q)
    return np.stack([np.maximum(first, 0), np.minimum(last, band.lower.size - 1)])
