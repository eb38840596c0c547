"""Plans for reading and answering metrics, one for each way of collection."""

from __future__ import annotations

from typing import Any

from aggregator.feature import features
from aggregator.reading.plans.base import ReadingPlan
from aggregator.reading.plans.local import LocalPlan
from estimators import Metric

__all__ = ["LocalPlan", "ReadingPlan", "plan_for"]


def plan_for(metric: Metric) -> type[ReadingPlan[Any]]:
    """Return the plan for a metric: a feature's, or by default that of local privacy."""
    plans = (feature.plan(metric) for feature in features())
    return next((plan for plan in plans if plan is not None), LocalPlan)
