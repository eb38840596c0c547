"""`dither series`: a metric's estimates over time."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
import msgspec

from aggregator.config.settings import Settings
from aggregator.reading.frames.columns import ATTRIBUTE_PREFIX
from aggregator.reading.query import SeriesQuery, conditions
from aggregator.reading.series import Series
from aggregator.reading.steps import duration
from aggregator.terminal import options
from aggregator.terminal.estimate_text import MAX_LINE_CATEGORIES, table
from aggregator.terminal.output import Output, output_options
from aggregator.timestamps import iso
from estimators import Metric
from estimators.rounding import certainty, common_decimals, interval
from estimators.weights import WEIGHTINGS


@click.command()
@options.metric_argument()
@click.option("--from", "start", type=options.Moment(), help="Start of the range.")
@click.option("--to", "end", type=options.Moment(), help="End of the range.")
@click.option(
    "--window", metavar="DURATION", help="Instead of --from and --to: the last 1d (1h, 30s, ...)."
)
@click.option(
    "--step", metavar="DURATION", help="Width of a step [default: one that makes about 200 steps]."
)
@click.option("--beta", default=0.05, help="Failure probability of the bounds.")
@click.option(
    "--together",
    "all_points",
    is_flag=True,
    help="Make the bounds of all steps hold together, not those of each step by itself.",
)
@click.option(
    "--weights", type=click.Choice(sorted(WEIGHTINGS)), help="How much each privacy level counts."
)
@click.option(
    "--weights-fixed", is_flag=True, help="Weights were chosen before looking at any answer."
)
@click.option(
    "--top",
    type=click.IntRange(1),
    help="Categories (or coordinates) to show, those that are largest over the whole range "
    f"[default: {MAX_LINE_CATEGORIES}; with --json, --csv and --parquet, all].",
)
@click.option(
    "--category", "categories", multiple=True, help="Show only this category; may be repeated."
)
@click.option(
    "--quantile",
    "quantiles",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    multiple=True,
    help="Of a distribution: show only this quantile, as in 0.95; may be repeated.",
)
@options.slice_options
@click.option(
    "--pointwise", is_flag=True, help="Make the bounds hold for each category and slice by itself."
)
@output_options
@options.settings_options
def series(
    settings: Settings,
    metric: str,
    categories: tuple[str, ...],
    where: tuple[str, ...],
    pointwise: bool,
    output: Output,
    **parameters: Any,
) -> None:
    """Show a metric's estimates over time, one for each step.

    Without --from, --to and --window the range is all kept panes. Steps are whole panes. The bounds
    hold for each step alone; with --together those of all steps hold at once. With --by a step has
    a line for each slice, and the bounds of all slices of a step hold at once.
    """
    reader = options.opened_reader(settings)
    definition = reader.metric(metric)
    try:
        query = SeriesQuery(
            metric=metric,
            categories=categories or None,
            where=conditions(where),
            simultaneous=not pointwise,
            **parameters,
        )
        is_text = not (output.as_json or output.is_table)
        if is_text and query.top is None and query.categories is None:
            is_short = definition.domain.of_numbers and not query.by
            query = dataclasses.replace(query, top=None if is_short else MAX_LINE_CATEGORIES)
        answers = reader.read_series(reader.plan_series(query))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    output.show(
        answers.to_frame,
        lambda: msgspec.json.encode(answers).decode(),
        lambda: as_text(definition, answers),
    )


def as_text(metric: Metric, answers: Series) -> str:
    """Return the series as human-readable text."""
    step = duration(round(1000 * answers.step_seconds))
    together = "each step by itself" if answers.covers == "this window" else answers.covers
    lines = [
        f"{metric.name}: {metric.description or metric.kind}",
        f"steps      {len({point.start for point in answers.points})} of {step}",
        f"bounds     {certainty(answers.beta)}, {answers.target}, {together}",
        f"weights    {answers.policy}",
        *([f"unit       {answers.unit}"] if answers.unit else []),
    ]
    frame = answers.to_frame()
    columns = (frame[name] for name in ("value", "lower", "upper"))
    numbers = [
        [float("nan") if x is None else x for x in row] for row in zip(*columns, strict=True)
    ]
    places = common_decimals((low for _, low, _ in numbers), (high for *_, high in numbers))
    attributes = [name for name in frame.columns if name.startswith(ATTRIBUTE_PREFIX)]
    words = [["none" if word is None else word for word in frame[name]] for name in attributes]
    texts = [*words, *([frame["label"]] if answers.labels else [])]
    labels = [*zip(*texts, strict=True)] if texts else [()] * len(frame)
    starts = map(iso, frame.columns["window_start"])
    intervals = (interval(row, places) for row in numbers)
    parts = zip(starts, labels, intervals, frame["reports"], frame["status"], strict=True)
    rows = [(start, *label, *texts, *counted) for start, label, texts, *counted in parts]
    head = ("from", *(name.removeprefix(ATTRIBUTE_PREFIX) for name in attributes))
    head += (*(["label"] if answers.labels else []), "value", "lower", "upper")
    lines += ["", table((*head, "reports", "status"), rows)]
    if isinstance(answers.left_out, int) and answers.left_out:
        lines.append(f"and {answers.left_out} more (--top)")
    return "\n".join(lines)
