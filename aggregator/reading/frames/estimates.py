"""Tables and pictures of estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from aggregator.reading.frames.columns import (
    ATTRIBUTE_PREFIX,
    AXIS_PREFIX,
    ESTIMATE_COLUMNS,
    NUMBER_COLUMNS,
    STATEMENT_COLUMNS,
    WINDOW_COLUMNS,
)
from aggregator.reading.frames.frame import Frame
from aggregator.reading.frames.pictures import Intervals, LabelledInterval, Picture, Pictured
from aggregator.reading.serialization import Privacy, privacy_of
from aggregator.reading.window import Window
from aggregator.timestamps import iso
from estimators import DistributionEstimate, Estimate
from estimators.rounding import certainty
from estimators.shapes import Shape

EDGE_COLUMNS = (*WINDOW_COLUMNS, "edge", *NUMBER_COLUMNS[1:], *STATEMENT_COLUMNS)
"""The columns of a table of a distribution function."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowEstimate(Pictured, Estimate):
    """An estimate with its window, from which the sums were removed."""

    window: Window = dataclasses.field(repr=False)
    shares: WindowEstimate | None = None

    def to_frame(self) -> Frame:
        """Return a table with one row for each number."""
        return estimate_frame(self.window, self)

    @property
    def crowd_privacy(self) -> Privacy | None:
        """How private a report is in a pane, if the metric has a crowd; else None."""
        return privacy_of(self.window.metric)

    @property
    def picture(self) -> Picture:
        """The picture of the intervals of the estimate's numbers."""
        shown, metric = self.numbers, self.window.metric
        rows = zip(_labels(shown), *_columns(shown), strict=True)
        return Intervals(
            metric.heading,
            picture_lines(self.window, self),
            tuple(LabelledInterval(label or "", *row) for label, *row in rows),
            metric.unit,
            of_quantiles=metric.domain.names == "quantiles",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowDistribution(DistributionEstimate, WindowEstimate):
    """An estimate of a distribution, and its window."""

    def cdf_to_frame(self) -> Frame:
        """Return the distribution function as a table, with one row for each edge."""
        window, attributes = self.window, conditions(self.window)
        edges, unbiased = self.edges.tolist(), np.asarray(self.value).tolist()
        metric, kind, _, *window_edges = window_values(window)  # a share has no unit
        named = (metric, kind, "", *window_edges, *attributes.values())
        counted = (self.reports, self.status, *statement_values(self))
        rows = (
            (*named, *numbers, *counted)
            for numbers in zip(edges, *_columns(self), unbiased, strict=True)
        )
        return Frame.of(with_conditions(EDGE_COLUMNS, attributes), rows)


def with_window(window: Window, estimate: Estimate) -> WindowEstimate:
    """Return an estimate together with its window."""
    fields = {field.name: getattr(estimate, field.name) for field in dataclasses.fields(estimate)}
    kind = WindowDistribution if isinstance(estimate, DistributionEstimate) else WindowEstimate
    fields["shares"] = estimate.shares and with_window(window, estimate.shares)
    return kind(**fields, window=window.bare())


def estimate_frame(window: Window, estimate: Estimate, top: int | None = None) -> Frame:
    """Return an estimate as a table.

    `window`: the window; `estimate`: its estimate; `top`: the most categories or coordinates, of
    which the largest are shown; by default all.
    """
    attributes, shown, axes = conditions(window), estimate.numbers, window.metric.axes
    rows = (
        (
            *(*window_values(window), *attributes.values(), *numbers, *statement_values(estimate)),
            *(() if axes is None else axes.values_in(numbers[0])),
        )
        for numbers in number_rows(window, shown if top is None else shown.top(top))
    )
    columns = (f"{AXIS_PREFIX}{axis}" for axis in (() if axes is None else axes.values))
    return Frame.of((*with_conditions(ESTIMATE_COLUMNS, attributes), *columns), rows)


def number_rows(window: Window, estimate: Estimate) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the columns NUMBER_COLUMNS, for each number of an estimate."""
    shown, shape = estimate.numbers, window.metric.shape
    has_unbiased = shape in (Shape.NUMBER, Shape.NAMED_NUMBERS)
    unbiased = np.atleast_1d(np.asarray(shown.value)).tolist()
    for label, numbers, raw in zip(
        _labels(shown), zip(*_columns(shown), strict=True), unbiased, strict=True
    ):
        yield label, *numbers, raw if has_unbiased else None, estimate.reports, estimate.status


def window_values(window: Window) -> tuple[Any, ...]:
    """Return the values of the columns WINDOW_COLUMNS."""
    metric = window.metric
    return metric.name, metric.kind, metric.unit, window.start_ms, window.end_ms


def statement_values(estimate: Estimate) -> tuple[Any, ...]:
    """Return the values of the columns STATEMENT_COLUMNS."""
    return estimate.beta, estimate.bound, estimate.target, estimate.covers, estimate.policy


def conditions(window: Window) -> dict[str, str | None]:
    """Return the values of attributes that all reports of a window share, by column name."""
    return {} if window.grouping is None else by_columns(window.grouping.conditions.items())


def by_columns(values: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    """Return the values of attributes, by the names of their columns."""
    return {f"{ATTRIBUTE_PREFIX}{name}": value for name, value in values}


def picture_lines(window: Window, estimate: Estimate) -> tuple[str, ...]:
    """Return the lines below the title of an estimate's picture."""
    begin, end = iso(window.start_ms) or "the first report", iso(window.end_ms) or "now"
    lines = (
        f"{estimate.status.replace('_', ' ')}; {estimate.reports:,} reports from {begin} to {end}",
        f"{certainty(estimate.beta)} {estimate.bound} bounds, {estimate.target}; "
        f"covers {estimate.covers}",
    )
    named = ", ".join(
        f"{column.removeprefix(ATTRIBUTE_PREFIX)} = {value or 'none'}"
        for column, value in conditions(window).items()
    )
    return (*lines, named) if named else lines


def with_conditions(names: tuple[str, ...], attributes: dict[str, str | None]) -> tuple[str, ...]:
    """Return names of columns, with the names of attributes' columns after the window's columns."""
    return (*names[: len(WINDOW_COLUMNS)], *attributes, *names[len(WINDOW_COLUMNS) :])


def _labels(estimate: Estimate) -> list[str | None]:
    return [*estimate.labels] if np.ndim(estimate.value) else [None]


def _columns(estimate: Estimate) -> list[list[float]]:
    """Return the list of values, the list of lower bounds and the list of upper bounds."""
    return [
        np.atleast_1d(np.asarray(x, dtype=np.float64)).tolist()
        for x in (estimate.shown, estimate.lower, estimate.upper)
    ]
