"""Definitions of metrics in one line."""

from typing import Any

from estimators import LocalMetric, define

BY_COUNTRY: dict[str, Any] = {"by": ["country"], "attributes": {"country": ["DE", "FR"]}}


def mean_metric(name: str, mechanism: str, range: Any, levels: Any, **keys: Any) -> LocalMetric:  # noqa: A002
    """Define a metric of kind "mean"."""
    keys |= {"kind": "mean", "mechanism": mechanism, "range": range, "levels": levels}
    return LocalMetric.require(define(name=name, **keys))


def frequency_metric(
    name: str, mechanism: str, categories: Any, levels: Any, **keys: Any
) -> LocalMetric:
    """Define a metric of kind "frequency"."""
    keys |= {"kind": "frequency", "mechanism": mechanism, "categories": categories}
    return LocalMetric.require(define(name=name, levels=levels, **keys))
