"""The comparison of two statistics: a difference or a ratio, with proved limits and a p-value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.comparison.arms import STANDARD, Arm, arm_of, has_law, mixes_differ, standard_shares
from estimators.comparison.distributions import (
    ShareArm,
    anytime_share_difference,
    limits_of,
    numbers_of,
    share_difference,
)
from estimators.comparison.joint import Found, anytime, consistent, fixed_difference, fixed_ratio
from estimators.comparison.requirements import are_independent, checked
from estimators.comparison.union import Answer, union
from estimators.comparison.vectors import CoordinateNoise, radius
from estimators.distribution import names_of
from estimators.errors import explain_missing_scipy
from estimators.estimate import Counts, Estimate, Floats
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.question import Question
from estimators.shapes import Shape

SUSPICIOUS = 0.001
"""A p-value below which levels, or mixes of levels, count as different."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A difference of two arms, or a ratio, with its confidence bounds, in the metric's own unit.

    Attributes
    ----------
    value, lower, upper : float or ndarray of shape (numbers,)
        The difference a - b, or the ratio a / b, and its two-sided bounds. The value is unclipped.
        NaN if an arm has no reports. A ratio and its upper bound are infinite if b may be 0.
    p_value : float or ndarray of shape (numbers,)
        Of the hypothesis that both arms are equal: at most `beta` exactly where 0 (for a ratio: 1)
        is outside the bounds. For several numbers it is adjusted for their number, like the bounds.
        If `bound` is ``"anytime"``, it may be looked at at any time.
    law : str
        ``"joint"``: both arms' reports are independent, and one probability covers both.
        ``"union"``: whatever the arms have in common, each has limits at half of beta.
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
        Empty, or why the comparison may mislead.
    """

    value: float | Floats
    lower: float | Floats
    upper: float | Floats
    p_value: float | Floats
    law: str
    of: str
    bound: str
    beta: float
    target: str
    policy: str
    split: float | None
    reports: tuple[int, int]
    radius: float | None = None
    labels: tuple[str, ...] = ()
    warning: str = ""

    @property
    def decided(self) -> bool | NDArray[np.bool_]:
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
    """Compare two statistics: by how much a mean, frequencies or quantiles of a exceed those of b.

    Parameters
    ----------
    metric : Metric
    statistic_a, statistic_b : ndarray of int64
        No report may be in both.
    of : str
        ``"difference"``, or ``"ratio"`` of frequencies, or of means whose range begins at 0 or
        above.
    bound : str
        ``"fixed"``: for numbers of reports that are fixed in advance, as in closed windows.
        ``"anytime"``: for all times at once, for arms that people watch while they grow.
    beta, target, weights
        See :class:`estimators.question.Question`. The weights ``"standard"`` give each level the
        same share in both arms, for fixed bounds: right if values go with the level and the arms'
        mixes of levels differ.
    split : float, optional
        For ``"anytime"``, the planned ratio of reports, a to b. It makes the bounds narrower and
        has to be declared before the start: a ratio that was looked up in the reports is none.
    other : Metric, optional
        The metric of b if it is another one, of the same kind, range and labels. The same devices
        may answer both, so the law is that of a union, unless `independent`.
    independent : bool, optional
        Whether the reports of the arms are independent; by default they are for one metric that is
        not memoized, and for the target ``"sample"``.
    categories : sequence of str or int, optional
        As in :meth:`estimators.LocalMetric.estimate`; of a distribution, quantiles.
    below : sequence of float
        Of a distribution: compare the shares of the users below these edges instead of quantiles.
    pointwise : bool
        Whether bounds and p-values hold for each number by itself, instead of for all at once.
    panes : tuple of int or None
        For memoized metrics, the numbers of panes of a and of b; None if one is unknown.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If the two cannot be compared, with the reason.

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
    one, two = checked(metric, other, of, bound, weights, target, split)
    ratio = of == "ratio"
    places = limits_of((one, two), below, categories, ratio=ratio)
    labels, asked = one.domain.select(categories)
    if places is not None:
        labels = names_of(below)
    elif one.shape is Shape.DISTRIBUTION and asked is not None:
        categories = asked.tolist()  # the second metric's own may be others
    known = "uniform" if weights == STANDARD else weights
    question = Question(
        beta=beta,
        weights=known,
        bound=bound,
        target=target,
        simultaneous=not pointwise,
        asked=asked,
    )
    counts = one.counts(statistic_a), two.counts(statistic_b)
    independent = are_independent(one, two, target, independent)
    joint = independent and all(has_law(m, question, ratio=ratio) for m in (one, two))
    if weights == STANDARD and not joint:
        raise ValueError(
            "weights = 'standard': expected independent arms of a mechanism that has a joint law"
        )
    alone = dataclasses.replace(question, simultaneous=not pointwise and len(below) != 1)
    answers = [
        _answer(m, s, alone, categories, below, p)
        for m, s, p in zip((one, two), (statistic_a, statistic_b), panes, strict=True)
    ]
    length = None
    if places is not None and independent and not ratio:
        first, second = (
            ShareArm.of(m, s, question, place)
            for m, s, place in zip((one, two), (statistic_a, statistic_b), places, strict=True)
        )
        law, value = "joint", first.value - second.value
        numbers = 1 if pointwise else value.size
        if bound == "anytime":
            found = anytime_share_difference(first, second, beta, numbers, split)
        else:
            found = share_difference(first, second, beta, numbers)
    elif joint:
        shares = None
        if weights == STANDARD:
            shares = standard_shares(one.randomizer.facts, counts)
        a, b = (arm_of(m, s, question, shares) for m, s in ((one, statistic_a), (two, statistic_b)))
        law, length = "joint", _radius(a, b, question, one.domain.unit[1])
        middle, scale = one.domain.unit
        if one.kind == "frequency":  # on the scale of signs
            middle, scale = middle + scale / 2, scale / 2
        value, found = _joint(a, b, question, split, middle / scale if ratio else None)
        if not ratio:
            value, found = value * scale, _scaled(found, scale)
    else:
        law = "union"
        value, found = _union(answers, beta, ratio=ratio)
    single = not one.labels and value.size == 1
    return Comparison(
        value=_shown(value, single),
        lower=_shown(found.lower, single),
        upper=_shown(found.upper, single),
        p_value=_shown(found.p_value, single),
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
        warning=_warning((one, two), counts, answers, beta, weights),
    )


def _answer(
    metric: LocalMetric,
    statistic: Counts,
    question: Question,
    categories: Sequence[str | float] | None,
    below: Sequence[float],
    panes: int | None,
) -> Answer:
    def answer(beta: float) -> Estimate:
        found = metric.estimate(
            statistic,
            beta,
            question.weights,
            question.bound,
            question.target,
            categories=categories,
            simultaneous=question.simultaneous,
            panes=panes,
        )
        return numbers_of(found, below)

    return answer


def _joint(
    a: Arm, b: Arm, question: Question, split: float | None, origin: float | None
) -> tuple[Floats, Found]:
    """Return the value and its limits, on the scale where means are in [-1, 1].

    With an origin it is the ratio of origin + theta, else the difference.
    """
    ends, value = (-2.0, 2.0), a.observed - b.observed
    if origin is not None:
        value = quotient(origin + a.observed, origin + b.observed)
        ends = ((origin - 1) / (origin + 1), (origin + 1) / (origin - 1) if origin > 1 else np.inf)
    left = question.beta - a.outside - b.outside
    ones = np.ones_like(value)
    if not value.size or a.empty or b.empty or left <= 0:
        return value, Found(ends[0] * ones, ends[1] * ones, ones)
    numbers = value.size if question.simultaneous else 1
    if question.bound == "anytime":
        found = anytime(a, b, left / numbers, split, origin)
    elif origin is None:
        found = fixed_difference(a, b, left / numbers)
    else:
        found = fixed_ratio(a, b, left / numbers, origin)
    p_value = np.minimum(found.p_value * numbers + a.outside + b.outside, 1.0)
    if slack := a.slack + b.slack:
        found = consistent(found.lower - slack, found.upper + slack, p_value, question.beta, 0.0)
        p_value = found.p_value
    inside = np.clip(np.nan_to_num(value, nan=1.0, posinf=np.inf), *ends)
    return value, Found(
        np.clip(np.minimum(found.lower, inside), *ends),
        np.clip(np.maximum(found.upper, inside), *ends),
        p_value,
    )


def _radius(a: Arm, b: Arm, question: Question, scale: float) -> float | None:
    """Bound the l2 distance of a difference of vectors; None for other kinds."""
    if not isinstance(a.noise, CoordinateNoise) or not isinstance(b.noise, CoordinateNoise):
        return None
    totals = (a.total, b.total) if question.bound == "anytime" else None
    farthest = float(np.linalg.norm(a.observed - b.observed)) + 2  # both means are in the ball
    found = radius(a.noise, b.noise, question.beta, totals) + a.slack + b.slack
    return scale * min(found, farthest)


def _shown(numbers: Floats, single: bool) -> float | Floats:
    return float(numbers[0]) if single else numbers


def _scaled(found: Found, scale: float) -> Found:
    return Found(found.lower * scale, found.upper * scale, found.p_value)


def _union(answers: Sequence[Answer], beta: float, *, ratio: bool) -> tuple[Floats, Found]:
    a, b = (np.atleast_1d(np.asarray(answer(beta / 2).value)) for answer in answers)
    found = union(answers[0], answers[1], beta, ratio=ratio)
    if not ratio:
        return a - b, found
    return quotient(a, b), found


def quotient(a: Floats, b: Floats) -> Floats:
    """Return a / b; infinite where b is not above 0, and NaN where a is not either."""
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.where(a > 0, np.inf, np.nan)
        result: Floats = np.where(b > 0, a / b, np.where(np.isnan(b), np.nan, above))
    return result


def _warning(
    metrics: tuple[LocalMetric, LocalMetric],
    counts: Sequence[Counts],
    answers: Sequence[Answer],
    beta: float,
    weights: str,
) -> str:
    """Say that values go with the level while the arms have different mixes of levels."""
    if weights in {STANDARD, "uniform"} or mixes_differ(_aligned(metrics, counts)) >= SUSPICIOUS:
        return ""
    found = [answer(beta).heterogeneity for answer in answers]
    least = min((p for p in found if p is not None), default=1.0)
    if least >= SUSPICIOUS or not math.isfinite(least):
        return ""
    same = [*metrics[0].levels] == [*metrics[1].levels]
    remedy = "; weights = 'standard' compares like with like" if same else ""
    return (
        "values depend on the privacy level, and the arms have different mixes of levels: part of "
        f"the difference may be that of the mixes{remedy}"
    )


def _aligned(metrics: Sequence[LocalMetric], counts: Sequence[Counts]) -> list[Counts]:
    """Return the reports of each epsilon that a metric offers, in the same order for all."""
    known = sorted({epsilon for metric in metrics for epsilon in metric.levels})
    found = []
    for metric, count in zip(metrics, counts, strict=True):
        row = np.zeros(len(known), dtype=np.int64)
        row[[known.index(epsilon) for epsilon in metric.levels]] = count
        found.append(row)
    return found
