"""The slices of a window by attributes of devices: estimates, JSON, tables and pictures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.reading.coverage import coverage_text
from aggregator.reading.frames.columns import (
    ATTRIBUTE_PREFIX,
    NUMBER_COLUMNS,
    STATEMENT_COLUMNS,
    WINDOW_COLUMNS,
)
from aggregator.reading.frames.estimates import by_columns, number_rows, window_values
from aggregator.reading.frames.frame import Frame
from aggregator.reading.frames.pictures import Intervals, LabelledInterval, Picture, Pictured
from aggregator.reading.grouping import Slice
from aggregator.reading.query import Query
from aggregator.reading.serialization import (
    Moment,
    Numbers,
    Status,
    Value,
    named,
    plain_numbers,
    values,
)
from aggregator.reading.window import Window
from aggregator.state.watermark import NO_TIME
from aggregator.timestamps import iso
from estimators import Estimate
from estimators.metrics.attributes import NO_VALUE
from estimators.rounding import certainty


@dataclasses.dataclass(frozen=True)
class SliceEstimate:
    """A slice, its number of reports, and its estimate; None if it has too few reports for one."""

    slice: Slice
    reports: int
    estimate: Estimate | None


@dataclasses.dataclass(frozen=True)
class Slices(Pictured):
    """The slices of a metric by attributes of devices, in one window.

    Attributes
    ----------
    slices : tuple of SliceEstimate
        The slices, those with most reports first, but those with an undeclared or no value last.
    simultaneous : int
        The number of slices for which the bounds hold together.
    left_out : int
        The number of slices with reports that are not among `slices`.
    """

    window: Window
    query: Query
    slices: tuple[SliceEstimate, ...]
    simultaneous: int
    left_out: int

    def first(self, count: int) -> Slices:
        """Return only the first `count` slices; the others count as left out."""
        first_slices = self.slices[:count]
        left_out = self.left_out + len(self.slices) - len(first_slices)
        return dataclasses.replace(self, slices=first_slices, left_out=left_out)

    def to_frame(self) -> Frame:
        """Return a table with one row for each combination of slice and number."""
        window, query = self.window, self.query
        labels, _ = window.metric.domain.select(query.categories)
        names = [f"{ATTRIBUTE_PREFIX}{name}" for name in query.by]
        fixed = by_columns(query.conditions)
        rows = []
        for slice_estimate in self.slices:
            numbers: Iterable[tuple[Any, ...]] = (
                (label, None, None, None, None, slice_estimate.reports, "too_few_reports")
                for label in (labels if window.metric.domain.names else [None])
            )
            if slice_estimate.estimate is not None:
                numbers = number_rows(window, slice_estimate.estimate)
            by = (slice_estimate.slice[name] for name in query.by)
            row_head = (*window_values(window), *by, *fixed.values())
            stated = (query.beta, self.bound, query.target, self.covers, self.policy)
            rows += [(*row_head, *number, *stated, self.coverage) for number in numbers]
        return Frame.of(
            (*WINDOW_COLUMNS, *names, *fixed, *NUMBER_COLUMNS, *STATEMENT_COLUMNS, "coverage"), rows
        )

    @property
    def picture(self) -> Picture:
        """The picture of the slices' intervals, one below the other."""
        metric, by = self.window.metric, [f"{ATTRIBUTE_PREFIX}{name}" for name in self.query.by]
        frame = self.to_frame()
        words = [[NO_VALUE if word is None else word for word in frame[name]] for name in by]
        labels = [" · ".join(filter(None, row)) for row in zip(*words, frame["label"], strict=True)]
        columns = ([math.nan if x is None else x for x in frame[n]] for n in NUMBER_COLUMNS[1:4])
        rows = tuple(LabelledInterval(*row) for row in zip(labels, *columns, strict=True))
        begin, end = iso(self.window.start_ms) or "the first report", iso(self.window.end_ms)
        facts = (
            f"{self.status.replace('_', ' ')}; from {begin} to {end or 'now'}",
            f"{certainty(self.query.beta)} {self.bound} bounds, {self.query.target}; "
            f"covers {self.covers}",
        )
        return Intervals(metric.heading, facts, rows, metric.unit)

    @property
    def bound(self) -> str:
        """The kind of the bounds: fixed, anytime or normal."""
        return self.window.bound if self.query.bound == "auto" else self.query.bound

    @property
    def policy(self) -> str:
        """The weight policy of the estimates."""
        return self.window.policy if self.query.weights is None else self.query.weights

    @property
    def covers(self) -> str:
        """What the bounds cover; "" if no slice has bounds."""
        estimate = next((s.estimate for s in self.slices if s.estimate is not None), None)
        if estimate is None:
            return ""
        together = f", for {self.simultaneous} slices together" if self.simultaneous > 1 else ""
        return coverage_text(self.window, estimate, self.query) + together

    @property
    def status(self) -> str:
        """The status of the window."""
        return self.window.status

    @property
    def coverage(self) -> float | None:
        """The share of the window's reports that tables of slices have; None if unknown."""
        return self.window.coverage


class SliceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A slice. Its numbers are null if it has fewer reports than `minimum_reports`."""

    slice: dict[str, Value]
    reports: int
    status: Status
    value: Numbers
    lower: Numbers
    upper: Numbers
    unbiased: Numbers


class SlicesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about a metric by attributes of devices, for a window of event time.

    There is an entry for each combination of values of `by` that has reports, among the reports
    whose attributes have the values in `where`. Slices with most reports come first; those with a
    value that is not declared, or without a value, come last. `left_out` slices are not shown. A
    value is null if the devices sent none, and `{"other": true}` if it is not declared. The bounds
    of all `simultaneous` slices hold together with probability 1 - beta. `coverage` is the share of
    the window's reports that tables of slices have; null if unknown. The other fields are those of
    an answer.
    """

    metric: str
    unit: str
    kind: str
    by: list[str]
    where: dict[str, Value]
    status: Status
    start: Moment | None = msgspec.field(name="from")
    end: Moment | None = msgspec.field(name="to")
    updated: Moment | None
    coverage: float | None
    beta: float
    bound: str
    covers: str
    target: str
    policy: str
    simultaneous: int
    slices: list[SliceAnswer]
    left_out: int
    categories: list[str] | UnsetType = UNSET
    coordinates: list[str] | UnsetType = UNSET
    quantiles: list[str] | UnsetType = UNSET


def slices_answer(slices: Slices) -> SlicesAnswer:
    """Return the JSON form of the estimates of slices, as a struct."""
    window, query = slices.window, slices.query
    metric = window.metric
    labels, _ = metric.domain.select(query.categories)
    return SlicesAnswer(
        metric=metric.name,
        unit=metric.unit,
        kind=metric.kind,
        by=list(query.by),
        where=values(dict(query.conditions)),
        status=slices.status,  # type: ignore[arg-type]
        start=iso(window.start_ms),
        end=iso(window.end_ms),
        updated=iso(None if window.arrived_ms == NO_TIME else window.arrived_ms),
        coverage=slices.coverage,
        beta=query.beta,
        bound=slices.bound,
        covers=slices.covers,
        target=query.target,
        policy=slices.policy,
        simultaneous=slices.simultaneous,
        slices=[_slice(slice_estimate) for slice_estimate in slices.slices],
        left_out=slices.left_out,
        **named(metric, labels),
    )


def _slice(slice_estimate: SliceEstimate) -> SliceAnswer:
    estimate = None if slice_estimate.estimate is None else slice_estimate.estimate.numbers
    return SliceAnswer(
        slice=values(slice_estimate.slice),
        reports=slice_estimate.reports,
        status="too_few_reports" if estimate is None else estimate.status,  # type: ignore[arg-type]
        **plain_numbers(estimate),
    )
