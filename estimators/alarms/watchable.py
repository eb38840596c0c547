"""Which metrics a detector can watch."""

from __future__ import annotations

import numpy as np

from estimators.comparison.arms import has_law
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.question import Question
from estimators.shapes import Shape


def check_watchable(metric: Metric) -> None:
    """Refuse a metric that no detector can watch.

    Raises ValueError, with the reason.
    """
    watched = ("mean", "frequency", "distribution")
    if not isinstance(metric, LocalMetric) or metric.kind not in watched:
        raise ValueError(
            f"metric {metric.name!r} is a {metric.kind} with trust {metric.trust!r}: expected a "
            "mean, frequencies or a distribution, with local privacy"
        )
    if metric.memoized:
        raise ValueError(
            f"metric {metric.name!r} is memoized: expected one that is not, because its panes "
            "repeat each other's answers"
        )
    if metric.shape is Shape.DISTRIBUTION:
        return
    question = Question(asked=np.array([0]) if metric.labels else None)
    if not has_law(metric, question, ratio=False):
        raise ValueError(
            f"metric {metric.name!r} has the mechanism {metric.randomizer.name!r}: expected one "
            "whose numbers have no bias that moves with other values, as collisions of hashes "
            "(count_sketch, projective_sketch, prefix_tree) and random signs (projection with "
            "rows) have"
        )
