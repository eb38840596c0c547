"""Estimates over a window: their tables and pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from aggregator.reading.frames.columns import BY, ESTIMATE, NUMBER, STATEMENT, WINDOW
from aggregator.reading.frames.frame import Frame
from aggregator.reading.frames.pictures import Interval, Intervals, Picture, Pictured
from aggregator.reading.windows import Window
from aggregator.timestamps import iso
from estimators import DistributionEstimate, Estimate
from estimators.rounding import certainty
from estimators.shapes import Shape

EDGES = (*WINDOW, "edge", *NUMBER[1:], *STATEMENT)
"""The columns of a distribution function."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowEstimate(Pictured, Estimate):
    """An estimate together with the window that it is of.

    Attributes
    ----------
    window : Window
        Its metric and stretch of event time; without the sums.
    """

    window: Window = dataclasses.field(repr=False)

    def to_frame(self) -> Frame:
        """Return it as a table: a row for each of its numbers."""
        return estimate_frame(self.window, self)

    @property
    def picture(self) -> Picture:
        """Its intervals."""
        shown, metric = self.numbers, self.window.metric
        title = f"{metric.name}: {metric.description or metric.kind}"
        return Intervals(title, facts(self.window, self), tuple(_intervals(shown)), metric.unit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowDistribution(DistributionEstimate, WindowEstimate):
    """An estimate of a distribution together with the window that it is of."""

    def cdf_to_frame(self) -> Frame:
        """Return the shares below all edges as a table: a row for each edge."""
        window, by = self.window, conditions(self.window)
        edges, unbiased = self.edges.tolist(), np.asarray(self.value).tolist()
        metric, kind, _, *window_edges = about(window)  # a share has no unit
        named = (metric, kind, "", *window_edges, *by.values())
        counted = (self.reports, self.status, *statement(self))
        rows = (
            (*named, *numbers, *counted)
            for numbers in zip(edges, *_columns(self), unbiased, strict=True)
        )
        return Frame.of(_with_conditions(EDGES, by), rows)


def with_window(window: Window, found: Estimate) -> WindowEstimate:
    """Return an estimate together with its window."""
    own = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    kind = WindowDistribution if isinstance(found, DistributionEstimate) else WindowEstimate
    return kind(**own, window=window.bare())


def estimate_frame(window: Window, found: Estimate, top: int | None = None) -> Frame:
    """Return an estimate as a table.

    Parameters
    ----------
    window : Window
        What was read.
    found : Estimate
        The answer from it.
    top : int, optional
        Keep so many categories or coordinates, the largest first; all of them by default.
    """
    by, shown = conditions(window), found.numbers
    rows = (
        (*about(window), *by.values(), *numbers, *statement(found))
        for numbers in number_rows(window, shown if top is None else shown.top(top))
    )
    return Frame.of(_with_conditions(ESTIMATE, by), rows)


def number_rows(window: Window, found: Estimate) -> Iterator[tuple[Any, ...]]:
    """Yield what the columns NUMBER have of each number."""
    shown, shape = found.numbers, window.metric.shape
    has_unbiased = shape in (Shape.NUMBER, Shape.NAMED_NUMBERS)
    unbiased = np.atleast_1d(np.asarray(shown.value)).tolist()
    for label, numbers, raw in zip(
        _labels(shown), zip(*_columns(shown), strict=True), unbiased, strict=True
    ):
        yield label, *numbers, raw if has_unbiased else None, found.reports, found.status


def about(window: Window) -> tuple[Any, ...]:
    """Return what the columns WINDOW have."""
    metric = window.metric
    return metric.name, metric.kind, metric.unit, window.start_ms, window.end_ms


def statement(found: Estimate) -> tuple[Any, ...]:
    """Return what the columns STATEMENT have."""
    return found.beta, found.bound, found.target, found.covers, found.policy


def conditions(window: Window) -> dict[str, str | None]:
    """Return the columns of the attributes that the reports of a window have in common."""
    return {} if window.grouping is None else by_columns(window.grouping.conditions.items())


def by_columns(values: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    """Return the values of attributes by the names of their columns."""
    return {f"{BY}{name}": value for name, value in values}


def facts(window: Window, found: Estimate) -> tuple[str, ...]:
    """Return lines about an estimate for its picture."""
    begin, end = iso(window.start_ms) or "the first report", iso(window.end_ms) or "now"
    known = (
        f"{found.status.replace('_', ' ')}; {found.reports:,} reports from {begin} to {end}",
        f"{certainty(found.beta)} {found.bound} bounds, {found.target}; covers {found.covers}",
    )
    where = conditions(window)
    named = ", ".join(f"{name[len(BY) :]} = {value or 'none'}" for name, value in where.items())
    return (*known, named) if named else known


def _with_conditions(names: tuple[str, ...], by: dict[str, str | None]) -> tuple[str, ...]:
    return (*names[: len(WINDOW)], *by, *names[len(WINDOW) :])


def _labels(found: Estimate) -> list[str | None]:
    return [*found.labels] if np.ndim(found.value) else [None]


def _columns(found: Estimate) -> list[list[float]]:
    """Return value, lower and upper bound, a list each."""
    return [
        np.atleast_1d(np.asarray(x, dtype=np.float64)).tolist()
        for x in (found.shown, found.lower, found.upper)
    ]


def _intervals(found: Estimate) -> Iterator[Interval]:
    for label, *numbers in zip(_labels(found), *_columns(found), strict=True):
        yield Interval(label or "", *numbers)
