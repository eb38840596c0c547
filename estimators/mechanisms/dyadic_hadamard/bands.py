"""Confidence bands of a cumulative distribution, valid for every number of reports.

A band holds at all edges at once: theorem 3 of docs/proofs/distributions.md.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Counts, Floats
from estimators.interruption import checkpoint
from estimators.mechanisms.dyadic_hadamard.scores import ScoreTables
from estimators.mechanisms.dyadic_hadamard.tails import anytime_deviation, fixed_deviation
from estimators.question import Question

BAND_ROUNDS = 4
COARSE_EDGES, COARSE_SHARE = 64, 0.8
"""The multiples of B / 64 share this part of beta, and also bound the edges between them."""
ONE_SHARE = 0.1
"""The share of beta for the band within which the bounds of one number are searched for."""


@dataclasses.dataclass(frozen=True)
class Band:
    """Limits of F at the B + 1 edges.

    `lower`, `upper`, shape (B + 1,): ascending; `crossed`: whether they crossed somewhere, so that
    the reports contradict each other; they are then the limits without any report.
    """

    lower: Floats
    upper: Floats
    crossed: bool = False


@functools.lru_cache(maxsize=16)
def _shells(height: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last edge of each shell of each inner edge, (B - 1, h + 1)."""
    edges = np.arange(1, 1 << height)[:, None]
    width = 1 << np.maximum(height - np.arange(height + 1) - 1, 0)
    node = edges // width
    node[:, :-1] ^= 1  # the sibling; the last shell is the bin itself
    first = node * width
    return first, first + width


@dataclasses.dataclass(frozen=True)
class Scores:
    """The sum of the reports' weighted scores, at the inner edges of a tree.

    `height`, `bins`: h, and how many of the 2^h bins a value can be in; `estimate`, shape (B + 1,):
    F, unbiased; `second`, shape (B - 1, h + 1): Q, an upper bound on the variance if all users are
    in one shell; `free`: whether the levels may have different distributions, so that the worst
    shell counts; `largest`, shape (B - 1,): b, a bound on one centred and weighted score; `total`:
    the sum of the weights.
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
        """Return the scores of some reports.

        `tables`: of all levels of the metric, over `bins` bins; `counts`, shape (levels,);
        `weights`, shape (levels,): the weight of one report; `estimate`, shape (B + 1,).
        """
        used = int((counts > 0).sum())
        free = used > 1 and not question.one_mean(used)
        size = estimate.size - 1
        centre = np.clip(estimate, 0, 1)[1:-1] - np.arange(1, size) / size
        second, largest = np.zeros_like(tables[0].second), np.zeros(size - 1)
        for table, count, weight in zip(tables, counts.tolist(), weights.tolist(), strict=True):
            checkpoint()
            # bounds for all times need one b for all levels, in use or not yet
            if count or question.bound == "anytime":
                largest = np.maximum(largest, weight * table.centred)
            moment = table.second - 2 * centre[:, None] * table.mean + centre[:, None] ** 2
            if free:
                moment = moment.max(axis=1, keepdims=True)
            second += count * weight**2 * moment
        total = float(counts @ weights)
        return cls(size.bit_length() - 1, bins, estimate, second, free, largest, total)

    @property
    def worst(self) -> Floats:
        """The variance of F at the inner edges, if all users are in the worst shell."""
        worst: Floats = self.second.max(axis=1) / self.total**2
        return worst

    def variance(self, band: Band) -> Floats:
        """Return the largest possible variance of the sum, for distributions within a band."""
        if self.free:
            return self.second[:, 0].copy()
        first, last = _shells(self.height)
        limit = np.clip(band.upper[last] - band.lower[first], 0.0, 1.0)
        order, falling = self._falling
        filled = np.minimum(np.cumsum(np.take_along_axis(limit, order, axis=1), axis=1), 1.0)
        mass = np.diff(filled, axis=1, prepend=0.0)
        mass[:, 0] += 1 - filled[:, -1]  # crossed limits may leave room
        variance: Floats = (falling * mass).sum(axis=1)
        return variance

    @functools.cached_property
    def _falling(self) -> tuple[NDArray[np.intp], Floats]:
        """The shells of each edge by falling variance, and these variances."""
        order = np.argsort(-self.second, axis=1, kind="stable")
        return order, np.take_along_axis(self.second, order, axis=1)

    def at(self, masses: list[Floats]) -> Floats:
        """Return the variance of F at the inner edges for given masses of the nodes."""
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
        """Return the band F +- `width` at the inner edges, ascending, and within another one."""
        lower, upper = outer.lower.copy(), outer.upper.copy()
        inner = self.estimate[1:-1]
        lower[1:-1] = np.maximum(lower[1:-1], inner - width)
        upper[1:-1] = np.minimum(upper[1:-1], inner + width)
        lower = np.maximum.accumulate(lower)
        upper = np.minimum.accumulate(upper[::-1])[::-1]
        return self.contradiction() if (lower > upper).any() else Band(lower, upper)

    def contradiction(self) -> Band:
        """Return the band after limits crossed: no distribution gives such reports."""
        return dataclasses.replace(self.trivial(), crossed=True)


def simultaneous_band(scores: Scores, question: Question, beta: float) -> tuple[Band, Floats]:
    """Return a band that holds at all edges at once, and the variances that it rests on.

    Returns the band and the largest variance of the sum, shape (B - 1,), if the band holds; `beta`:
    the probability that the band fails, on either side.
    """
    tails = _tails(scores, beta)
    band, variance = scores.trivial(), scores.variance(scores.trivial())
    for _ in range(1 if scores.free else BAND_ROUNDS):
        band = scores.around(deviations(scores, question, variance, tails), band)
        if band.crossed:
            break
        variance = np.minimum(variance, scores.variance(band))
    return band, variance


def _tails(scores: Scores, beta: float) -> dict[float, NDArray[np.intp]]:
    """Return the tails of one side, with the inner edges that have them."""
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
    scores: Scores, question: Question, variance: Floats, tails: dict[float, NDArray[np.intp]]
) -> Floats:
    """Return the half-widths at the inner edges; infinite where there is no tail.

    `variance`, shape (B - 1,): of the sum, at most; `tails`: the failure probabilities of one side,
    with the edges that have them.
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
    """Return the asymptotic band, for comparison: normal quantiles of plug-in variances.

    `masses`: of the nodes, at each depth; `log_p`: ln p, the failure probability of one side of one
    limit.
    """
    from scipy.special import ndtri_exp

    z = -float(ndtri_exp(log_p))
    width = z * np.sqrt(scores.at(masses))
    width[scores.bins - 1 :] = np.inf  # F is 1 there
    return scores.around(width, scores.trivial())


class SingleNumberBounds:
    """Bounds of one number that was chosen before looking: F at an edge, or a quantile.

    Theorem 5 of docs/proofs/distributions.md.
    """

    def __init__(self, scores: Scores, question: Question, beta: float) -> None:
        self.scores = scores
        self.outer, variance = simultaneous_band(scores, question, ONE_SHARE * beta)
        tails = {(1 - ONE_SHARE) * beta / 2: np.arange(scores.bins - 1)}
        width = np.concatenate([[np.inf], deviations(scores, question, variance, tails), [np.inf]])
        self.low, self.high = scores.estimate - width, scores.estimate + width

    def pointwise(self) -> Band:
        """Return limits that hold at each edge by itself."""
        lower = np.maximum(self.outer.lower, self.low)
        upper = np.minimum(self.outer.upper, self.high)
        if self.outer.crossed or (np.maximum.accumulate(lower) > upper).any():
            return self.scores.contradiction()  # no ascending function is within
        return Band(lower, upper)

    def quantile(self, q: float) -> tuple[int, int]:
        """Return two edges that enclose a quantile."""
        first, last = quantile_edges(self.outer, q)
        if self.outer.crossed:
            return first, last
        reaching = np.flatnonzero(self.high[first + 1 : last + 1] >= q)
        left = first + int(reaching[0]) if reaching.size else last - 1
        below = np.flatnonzero(self.low[first:last] < q)
        right = first + int(below[-1] if below.size else 0) + 1
        return left, right


def quantile_edges(band: Band, q: float) -> tuple[int, int]:
    """Return the edges that enclose a quantile, for all quantiles at once.

    They are the largest edge whose upper limit is below q, and the smallest one whose lower limit
    is at least q.
    """
    first = int(np.searchsorted(band.upper, q, side="left")) - 1
    last = int(np.searchsorted(band.lower, q, side="left"))
    return max(first, 0), min(last, band.lower.size - 1)
