"""Maps an instrument's data points to reports: one for each export, or for each window of time."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from opentelemetry.sdk.metrics import export as sdk

from estimators.metrics.metric import Metric, ReportedMetric
from producers.device.base_reporter import BaseReporter
from producers.device.roll_up import RollUp
from producers.ledger.ledger import Ledger

Of: TypeAlias = Literal["mean", "sum", "count", "smallest", "largest"]
SHARES_OF_POINT = ("mean", "sum", "count", "smallest", "largest")
Data: TypeAlias = sdk.Sum | sdk.Gauge | sdk.Histogram | sdk.ExponentialHistogram
Recorded: TypeAlias = sdk.HistogramDataPoint | sdk.ExponentialHistogramDataPoint
Point: TypeAlias = sdk.NumberDataPoint | Recorded


class UnusableError(Exception):
    """Raised if data points have no value to report; they are counted under the word `reason`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def points_of(streams: Iterable[Data]) -> list[Point]:
    """Return all data points of an instrument."""
    return [point for stream in streams for point in stream.data_points]


def is_additive(streams: Sequence[Data], of: Of) -> bool:
    """Return whether the values of several exports may be added up."""
    if isinstance(streams[0], sdk.Histogram | sdk.ExponentialHistogram):
        return of in ("sum", "count")
    return isinstance(streams[0], sdk.Sum) and streams[0].is_monotonic


def value_of(streams: Sequence[Data], of: Of) -> float:
    """Return the value of an instrument, whatever attributes its points have.

    This is what a view without attributes would show: the sum of counters; the latest value of
    gauges; for histograms, the number that `of` names, over all recordings. Raises UnusableError if
    the points are not of one kind, have the wrong temporality, or lack this number.
    """
    _check_data(streams)
    return _value_of_points(streams[0], points_of(streams), of)


def category_of(streams: Sequence[Data], of: Of, attribute: str) -> str:
    """Return the attribute's value for whose data points :func:`value_of` is largest.

    `streams`, `of`: as for :func:`value_of`; `attribute`: the key of the attribute. Raises
    UnusableError like :func:`value_of`; also if no point has the attribute as text, a number or a
    truth value, or no value is above zero.
    """
    _check_data(streams)
    groups = defaultdict[str, list[Point]](list)
    for point in points_of(streams):
        name = (point.attributes or {}).get(attribute)
        if isinstance(name, str | bool | int | float):
            groups[str(name).lower() if isinstance(name, bool) else str(name)].append(point)
    if not groups:
        raise UnusableError("no_attribute", f"expected data points with the attribute {attribute}")
    values = {name: _value_of_points(streams[0], points, of) for name, points in groups.items()}
    largest = max(values.values())
    if not largest > 0:
        raise UnusableError("not_above_zero", "expected a category with a value above zero")
    return next(name for name in sorted(values) if values[name] == largest)


def _check_data(streams: Sequence[Data]) -> None:
    """Raise UnusableError for data whose meaning is not what this module assumes."""
    kinds = {(type(point), isinstance(point, sdk.Sum) and point.is_monotonic) for point in streams}
    if len(kinds) > 1:
        raise UnusableError("several_kinds", "expected instruments of one kind under one name")
    delta = sdk.AggregationTemporality.DELTA
    for stream in streams:
        if isinstance(stream, sdk.Gauge):
            continue
        wants_delta = not isinstance(stream, sdk.Sum) or stream.is_monotonic
        if (stream.aggregation_temporality is delta) != wants_delta:
            raise UnusableError(
                "temporality",
                "expected delta for counters and histograms, and cumulative for up-down counters: "
                "let the reader take the exporter's preferred temporality",
            )


def _value_of_points(kind: Data, points: Sequence[Point], of: Of) -> float:
    """Return the value of all points, which are of one kind."""
    numbers = [point for point in points if isinstance(point, sdk.NumberDataPoint)]
    if isinstance(kind, sdk.Sum):
        return float(sum(point.value for point in numbers))
    if isinstance(kind, sdk.Gauge):
        return float(max(reversed(numbers), key=lambda point: point.time_unix_nano).value)
    recorded = [point for point in points if not isinstance(point, sdk.NumberDataPoint)]
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


@dataclasses.dataclass(frozen=True)
class EachExport:
    """Makes a report in each export in which the instrument has a value.

    A reader exports every minute by default, and each report costs its epsilon: if the levels are
    meant for one report a day, use :class:`Gathered`.

    Parameters
    ----------
    reporter : Reporter or HttpReporter
        Sends the reports.
    epsilon : float
        The largest epsilon that the device's owner allows for one report.
    ledger : Ledger or None
        The owner's account, which refuses reports above its budget; None for no account.
    of : {"mean", "sum", "count", "smallest", "largest"}
        Which number is reported of a histogram's recordings since the last export.
    category : str, optional
        The key of the attribute whose values are the metric's categories: the category with the
        largest value is reported. Required for a metric of categories.
    permanent, changes
        Passed to :meth:`producers.Reporter.report`.

    Raises
    ------
    TypeError, ValueError
        If a parameter cannot be used.
    """

    reporter: BaseReporter
    epsilon: float
    ledger: Ledger | None
    of: Of = "mean"
    category: str | None = None
    permanent: float | None = None
    changes: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.reporter, BaseReporter):
            raise TypeError(f"reporter = {self.reporter!r}: expected a Reporter or HttpReporter")
        _check(self.reporter.metric, self.of, self.category)
        self.reporter.metric.level_of(self.epsilon)

    def take(self, streams: list[Data]) -> None:
        """Report the value of an instrument; raise UnusableError if it has none."""
        self.reporter.report(
            _value(streams, self.of, self.category),
            self.epsilon,
            ledger=self.ledger,
            permanent=self.permanent,
            changes=self.changes,
        )


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Makes a report for each window of a roll-up, from the values of the window's exports.

    The roll-up's reporter sends the report. An export only adds to the window: the SDK exports
    nothing if nothing was measured, so a report at an export would reveal that something was.

    Parameters
    ----------
    roll_up : RollUp
        ``"sum"`` adds up the values of counters, or the sums or counts of histograms, at the
        exports; ``"last"`` and ``"largest"`` take one of the values at the exports; ``"active"``
        says whether a value was above zero.
    of, category
        As for :class:`EachExport`; the roll-up of a metric of categories is ``"last"``.

    Raises
    ------
    TypeError, ValueError
        If a parameter cannot be used.
    """

    roll_up: RollUp
    of: Of = "mean"
    category: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.roll_up, RollUp):
            raise TypeError(f"roll_up = {self.roll_up!r}: expected a RollUp")
        if self.roll_up.how == "count":
            raise ValueError("how = 'count' would count exports: expected another way to gather")
        _check(self.reporter.metric, self.of, self.category)

    @property
    def reporter(self) -> BaseReporter:
        """The roll-up's reporter."""
        return self.roll_up.reporter

    def take(self, streams: list[Data]) -> None:
        """Add the value of an instrument to the present window.

        Raises UnusableError if the instrument has no value, or values of this kind cannot be added
        up.
        """
        value = _value(streams, self.of, self.category)
        if self.roll_up.how == "sum" and not is_additive(streams, self.of):
            raise UnusableError(
                "not_additive",
                'expected a counter, or a histogram with of="sum" or of="count": the sum of other '
                "values means nothing",
            )
        if self.roll_up.how != "active":
            self.roll_up.add(value)
        elif isinstance(value, str) or value > 0:
            self.roll_up.add()


def _value(streams: list[Data], of: Of, category: str | None) -> float | str:
    return value_of(streams, of) if category is None else category_of(streams, of, category)


def _check(metric: Metric, of: Of, category: str | None) -> None:
    """Raise ValueError if a metric does not fit an instrument's values."""
    if of not in SHARES_OF_POINT:
        raise ValueError(f"of = {of!r}: expected one of {', '.join(SHARES_OF_POINT)}")
    if not isinstance(metric, ReportedMetric):
        raise ValueError(f"metric {metric.name!r} is asked in rounds: expected one that is not")
    if metric.dimension is not None:
        raise ValueError(
            f"metric {metric.name!r} has vectors: expected one of numbers or categories"
        )
    if metric.domain.of_numbers and category is not None:
        raise ValueError(
            f"category = {category!r} for {metric.name!r}: expected none, for a metric of numbers"
        )
    if not metric.domain.of_numbers and category is None:
        raise ValueError(
            f"metric {metric.name!r} has categories: expected category = the key of the attribute "
            "whose values they are"
        )
