"""Plans for reading and answering metrics, one for each way of collection."""

from __future__ import annotations

import functools
from typing import Any

from aggregator.feature import features
from aggregator.reading.plans.base import ReadingPlan
from aggregator.reading.plans.local import LocalPlan
from estimators import Metric

__all__ = ["LocalPlan", "ReadingPlan", "plan_for"]


@functools.cache
def plan_for(metric_class: type[Metric]) -> type[ReadingPlan[Any]]:
    """Return the plan for a class of metrics: that of a feature, or else that of local metrics."""
    plans = (feature.plan(metric_class) for feature in features())
    return next((plan for plan in plans if plan is not None), LocalPlan)
