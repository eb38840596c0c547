"""Reduces an instrument's data points since the last export to one value."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    NumberDataPoint,
    Sum,
)

Of: TypeAlias = Literal["mean", "sum", "count", "smallest", "largest"]
SHARES_OF_POINT = ("mean", "sum", "count", "smallest", "largest")
Data: TypeAlias = Sum | Gauge | Histogram | ExponentialHistogram
Recorded: TypeAlias = HistogramDataPoint | ExponentialHistogramDataPoint
Point: TypeAlias = NumberDataPoint | Recorded


class UnusableError(Exception):
    """Raised if data points have no value to report; they are counted under the word `reason`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def points_of(data: Iterable[Data]) -> list[Point]:
    """Return all data points of an instrument."""
    return [point for stream in data for point in stream.data_points]


def is_additive(data: Sequence[Data], of: Of) -> bool:
    """Return whether the values of several exports may be added up."""
    if isinstance(data[0], Histogram | ExponentialHistogram):
        return of in ("sum", "count")
    return isinstance(data[0], Sum) and data[0].is_monotonic


def value_of(data: Sequence[Data], of: Of) -> float:
    """Return the value of an instrument, whatever attributes its points have.

    This is what a view without attributes would show: the sum of counters; the latest value of
    gauges; for histograms, the number that `of` names, over all recordings. Raises UnusableError if
    the points are not of one kind, have the wrong temporality, or lack this number.
    """
    _check(data)
    return _joined(data[0], points_of(data), of)


def category_of(data: Sequence[Data], of: Of, attribute: str) -> str:
    """Return the attribute's value for whose data points :func:`value_of` is largest.

    `data`, `of`: as for :func:`value_of`; `attribute`: the key of the attribute. Raises
    UnusableError like :func:`value_of`; also if no point has the attribute as text, a number or a
    truth value, or no value is above zero.
    """
    _check(data)
    groups = defaultdict[str, list[Point]](list)
    for point in points_of(data):
        name = (point.attributes or {}).get(attribute)
        if isinstance(name, str | bool | int | float):
            groups[str(name).lower() if isinstance(name, bool) else str(name)].append(point)
    if not groups:
        raise UnusableError("no_attribute", f"expected data points with the attribute {attribute}")
    values = {name: _joined(data[0], points, of) for name, points in groups.items()}
    largest = max(values.values())
    if not largest > 0:
        raise UnusableError("not_above_zero", "expected a category with a value above zero")
    return next(name for name in sorted(values) if values[name] == largest)


def _check(data: Sequence[Data]) -> None:
    """Raise UnusableError for data whose meaning is not what this module assumes."""
    kinds = {(type(point), isinstance(point, Sum) and point.is_monotonic) for point in data}
    if len(kinds) > 1:
        raise UnusableError("several_kinds", "expected instruments of one kind under one name")
    delta = AggregationTemporality.DELTA
    for stream in data:
        if isinstance(stream, Gauge):
            continue
        wants_delta = not isinstance(stream, Sum) or stream.is_monotonic
        if (stream.aggregation_temporality is delta) != wants_delta:
            raise UnusableError(
                "temporality",
                "expected delta for counters and histograms, and cumulative for up-down counters: "
                "let the reader take the exporter's preferred temporality",
            )


def _joined(kind: Data, points: Sequence[Point], of: Of) -> float:
    """Return the value of all points, which are of one kind."""
    numbers = [point for point in points if isinstance(point, NumberDataPoint)]
    if isinstance(kind, Sum):
        return float(sum(point.value for point in numbers))
    if isinstance(kind, Gauge):
        return float(max(reversed(numbers), key=lambda point: point.time_unix_nano).value)
    recorded = [point for point in points if not isinstance(point, NumberDataPoint)]
    count = sum(point.count for point in recorded)
    if not count:
        raise UnusableError("empty", "expected recordings")
    values = {
        "count": count,
        "sum": sum(point.sum for point in recorded),
        "mean": sum(point.sum for point in recorded) / count,
        "smallest": min(point.min for point in recorded),
        "largest": max(point.max for point in recorded),
    }
    value = float(values[of])
    if not math.isfinite(value):
        raise UnusableError("not_recorded", f"expected a histogram that records its {of} value")
    return value
