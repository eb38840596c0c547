"""Checks that two metrics can be compared: their answers are numbers of the same meaning."""

from __future__ import annotations

import math

from estimators.comparison.arms import STANDARD
from estimators.errors import meant
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.shapes import Shape

KINDS_OF = ("difference", "ratio")
BOUNDS = ("fixed", "anytime")


def checked(
    metric: Metric,
    other: Metric | None,
    of: str,
    bound: str,
    weights: str,
    target: str,
    split: float | None,
) -> tuple[LocalMetric, LocalMetric]:
    """Return both metrics if they can be compared in this way.

    Parameters
    ----------
    metric : Metric
    other : Metric or None
    of, bound, weights, target : str
    split : float or None

    Raises
    ------
    ValueError
        If they cannot, with the reason.
    """
    for key, value, known in (("of", of, KINDS_OF), ("bound", bound, BOUNDS)):
        if value not in known:
            raise ValueError(f"{key} = {value!r}: {meant(value, known)}")
    if split is not None and not (bound == "anytime" and 0 < split < math.inf):
        raise ValueError(
            f"split = {split!r}: expected a ratio of reports, a to b, above 0, with "
            "bound = 'anytime'"
        )
    one, two = (
        LocalMetric.require(_with_numbers(m)) for m in (metric, metric if other is None else other)
    )
    if other is not None:
        for key, found, expected in (
            ("kind", two.kind, one.kind),
            ("range", two.domain.unit, one.domain.unit),
            ("labels", _labels(two), _labels(one)),
            ("levels", tuple(two.levels), tuple(one.levels)),
        ):
            if found != expected and (key != "levels" or weights == STANDARD):
                raise ValueError(
                    f"metrics {one.name!r} and {two.name!r} have different {key}: expected the "
                    "same, so that a difference means something"
                )
    if of == "ratio":
        if one.kind == "vector_mean":
            raise ValueError(f"of = 'ratio': metric {one.name!r} is a vector; use 'difference'")
        if one.domain.ends[0] < 0:
            raise ValueError(
                f"of = 'ratio': the range of metric {one.name!r} begins at "
                f"{one.domain.ends[0]:g}, below 0, where a ratio means nothing; use 'difference'"
            )
    if weights == STANDARD and (bound != "fixed" or target != "population"):
        raise ValueError(
            "weights = 'standard': expected bound = 'fixed' and target = 'population'; the shares "
            "follow both arms' mixes of levels, which may still change"
        )
    return one, two


def _with_numbers(metric: Metric) -> Metric:
    """Return the metric if its answers are numbers with bounds."""
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
    """Return the names of a metric's numbers; none of a distribution, whose quantiles are asked."""
    return () if metric.shape is Shape.DISTRIBUTION else metric.labels


def are_independent(
    one: LocalMetric, two: LocalMetric, target: str, independent: bool | None
) -> bool:
    """Return whether the arms' reports are independent, or at least the noise that counts.

    Parameters
    ----------
    one, two : LocalMetric
    target : str
    independent : bool or None
        What the caller states.
    """
    if one.memoized or two.memoized:
        return False
    if target == "sample":
        return True
    return one.name == two.name if independent is None else independent
