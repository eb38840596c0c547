"""Plans for reading: how metrics of one way of collecting are read and answered."""

from __future__ import annotations

import functools
from typing import Any

from aggregator.feature import features
from aggregator.reading.plans.base import Plan
from aggregator.reading.plans.local import LocalPlan
from estimators import Metric

__all__ = ["LocalPlan", "Plan", "plan_for"]


@functools.cache
def plan_for(collected: type[Metric]) -> type[Plan[Any]]:
    """Return the plan for a class of metrics: that of a feature, or else that of local privacy."""
    plans = (feature.plan(collected) for feature in features())
    return next((plan for plan in plans if plan is not None), LocalPlan)
