"""The comparison of two arms: a difference or a ratio, with proved limits and a p-value."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from estimators.comparison import distributions, joint
from estimators.comparison.arms import (
    STANDARD_WEIGHTS,
    Arm,
    arm_of,
    has_law,
    mixes_differ,
    standard_shares,
)
from estimators.comparison.joint import ComparisonLimits, chained_p_values, consistent
from estimators.comparison.requirements import are_independent, require_comparable
from estimators.comparison.vectors import CoordinateNoise, radius
from estimators.distribution import share_names
from estimators.errors import explain_missing_scipy
from estimators.estimate import Bools, Counts, Estimate, Floats, Limits
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.metrics.trusted import TrustedMetric
from estimators.question import Question
from estimators.shapes import Shape

SUSPICIOUS_P_VALUE = 0.001
"""A p-value below which levels, or mixes of levels, count as different."""
ArmEstimator = Callable[[float], Estimate]
"""A function that returns the estimate of an arm for a failure probability."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A difference of two arms, or a ratio, with its confidence bounds, in the metric's own unit.

    Attributes
    ----------
    value, lower, upper : float or ndarray of shape (numbers,)
        The difference a - b, or the ratio a / b, and its two-sided bounds. The value is unclipped.
        NaN if an arm has no reports. If b is at most 0, a ratio is infinite, or NaN if a is too;
        its upper bound is infinite if b may be 0.
    p_value : float or ndarray of shape (numbers,)
        The p-value of the hypothesis that both arms are equal. It is at most `beta` exactly if 0
        (for a ratio: 1) is outside the bounds. For several numbers it is adjusted for their number,
        like the bounds. If `bound` is ``"anytime"``, it is valid at any time.
    law : str
        ``"joint"``: both arms' reports are independent, and one probability covers both.
        ``"union"``: each arm has limits at half of beta, however the arms depend on each other.
    of : str
        ``"difference"`` or ``"ratio"``.
    bound : str
        ``"fixed"`` or ``"anytime"``.
    beta : float
        Failure probability of the bounds, together for all numbers unless pointwise.
    target, policy : str
        As in the :class:`estimators.question.Question`; `policy` is the name of the weights.
    split : float or None
        The planned ratio of reports, a to b, of ``"anytime"`` bounds.
    reports : tuple of int
        The reports of the arms.
    radius : float or None
        For a vector: the difference is within this l2 distance of the true one with probability 1 -
        beta, separately from `lower` and `upper`.
    labels : tuple of str
        The names of the numbers; empty if there is only one.
    warning : str
        The reason why the comparison may mislead; empty if there is none.
    """

    value: float | Floats
    lower: float | Floats
    upper: float | Floats
    p_value: float | Floats
    law: str
    of: str = "difference"
    bound: str = "fixed"
    beta: float
    target: str
    policy: str
    split: float | None = None
    reports: tuple[int, int]
    radius: float | None = None
    labels: tuple[str, ...] = ()
    warning: str = ""

    @property
    def decided(self) -> bool | Bools:
        """Whether the arms are proved to be different: `p_value` is at most `beta`."""
        if not np.ndim(self.p_value):
            return bool(self.p_value <= self.beta)
        return np.asarray(self.p_value) <= self.beta


@explain_missing_scipy("a comparison")
def compare(
    metric: Metric,
    statistic_a: Counts,
    statistic_b: Counts,
    of: str = "difference",
    bound: str = "fixed",
    beta: float = 0.05,
    target: str = "population",
    split: float | None = None,
    other: Metric | None = None,
    weights: str = "optimal",
    *,
    independent: bool | None = None,
    categories: Sequence[str | float] | None = None,
    below: Sequence[float] = (),
    pointwise: bool = False,
    panes: tuple[int | None, int | None] = (1, 1),
) -> Comparison:
    """Return by how much a mean, frequencies or quantiles of a exceed those of b, with bounds.

    Parameters
    ----------
    metric : Metric
        The metric of a, and of b unless `other` is given.
    statistic_a, statistic_b : ndarray of int64
        The summed reports of a and of b. No report may be in both.
    of : str
        ``"difference"``, or ``"ratio"`` of frequencies, or of means whose range begins at 0 or
        above.
    bound : str
        ``"fixed"``: for numbers of reports that are fixed in advance, as in closed windows.
        ``"anytime"``: for all times at once, for arms that people watch while they grow.
    beta, target, weights
        See :class:`estimators.question.Question`. The weights ``"standard"`` give each level the
        same share in both arms, for fixed bounds: use them if values depend on the level and the
        arms' mixes of levels differ.
    split : float, optional
        For ``"anytime"``, the planned ratio of reports, a to b, which makes bounds narrower. It
        must be declared before the start, and must not be taken from the reports.
    other : Metric, optional
        The metric of b if it differs from that of a; it must have the same kind, range and labels.
        The same devices may answer both, so the law is ``"union"`` unless `independent` is set.
    independent : bool, optional
        Whether the reports of the arms are independent. By default they are if both arms have the
        same metric. If a metric is memoized, they never are; otherwise, for the target
        ``"sample"``, they always are, because only the noise counts.
    categories : sequence of str or int, optional
        As in :meth:`estimators.LocalMetric.estimate`; for a distribution, quantiles.
    below : sequence of float
        For a distribution, edges: compare the shares of users below them instead of quantiles.
    pointwise : bool
        Whether bounds and p-values hold for each number alone, not for all at once.
    panes : tuple of int or None
        For memoized metrics, the numbers of panes of a and of b; None for an unknown number.

    Raises
    ------
    ValueError
        If the arms cannot be compared; the message says why.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response", range=(0, 1),
    ...                 levels=[1])
    >>> a, b = np.array([10_000, 5_300]), np.array([20_000, 10_000])
    >>> found = compare(metric, a, b)
    >>> round(found.value, 3), round(found.lower, 3), round(found.upper, 3)
    (0.065, 0.039, 0.091)
    >>> found.law, found.decided
    ('joint', True)
    """
    metric_a, metric_b = require_comparable(metric, other, of, bound, weights, target, split)
    ratio = of == "ratio"
    edge_indices = distributions.limit_indices((metric_a, metric_b), below, categories, ratio=ratio)
    labels, selected = metric_a.domain.select(categories)
    among = selected is not None and selected.dtype == object  # shares among have no joint law
    if edge_indices is not None:
        labels = share_names(below)
    elif metric_a.shape is Shape.DISTRIBUTION and selected is not None:
        categories = selected.tolist()  # the second metric may have other defaults
    is_standard = weights == STANDARD_WEIGHTS
    asked: dict[str, Any] = {"weights": "uniform" if is_standard else weights}
    asked |= {"bound": bound, "target": target, "simultaneous": not pointwise}
    question = Question(beta=beta, asked=None if among else selected, **asked)
    arms = (metric_a, statistic_a), (metric_b, statistic_b)
    counts = [arm_metric.counts(statistic) for arm_metric, statistic in arms]
    independent = are_independent(metric_a, metric_b, target, independent)
    has_joint_law = independent and not among
    has_joint_law &= all(has_law(m, question, ratio=ratio) for m in (metric_a, metric_b))
    if is_standard and not has_joint_law:
        raise ValueError(
            "weights = 'standard': expected independent arms of a mechanism that has a joint law"
        )
    asked |= {"categories": categories, "simultaneous": not pointwise and len(below) != 1}
    answers = [
        functools.partial(_compared_numbers, *arm, below, asked | {"panes": arm_panes})
        for arm, arm_panes in zip(arms, panes, strict=True)
    ]
    length = None
    if edge_indices is not None and independent and not ratio:
        of_arms = zip(arms, edge_indices, strict=True)
        first, second = (distributions.ShareArm.of(*arm, question, i) for arm, i in of_arms)
        law = "joint"
        value, limits = distributions.share_difference(first, second, split)
    elif has_joint_law:
        shares = standard_shares(metric_a.randomizer.facts, counts) if is_standard else None
        a, b = (arm_of(*arm, question, shares) for arm in arms)
        law, length = "joint", _vector_radius(a, b, question, metric_a.domain.unit[1])
        middle, scale = metric_a.domain.unit
        if metric_a.kind == "frequency":  # on the scale of signs
            middle, scale = middle + scale / 2, scale / 2
        value, limits = _joint(a, b, question, split, middle / scale if ratio else None)
        if not ratio:
            value = value * scale
            limits = limits._replace(lower=limits.lower * scale, upper=limits.upper * scale)
    else:
        law = "union"
        value, limits = _union(answers[0], answers[1], beta, ratio=ratio)
    single = not metric_a.labels and value.size == 1
    return Comparison(
        **_number_fields(value, limits, single),
        law=law,
        of=of,
        bound=bound,
        beta=beta,
        target=target,
        policy=weights,
        split=split,
        reports=(int(counts[0].sum()), int(counts[1].sum())),
        radius=length,
        labels=labels,
        warning=_level_warning((metric_a, metric_b), counts, answers, beta, weights),
    )


def compare_releases(
    metric: TrustedMetric, a: Estimate, b: Estimate, beta: float = 0.05
) -> Comparison:
    """Return by how much a release of a metric exceeds another release, with bounds.

    Only the releases are used, so this costs no privacy. The bounds have the law ``"union"``.

    Parameters
    ----------
    metric : TrustedMetric
        The metric of both releases.
    a, b : Estimate
        Releases of disjoint reports, with the same target.
    beta : float
        Failure probability of the bounds, for all numbers together.
    """
    arms = [functools.partial(metric.with_beta, release) for release in (a, b)]
    value = np.atleast_1d(np.asarray(a.value) - np.asarray(b.value))
    limits = _union(arms[0], arms[1], beta, ratio=False)[1]
    return Comparison(
        **_number_fields(value, limits, not metric.labels),
        law="union",
        beta=beta,
        target=a.target,
        policy=a.policy,
        reports=(a.reports, b.reports),
        labels=metric.labels,
    )


def _compared_numbers(
    metric: LocalMetric, sums: Counts, below: Sequence[float], asked: dict[str, Any], beta: float
) -> Estimate:
    """Return the estimate of an arm, whose parameters besides `beta` are `asked`."""
    return distributions.compared_numbers(metric.estimate(sums, beta, **asked), below)


def _joint(
    a: Arm, b: Arm, question: Question, split: float | None, origin: float | None
) -> tuple[Floats, ComparisonLimits]:
    """Return the compared value and its limits, on the scale where a mean theta is in [-1, 1].

    The value is the ratio of the arms' origin + theta, or the difference if `origin` is None.
    """
    ends, value = (-2.0, 2.0), a.observed - b.observed
    if origin is not None:
        value = quotient(origin + a.observed, origin + b.observed)
        ends = ((origin - 1) / (origin + 1), (origin + 1) / (origin - 1) if origin > 1 else np.inf)
    remaining_beta = question.beta - a.failure - b.failure
    ones = np.ones_like(value)
    if not value.size or a.empty or b.empty or remaining_beta <= 0:
        return value, ComparisonLimits(ends[0] * ones, ends[1] * ones, ones)
    numbers = value.size if question.simultaneous else 1
    if question.bound == "anytime":
        limits = joint.anytime(a, b, remaining_beta / numbers, split, origin)
    elif origin is None:
        limits = joint.fixed_difference(a, b, remaining_beta / numbers)
    else:
        limits = joint.fixed_ratio(a, b, remaining_beta / numbers, origin)
    p_value = np.minimum(limits.p_value * numbers + a.failure + b.failure, 1.0)
    clipped, slack = np.clip(np.nan_to_num(value, nan=1.0, posinf=np.inf), *ends), a.slack + b.slack
    lower = np.clip(np.minimum(limits.lower - slack, clipped), *ends)
    upper = np.clip(np.maximum(limits.upper + slack, clipped), *ends)
    null = 0.0 if origin is None else 1.0
    return value, consistent(lower, upper, p_value, question.beta, null)


def _vector_radius(a: Arm, b: Arm, question: Question, scale: float) -> float | None:
    """Return a bound on the l2 error of a difference of vectors; None for other kinds."""
    if not isinstance(a.noise, CoordinateNoise) or not isinstance(b.noise, CoordinateNoise):
        return None
    totals = (a.total, b.total) if question.bound == "anytime" else None
    farthest = float(np.linalg.norm(a.observed - b.observed)) + 2  # both means are in the ball
    distance = radius(a.noise, b.noise, question.beta, totals) + a.slack + b.slack
    return scale * min(distance, farthest)


def _number_fields(value: Floats, limits: ComparisonLimits, single: bool) -> dict[str, Any]:
    """Return the fields of a comparison that contain its numbers, by name."""
    numbers = {"value": value, **limits._asdict()}
    return {name: float(x[0]) for name, x in numbers.items()} if single else numbers


def _union(
    a: ArmEstimator, b: ArmEstimator, beta: float, *, ratio: bool
) -> tuple[Floats, ComparisonLimits]:
    """Return a difference or a ratio with limits, in the metric's own unit.

    With probability 1 - `beta` both arms' intervals are right, however the arms depend on each
    other. `a`, `b`: the estimates of the arms; `ratio`: whether to compare by a ratio.
    """
    null = 1.0 if ratio else 0.0

    def limits(share: float) -> Limits:
        a_estimate, b_estimate = a(share / 2), b(share / 2)
        low, high = np.atleast_1d(a_estimate.lower), np.atleast_1d(a_estimate.upper)
        b_low, b_high = np.atleast_1d(b_estimate.lower), np.atleast_1d(b_estimate.upper)
        if not ratio:
            return low - b_high, high - b_low
        with np.errstate(divide="ignore", invalid="ignore"):
            lower = np.where(b_high > 0, low / b_high, 0.0)
            upper = np.where(b_low > 0, high / b_low, np.inf)
        return np.maximum(lower, 0), upper

    def excludes_null(share: float) -> Bools:
        low, high = limits(share)
        return (low > null) | (high < null)

    first, second = (np.atleast_1d(np.asarray(arm(beta / 2).value)) for arm in (a, b))
    value = quotient(first, second) if ratio else first - second
    return value, consistent(*limits(beta), chained_p_values(excludes_null, beta), beta, null)


def quotient(a: Floats, b: Floats) -> Floats:
    """Return a / b. If b is at most 0: infinity if a is above 0, otherwise NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.where(a > 0, np.inf, np.nan)
        ratio: Floats = np.where(b > 0, a / b, np.where(np.isnan(b), np.nan, above))
    return ratio


def _level_warning(
    metrics: tuple[LocalMetric, LocalMetric],
    counts: Sequence[Counts],
    answers: Sequence[ArmEstimator],
    beta: float,
    weights: str,
) -> str:
    """Return a warning if values depend on the level and the arms' mixes differ; "" if not."""
    if (
        weights in {STANDARD_WEIGHTS, "uniform"}
        or mixes_differ(_aligned_counts(metrics, counts)) >= SUSPICIOUS_P_VALUE
    ):
        return ""
    p_values = [answer(beta).heterogeneity for answer in answers]
    smallest = min((p for p in p_values if p is not None), default=1.0)
    if smallest >= SUSPICIOUS_P_VALUE or not math.isfinite(smallest):
        return ""
    same_levels = [*metrics[0].levels] == [*metrics[1].levels]
    remedy = "; weights = 'standard' compares like with like" if same_levels else ""
    return (
        "values depend on the privacy level, and the arms have different mixes of levels: part of "
        f"the difference may be that of the mixes{remedy}"
    )


def _aligned_counts(metrics: Sequence[LocalMetric], counts: Sequence[Counts]) -> Counts:
    """Return each arm's numbers of reports for all epsilons of the metrics, in the same order."""
    epsilons = np.unique([epsilon for metric in metrics for epsilon in metric.levels])
    aligned = np.zeros((len(metrics), epsilons.size), dtype=np.int64)
    for row, metric, count in zip(aligned, metrics, counts, strict=True):
        row[np.searchsorted(epsilons, metric.levels)] = count
    return aligned
