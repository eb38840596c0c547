"""Answers for slices by attributes of devices, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aggregator.reading.grouping import slice_name
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.window import Window
from aggregator.terminal.estimate_text import (
    MAX_LINE_CATEGORIES,
    SHAPE_TEXTS,
    EstimateView,
    columns,
    table,
)
from aggregator.timestamps import iso
from estimators.metrics.attributes import NO_VALUE
from estimators.rounding import certainty, common_decimals, interval
from estimators.shapes import Shape


def slices_as_text(slices: Slices, notes: Sequence[str] = ()) -> str:
    """Return the estimates of slices as text; `notes` are lines about missing reports."""
    window, query = slices.window, slices.query
    together = "each slice by itself"
    if slices.simultaneous > 1:
        together = f"all {slices.simultaneous} slices together"
    bound = window.bound if query.bound == "auto" else query.bound
    lines = [
        f"{window.metric.name}: {window.metric.description or window.metric.kind}",
        f"status     {slices.status}",
        *scope_lines(window),
        *notes,
        f"bounds     {certainty(query.beta)} {bound}, {query.target}, for {together}",
        "",
        _table(slices),
    ]
    if slices.left_out:
        lines.append(f"and {slices.left_out} more slices (--top)")
    if any(slice_estimate.estimate is None for slice_estimate in slices.slices):
        minimum_reports = window.metric.minimum_reports
        lines.append(f"- fewer than {minimum_reports} reports (minimum_reports)")
    return "\n".join(lines)


def scope_lines(window: Window) -> list[str]:
    """Return lines on a window, its conditions, and the share of its reports that are in slices."""
    coverage, grouping = window.coverage, window.grouping
    lines = [_window_line(window)]
    if grouping is not None and grouping.where:
        lines.append(f"where      {slice_name(grouping.conditions)}")
    share = "unknown: panes of the window have expired"
    if coverage is not None:
        share = f"{100 * coverage:.4g}% of the window's reports are in tables of slices"
    return [*lines, f"coverage   {share}"]


def window_lines(window: Window) -> list[str]:
    """Return a line on the window, widened to whole panes; no line for a running total."""
    return [] if window.start_ms is None and window.end_ms is None else [_window_line(window)]


def _window_line(window: Window) -> str:
    begin, end = iso(window.start_ms) or "the first report", iso(window.end_ms) or "now"
    return f"window     from {begin} to {end}"


def _table(slices: Slices) -> str:
    metric, by = slices.window.metric, slices.query.by
    is_number = metric.shape is Shape.NUMBER
    intervals = [
        columns(slice_estimate.estimate)
        for slice_estimate in slices.slices
        if slice_estimate.estimate and is_number
    ]
    places = common_decimals((low for _, low, _ in intervals), (high for _, _, high in intervals))
    rows: list[tuple[Any, ...]] = []
    for slice_estimate in slices.slices:
        names = [NO_VALUE if value is None else value for value in slice_estimate.slice.values()]
        numbers: tuple[str, ...] = ("-",)
        if slice_estimate.estimate is not None and is_number:
            numbers = interval(columns(slice_estimate.estimate), places)
        elif slice_estimate.estimate is not None:
            numbers = (
                SHAPE_TEXTS[metric.shape].line(
                    EstimateView(slices.window, slice_estimate.estimate, MAX_LINE_CATEGORIES)
                ),
            )
        rows.append((*names, slice_estimate.reports, *numbers))
    width = max((len(row) for row in rows), default=0)
    head = (*by, "reports", *(("value", "lower", "upper")[: max(0, width - len(by) - 1)]))
    return table(head, [(*row, *[""] * (width - len(row))) for row in rows])
