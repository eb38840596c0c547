"""Comparisons as plain values: one form for `--json` and HTTP."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.features.comparisons.compared import ArmAnswer, Compared, CompareQuery
from aggregator.reading.serialization import Moment, Numbers, Status, plain
from aggregator.reading.slices.answers import Value, values
from aggregator.timestamps import iso

P_VALUES = {"fixed": "for a look at the end", "anytime": "may be looked at at any time"}


class ComparedArm(msgspec.Struct, frozen=True, kw_only=True):
    """One arm of a comparison.

    Only the difference has bounds, unless `each` was asked for: `lower` and `upper` then share beta
    with it.
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
    """By how much one arm exceeds another (`of`: "difference"), or their "ratio".

    `lower` and `upper` hold with probability 1 - beta, over all `simultaneous` comparisons
    together. `p_value` is at most beta exactly where 0 (for a ratio: 1) is outside of them, and
    `decided` says so; `p_value_kind` says how often it may be looked at. `law` is "joint" where the
    arms' reports are independent, else "union". An upper bound of a ratio is null where it is
    infinite. Of a distribution, the numbers are its `quantiles`, or `shares` below edges. All
    numbers are null where an arm has fewer reports than `minimum_reports`. If b is
    "rest", it is all reports of the window that are not in a.
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
    """The comparisons that were asked for: one, or each slice with the rest."""

    comparisons: list[ComparisonAnswer]


def comparison_answer(found: Compared) -> ComparisonAnswer:
    """Return a comparison as plain values."""
    query, metric = found.query, found.a.window.metric
    names = {"shares" if query.below else metric.domain.names: found.labels}
    return ComparisonAnswer(
        metric=metric.name,
        unit=found.unit,
        of=query.of,
        status=found.status,  # type: ignore[arg-type]
        value=plain(found.value),
        lower=plain(found.lower),
        upper=plain(found.upper),
        bound=found.bound,
        beta=query.a.beta,
        covers=found.covers,
        law=found.law,
        p_value=plain(found.p_value),
        p_value_kind=P_VALUES[found.bound],
        decided=found.decided,
        split=query.split,
        target=query.a.target,
        policy=found.policy,
        simultaneous=found.simultaneous,
        a=_arm(found.a, query),
        b=_arm(found.b, query),
        rest=query.rest,
        warning="" if found.comparison is None else found.comparison.warning,
        chosen_among=found.chosen_among if found.chosen_among > 1 else UNSET,
        **(names if found.labels or metric.domain.names else {}),
    )


def as_dicts(found: list[Compared]) -> dict[str, Any]:
    """Return comparisons as a dict of the names in JSON."""
    answer = ComparisonsAnswer(comparisons=[comparison_answer(one) for one in found])
    shown: dict[str, Any] = msgspec.to_builtins(answer)
    return shown


def _arm(arm: ArmAnswer, query: CompareQuery) -> ComparedArm:
    found = arm.estimate
    return ComparedArm(
        metric=arm.metric,
        where=values(arm.where),
        start=iso(arm.window.start_ms),
        end=iso(arm.window.end_ms),
        value=plain(found.value),
        reports=found.reports,
        lower=plain(found.lower) if query.each else UNSET,
        upper=plain(found.upper) if query.each else UNSET,
    )
