"""Checks that two metrics can be compared: their answers must be numbers with the same meaning."""

from __future__ import annotations

import math

from estimators.comparison.arms import STANDARD_WEIGHTS
from estimators.errors import meant
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.shapes import Shape

KINDS_OF = ("difference", "ratio")
BOUND_KINDS = ("fixed", "anytime")


def require_comparable(
    metric: Metric,
    second_metric: Metric | None,
    of: str,
    bound: str,
    weights: str,
    target: str,
    split: float | None,
) -> tuple[LocalMetric, LocalMetric]:
    """Return the metrics of both arms if the requested comparison is possible.

    `metric`, `second_metric`: the metrics of a and of b; None: b has that of a; `of`, `bound`,
    `weights`, `target`, `split`: as for :func:`estimators.comparison.comparison.compare`. Raises
    ValueError, with the reason, if they cannot be compared.
    """
    for key, value, allowed in (("of", of, KINDS_OF), ("bound", bound, BOUND_KINDS)):
        if value not in allowed:
            raise ValueError(f"{key} = {value!r}: {meant(value, allowed)}")
    if split is not None and not (bound == "anytime" and 0 < split < math.inf):
        raise ValueError(
            f"split = {split!r}: expected a ratio of reports, a to b, above 0, with "
            "bound = 'anytime'"
        )
    metrics = metric, metric if second_metric is None else second_metric
    a, b = (LocalMetric.require(_with_numbers(each)) for each in metrics)
    if second_metric is not None:
        for key, actual, expected in (
            ("kind", b.kind, a.kind),
            ("range", b.domain.unit, a.domain.unit),
            ("labels", _labels(b), _labels(a)),
            ("levels", tuple(b.levels), tuple(a.levels)),
        ):
            if actual != expected and (key != "levels" or weights == STANDARD_WEIGHTS):
                raise ValueError(
                    f"metrics {a.name!r} and {b.name!r} have different {key}: expected the "
                    "same, so that a difference means something"
                )
    if of == "ratio":
        if a.kind == "vector_mean":
            raise ValueError(f"of = 'ratio': expected 'difference': {a.name!r} is a vector mean")
        refuse_negative(a, a.domain.ends[0])
    if weights == STANDARD_WEIGHTS and (bound != "fixed" or target != "population"):
        raise ValueError(
            "weights = 'standard': expected bound = 'fixed' and target = 'population'; the shares "
            "follow both arms' mixes of levels, which may still change"
        )
    return a, b


def refuse_negative(metric: LocalMetric, lowest: float) -> None:
    """Raise ValueError if the range of a metric whose ratio is asked for begins below 0.

    `lowest`: the least value of the range.
    """
    if lowest < 0:
        raise ValueError(
            "of = 'ratio': expected 'difference': a ratio needs numbers of at least 0, and the "
            f"range of metric {metric.name!r} begins at {lowest:g}"
        )


def _with_numbers(metric: Metric) -> Metric:
    """Return the metric if its answers are numbers with bounds; else raise ValueError."""
    if metric.trust == "central":
        raise ValueError(
            f"metric {metric.name!r} {metric.answered}: releases are not compared, because each "
            "has noise of its own"
        )
    if not isinstance(metric, LocalMetric):
        raise ValueError(
            f"metric {metric.name!r} is a {metric.kind}, which has no mean to compare: expected a "
            "mean, a vector mean, frequencies or a distribution"
        )
    return metric


def _labels(metric: LocalMetric) -> tuple[str, ...]:
    """Return the names of a metric's numbers; none for a distribution, whose numbers vary."""
    return () if metric.shape is Shape.DISTRIBUTION else metric.labels


def are_independent(a: LocalMetric, b: LocalMetric, target: str, independent: bool | None) -> bool:
    """Return whether the arms' reports (for the target "sample", their noise) are independent.

    `a`, `b`: the arms' metrics; `target`: as in :class:`estimators.question.Question`;
    `independent`: whether the caller says that they are; None if the caller does not say.
    """
    if a.memoized or b.memoized:
        return False
    if target == "sample":
        return True
    return a.name == b.name if independent is None else independent
