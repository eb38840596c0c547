"""Comparisons in the form that `--json` and HTTP have."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.features.comparisons.query import ArmAnswer, Compared, CompareQuery
from aggregator.reading.serialization import Moment, Numbers, Status, Value, plain, values
from aggregator.timestamps import iso

P_VALUES = {"fixed": "for a look at the end", "anytime": "may be looked at at any time"}


class ComparedArm(msgspec.Struct, frozen=True, kw_only=True):
    """One arm of a comparison.

    Only the difference has bounds, unless the question has `each`: then `lower` and `upper` of both
    arms and the bounds of the difference hold together with probability 1 - beta.
    """

    metric: str
    where: dict[str, Value]
    start: Moment | None = msgspec.field(name="from")
    end: Moment | None = msgspec.field(name="to")
    value: Numbers
    reports: int
    lower: Numbers | UnsetType = UNSET
    upper: Numbers | UnsetType = UNSET


class ComparisonAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """By how much arm a exceeds arm b (`of`: "difference"), or the "ratio" of a to b.

    `lower` and `upper` hold with probability 1 - beta, for all `simultaneous` comparisons together.
    `p_value` is at most beta exactly if 0 (for a ratio, 1) is outside of these bounds, and
    `decided` says so; `p_value_kind` says when the p-value is valid. `law` is "joint" if the
    reports of both arms are independent, and "union" otherwise. The upper bound of a ratio is null
    if it is infinite. The numbers of a distribution are its `quantiles`, or `shares` below edges.
    All numbers are null if an arm has fewer reports than `minimum_reports`. `rest` says whether b
    is all reports of the window that are not in a.
    """

    metric: str
    unit: str
    of: str
    status: Status
    value: Numbers
    lower: Numbers
    upper: Numbers
    bound: str
    beta: float
    covers: str
    law: str
    p_value: Numbers
    p_value_kind: str
    decided: bool
    split: float | None
    target: str
    policy: str
    simultaneous: int
    a: ComparedArm
    b: ComparedArm
    rest: bool
    warning: str
    chosen_among: int | UnsetType = UNSET
    categories: list[str] | UnsetType = UNSET
    coordinates: list[str] | UnsetType = UNSET
    quantiles: list[str] | UnsetType = UNSET
    shares: list[str] | UnsetType = UNSET


class ComparisonsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The requested comparisons: one, or each slice with the rest."""

    comparisons: list[ComparisonAnswer]


def comparison_answer(compared: Compared) -> ComparisonAnswer:
    """Return the JSON form of a comparison, as a struct."""
    query, metric = compared.query, compared.a.window.metric
    names = {"shares" if query.below else metric.domain.names: compared.labels}
    return ComparisonAnswer(
        metric=metric.name,
        unit=compared.unit,
        of=query.of,
        status=compared.status,  # type: ignore[arg-type]
        value=plain(compared.value),
        lower=plain(compared.lower),
        upper=plain(compared.upper),
        bound=compared.bound,
        beta=query.a.beta,
        covers=compared.covers,
        law=compared.law,
        p_value=plain(compared.p_value),
        p_value_kind=P_VALUES[compared.bound],
        decided=compared.decided,
        split=query.split,
        target=query.a.target,
        policy=compared.policy,
        simultaneous=compared.simultaneous,
        a=_arm(compared.a, query),
        b=_arm(compared.b, query),
        rest=query.rest,
        warning="" if compared.comparison is None else compared.comparison.warning,
        chosen_among=compared.chosen_among if compared.chosen_among > 1 else UNSET,
        **(names if compared.labels or metric.domain.names else {}),
    )


def comparisons_answer(comparisons: Iterable[Compared]) -> ComparisonsAnswer:
    """Return the JSON form of comparisons, as a struct."""
    return ComparisonsAnswer(comparisons=[*map(comparison_answer, comparisons)])


def _arm(arm: ArmAnswer, query: CompareQuery) -> ComparedArm:
    estimate = arm.estimate
    return ComparedArm(
        metric=arm.metric,
        where=values(arm.where),
        start=iso(arm.window.start_ms),
        end=iso(arm.window.end_ms),
        value=plain(estimate.value),
        reports=estimate.reports,
        lower=plain(estimate.lower) if query.each else UNSET,
        upper=plain(estimate.upper) if query.each else UNSET,
    )
