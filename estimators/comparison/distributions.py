"""Comparisons of distributions: of quantiles, or of the shares of the users below limits.

Shares follow theorem 6 of docs/proofs/comparisons.md; quantiles have an interval in each arm.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from estimators.comparison.arms import Arm
from estimators.comparison.joint import ComparisonLimits, anytime, chained_p_values, consistent
from estimators.comparison.requirements import refuse_negative
from estimators.comparison.streams import ScoreStream
from estimators.distribution import DistributionEstimate, edge_indices, edge_texts, number_text
from estimators.estimate import Counts, Estimate, Floats, Indices
from estimators.mechanisms.dyadic_hadamard.bands import Scores, variance_bounds
from estimators.mechanisms.dyadic_hadamard.estimation import scores_of
from estimators.mechanisms.dyadic_hadamard.mechanism import DyadicHadamard
from estimators.mechanisms.dyadic_hadamard.tails import fixed_deviation
from estimators.metrics.bins import Bins
from estimators.metrics.local import LocalMetric
from estimators.question import Question
from estimators.weights import total_weight

VARIANCE_SHARE = 0.1
"""The share of beta for the two bands that bound the arms' variances."""


def limit_indices(
    metrics: tuple[LocalMetric, LocalMetric],
    below: Sequence[float],
    quantiles: Sequence[str | float] | None,
    *,
    ratio: bool,
) -> tuple[Indices, Indices] | None:
    """Return the indices of the limits `below` among the edges of two distributions.

    None if `below` is empty. `metrics`: the arms' metrics, of any kind; `quantiles`: the requested
    quantiles; `ratio`: whether a ratio is requested. Raises ValueError for limits of metrics that
    are not distributions, for limits with quantiles, or for a ratio of quantiles of values
    that may be negative.
    """
    name, domain = metrics[0].name, metrics[0].domain
    if not isinstance(domain, Bins):
        if below:
            raise ValueError(
                f"below = {list(below)}: metric {name!r} is of kind {metrics[0].kind!r}: expected "
                "limits for a distribution alone"
            )
        return None
    if not below:
        if ratio:
            refuse_negative(metrics[0], domain.limits[0])
        return None
    if quantiles is not None:
        raise ValueError("below and quantiles: expected one of the two")
    a_indices, b_indices = (_limit_indices(metric, below) for metric in metrics)
    return a_indices, b_indices


def snapped_limits(metric: LocalMetric, limits: Sequence[float]) -> tuple[float, ...]:
    """Return the limits; on a logarithmic scale, a limit between edges moves to the nearest one.

    Limits do not move to the ends of the range, and limits beyond the range do not move.

    Without this, few round numbers could be limits, because they are rarely edges of such a scale.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="m", kind="distribution", range=(1, 1000), bins=3, scale="log",
    ...                 levels=[1])
    >>> snapped_limits(metric, [10, 30, 33, 2, 1001])
    (10, 10.0, 100.0, 10.0, 1001)
    """
    domain = metric.domain
    if not isinstance(domain, Bins) or domain.scale != "log":
        return tuple(limits)
    edges, snapped = domain.limits, [*limits]
    inner_edges = [float(text) for text in edge_texts(edges)[1:-1]]
    for position, index in enumerate(edge_indices(edges, limits).tolist()):
        if index < 0 and edges[0] < (limit := limits[position]) < edges[-1]:
            snapped[position] = min(inner_edges, key=lambda edge: abs(math.log(edge / limit)))
    return tuple(snapped)


def _limit_indices(metric: LocalMetric, below: Sequence[float]) -> Indices:
    assert isinstance(metric.domain, Bins)  # noqa: S101
    edges = metric.domain.limits
    places = edge_indices(edges, below)
    for limit, index in zip(below, places.tolist(), strict=True):
        if not 0 < index < edges.size - 1:
            first = min(max(1, int(np.searchsorted(edges, limit)) - 1), edges.size - 2)
            neighbours = edge_texts(edges)[first : min(first + 2, edges.size - 1)]
            raise ValueError(
                f"below = {number_text(limit)}: expected an edge between two bins of "
                f"{metric.name!r}, such as {' or '.join(neighbours)}"
            )
    if np.unique(places).size < places.size:
        raise ValueError(f"below = {list(below)}: expected each limit once")
    return places


def compared_numbers(estimate: Estimate, below: Sequence[float]) -> Estimate:
    """Return the numbers of an arm that are compared.

    These are the shares below the limits `below`, or, if there are none, the numbers of `estimate`
    that displays show.
    """
    if not below:
        return estimate.numbers
    assert isinstance(estimate, DistributionEstimate)  # noqa: S101
    return estimate.shares_below(below)


@dataclasses.dataclass(frozen=True)
class ShareArm:
    """The shares below some edges in one arm, as sums of scores.

    `question`: its weights and bound apply; `scores`: None without reports; `inner`, shape (k,):
    the indices of the limits among the inner edges; `total`: the result of
    :func:`estimators.weights.total_weight`.
    """

    question: Question
    scores: Scores | None
    inner: Indices
    total: float

    @classmethod
    def of(
        cls, metric: LocalMetric, statistic: Counts, question: Question, places: Indices
    ) -> ShareArm:
        """Return the arm of the sums `statistic` of a `metric`, for a `question`.

        `places`, shape (k,): the indices of the limits among the edges.
        """
        mechanism = metric.randomizer
        assert isinstance(mechanism, DyadicHadamard)  # noqa: S101
        weights = mechanism.report_weights(question.weights)
        table = metric.table(statistic)
        scores = scores_of(mechanism.tree, table, weights / weights.max(), question)
        total = total_weight(question.weights, table[:, 0], mechanism.facts)
        return cls(question, scores, places - 1, total)

    @property
    def value(self) -> Floats:
        """The shares, unbiased; NaN without reports."""
        if self.scores is None:
            return np.full(self.inner.size, np.nan)
        return self.scores.estimate[self.inner + 1]

    def moments(self, beta: float) -> tuple[Floats, Floats]:
        """Return bounds on the variances of the shares, and on one report's part of their errors.

        `beta`: the largest probability that some variance is above its bound.
        """
        scores = self.scores
        assert scores is not None  # noqa: S101
        variance = variance_bounds(scores, self.question, beta)[1]
        total = scores.total
        return variance[self.inner] / total**2, scores.largest[self.inner] / total

    def arm(self, beta: float) -> Arm:
        """Return the arm on the scale of 2 F - 1, with the variances of :meth:`moments`."""
        variance, largest = self.moments(beta)
        stream = ScoreStream(2 * self.value - 1, 2 * largest, 4 * variance, self.total)
        return Arm(stream.observed, None, None, self.total, scores=stream)


def share_difference(
    a: ShareArm, b: ShareArm, split: float | None
) -> tuple[Floats, ComparisonLimits]:
    """Return the differences of the shares of two arms, with limits and p-values.

    Theorem 6 of docs/proofs/comparisons.md; for all times at once, with Bennett's bound on the
    cumulants. `a`, `b`: arms of one question, with independent reports; `split`: the planned ratio
    of reports, a to b, for limits at all times.
    """
    value, question = a.value - b.value, a.question
    if a.scores is None or b.scores is None:
        ones = np.ones_like(value)
        return value, ComparisonLimits(-ones, ones, ones)
    beta, numbers = question.beta, value.size if question.simultaneous else 1

    def width(share: float) -> Floats:
        """Return half of the limits' distance at the failure probability `share`."""
        moments = (x.moments(VARIANCE_SHARE * share / 2) for x in (a, b))
        (a_variance, a_largest), (b_variance, b_largest) = moments
        largest = np.maximum(a_largest, b_largest)
        tail = (1 - VARIANCE_SHARE) * share / (2 * numbers)
        return largest * fixed_deviation((a_variance + b_variance) / largest**2, tail)

    if question.bound == "anytime":
        spent = VARIANCE_SHARE * beta
        limits = anytime(a.arm(spent / 2), b.arm(spent / 2), (beta - spent) / numbers, split)
        p_value = np.minimum(limits.p_value * numbers + spent, 1.0)
        lower, upper = limits.lower / 2, limits.upper / 2
    else:
        half = width(beta)
        p_value = chained_p_values(lambda share: np.abs(value) > width(share), beta)
        lower, upper = value - half, value + half
    lower, upper = np.clip(lower, -1.0, 1.0), np.clip(upper, -1.0, 1.0)
    return value, consistent(lower, upper, p_value, beta, 0.0)
