"""Plans for reading: one for each way of collecting, chosen by the metric's class."""

from __future__ import annotations

from typing import Any

from aggregator.reading.plans.base import Plan
from aggregator.reading.plans.local import LocalPlan
from aggregator.reading.plans.search import SearchPlan
from aggregator.reading.plans.trusted import TrustedPlan
from estimators import LocalMetric, Metric, SearchMetric, TrustedMetric

PLANS: dict[type[Metric], type[Plan[Any]]] = {
    LocalMetric: LocalPlan,
    TrustedMetric: TrustedPlan,
    SearchMetric: SearchPlan,
}

__all__ = ["PLANS", "LocalPlan", "Plan", "SearchPlan", "TrustedPlan", "plan_for"]


def plan_for(metric: Metric) -> type[Plan[Any]]:
    """Return the plan for a metric's way of collecting."""
    return next(PLANS[one] for one in type(metric).__mro__ if one in PLANS)
