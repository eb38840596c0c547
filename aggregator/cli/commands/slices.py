"""`dither slices`: which slices of a metric have reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from aggregator.config.settings import Settings
from aggregator.reading.frames.columns import ATTRIBUTE_PREFIX
from aggregator.reading.frames.estimates import conditions as conditions_of
from aggregator.reading.frames.frame import Frame
from aggregator.reading.grouping import Grouping, Slice
from aggregator.reading.query import Query, conditions
from aggregator.reading.serialization import values
from aggregator.reading.window import SliceSums, Window
from aggregator.terminal import options
from aggregator.terminal.estimate_text import table
from aggregator.terminal.output import Output, output_options
from aggregator.terminal.slice_text import scope_lines
from estimators.metrics.attributes import NO_VALUE


@click.command()
@options.metric_argument()
@click.option("--from", "start", type=options.Moment(), help="Start of the window.")
@click.option("--to", "end", type=options.Moment(), help="End of the window.")
@click.option(
    "--window", metavar="DURATION", help="Instead of --from and --to: the last 1h (30s, 1d, ...)."
)
@options.slice_options
@output_options
@options.settings_options
def slices(
    settings: Settings,
    metric: str,
    by: tuple[str, ...],
    where: tuple[str, ...],
    output: Output,
    **parameters: Any,
) -> None:
    """Show which slices of a metric have reports, and how many.

    A slice is a combination of the values of the attributes by which the metric is summed. Nothing
    is estimated: the number of reports reveals nobody's value.
    """
    reader = options.opened_reader(settings)
    slicing = reader.metric(metric).slicing
    try:
        slice_conditions = conditions(where)
        fixed_names = {name for name, _ in slice_conditions}
        free_attributes = [
            name for name in (slicing.attributes if slicing else ()) if name not in fixed_names
        ]
        query = Query(by=by or free_attributes, where=slice_conditions, **parameters)
        window = reader.window(metric, query)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    grouping, content = window.grouping, window.content
    if grouping is None or not isinstance(content, SliceSums):
        raise click.UsageError(
            f"metric {metric!r} has no slices: name attributes as `by` in its definition"
        )
    counts = [int(window.metric.counts(row).sum()) for row in content.statistics]
    reports_by_slice = [(grouping.slice(group), counts[group]) for group in grouping.order(counts)]
    if output.is_table:
        return output.write(_frame(window, grouping, reports_by_slice))
    if output.as_json:
        rows = [{"slice": _plain(s), "reports": count} for s, count in reports_by_slice]
        scope = {"metric": metric, "by": list(query.by), "where": _plain(grouping.conditions)}
        return click.echo(json.dumps({**scope, "coverage": window.coverage, "slices": rows}))
    cells = [
        (*(NO_VALUE if value is None else value for value in slice_.values()), reports)
        for slice_, reports in reports_by_slice
    ]
    return click.echo("\n".join([*scope_lines(window), "", table((*query.by, "reports"), cells)]))


def _frame(
    window: Window, grouping: Grouping, reports_by_slice: Sequence[tuple[Slice, int]]
) -> Frame:
    """Return a table with one row for each slice."""
    by, fixed = [f"{ATTRIBUTE_PREFIX}{name}" for name in grouping.by], conditions_of(window)
    names = ("metric", "window_start", "window_end", *by, *fixed, "reports", "coverage")
    scope = (window.metric.name, window.start_ms, window.end_ms)
    rows = (
        (*scope, *slice_.values(), *fixed.values(), reports, window.coverage)
        for slice_, reports in reports_by_slice
    )
    return Frame.of(names, rows)


def _plain(slice_: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(values(slice_))
