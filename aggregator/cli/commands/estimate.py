"""`dither estimate`: a metric's estimate and its bounds."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from aggregator.config.settings import Settings
from aggregator.reading import serialization
from aggregator.reading.backlog import read_backlog
from aggregator.reading.frames.estimates import estimate_frame
from aggregator.reading.plans import LocalPlan
from aggregator.reading.query import MAX_WINDOWS, Query, conditions
from aggregator.reading.reader import MetricReader
from aggregator.reading.slices.estimates import slices_answer
from aggregator.reading.uncounted_reports import (
    UncountedReports,
    find_uncounted_reports,
    refused_reports,
)
from aggregator.reading.window import Window
from aggregator.terminal import options
from aggregator.terminal.estimate_text import MAX_SHOWN_CATEGORIES, EstimateView, as_text
from aggregator.terminal.output import Output, output_options
from aggregator.terminal.slice_text import scope_lines, slices_as_text, window_lines
from aggregator.terminal.two_way_tables import axes_of_table
from estimators import Estimate
from estimators.distribution import DistributionEstimate
from estimators.metrics.categories import OPEN_VOCABULARY
from estimators.question import BOUND_NAMES, TARGET_NAMES
from estimators.simplex import project
from estimators.weights import WEIGHTINGS


@click.command()
@options.metric_argument()
@click.option(
    "--from",
    "start",
    type=options.Moment(),
    help="Start of the window (UTC unless a time zone is given).",
)
@click.option("--to", "end", type=options.Moment(), help="End of the window.")
@click.option(
    "--window",
    metavar="DURATION",
    help="Instead of --from and --to: the last 1h (30s, 1d, ...) that was counted.",
)
@click.option(
    "--windows",
    type=click.IntRange(1, MAX_WINDOWS),
    default=1,
    help="Make the bounds of this many windows hold together, this one included.",
)
@click.option("--beta", default=0.05, help="Failure probability of the bounds.")
@click.option(
    "--weights",
    type=click.Choice(sorted(WEIGHTINGS)),  # a release keeps the weights that it was drawn with
    help="How much each privacy level counts [default: the policy set with `dither weights`].",
)
@click.option(
    "--weights-fixed",
    is_flag=True,
    help="Weights and target were chosen before looking at any answer: do not share beta among "
    "the alternatives.",
)
@click.option(
    "--bound",
    type=click.Choice(BOUND_NAMES),
    default="auto",
    help="fixed: for a closed window; anytime: for a total that you look at while it grows; auto: "
    "anytime, then fixed once the window is final; normal: asymptotic, for comparison.",
)
@click.option(
    "--target",
    type=click.Choice(TARGET_NAMES),
    default="population",
    help="What the bounds cover: the population from which the users come, or exactly these users.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    help="Categories (or coordinates) to show, largest first [default: 20; with --json, --csv and "
    "--parquet, all].",
)
@click.option(
    "--category",
    "categories",
    multiple=True,
    help="Show only this category, or a share among some, as in 'paid / visit..'; may be repeated. "
    "With an open vocabulary: any string.",
)
@click.option(
    "--quantile",
    "quantiles",
    type=options.Probability(),
    multiple=True,
    help="Of a distribution: show only this quantile, as in 0.95; may be repeated. A single "
    "quantile has narrower bounds.",
)
@click.option(
    "--below",
    type=float,
    multiple=True,
    metavar="VALUE",
    help="Of a distribution: show the share below this value, too; may be repeated.",
)
@options.slice_options
@click.option(
    "--pointwise",
    is_flag=True,
    help="Make the bounds hold for each category and slice by itself, not for all at once.",
)
@click.option(
    "--simplex",
    is_flag=True,
    help="Also show the nearest frequencies that are at least 0 and sum to 1. They are biased and "
    "have no bounds.",
)
@output_options
@options.settings_options
def estimate(
    settings: Settings,
    metric: str,
    categories: tuple[str, ...],
    quantiles: tuple[float, ...],
    below: tuple[float, ...],
    where: tuple[str, ...],
    pointwise: bool,
    simplex: bool,
    output: Output,
    **parameters: Any,
) -> None:
    """Show a metric's estimate and its confidence bounds.

    Without --from, --to and --window the answer is over everything counted so far. Times are event
    times; a window is widened to whole panes. For a metric with trusted collection the answer is
    the latest release of a pane in the window.

    The answers while a window grows, and its final answer, are two statements: each holds with
    probability 1 - beta, and both with 1 - 2 beta.

    The bounds of a window hold for that window alone. If you look at several windows and want the
    bounds of all to hold, give their number with --windows. If you name weights or a target, beta
    is shared among all alternatives, because you may have chosen the answer after looking at the
    others. The answer without --weights is not among these: to compare with it, name its policy,
    too.

    With --by there is an answer for each value of an attribute of devices, and the bounds of all
    answers hold together. With --where only reports of devices with the given value count; choose
    the value before you look at answers for others, or use --by. A window by attributes is widened
    to whole stretches of by_pane.
    """
    reader = options.opened_reader(settings)
    definition = reader.metric(metric)
    if simplex and (
        categories or definition.kind != "frequency" or definition.categories == OPEN_VOCABULARY
    ):
        raise click.UsageError("--simplex: only for all categories of a frequency")
    if (quantiles or below) and definition.kind != "distribution":
        raise click.UsageError(
            f"--quantile, --below: metric {metric!r} is a {definition.kind}, and only a "
            'distribution has them: see `dither metrics`, or define one with kind = "distribution"'
        )
    if below and parameters["by"]:
        raise click.UsageError("--below: not with --by; `dither compare --by` compares such shares")
    if output.is_table and (simplex or below):
        raise click.UsageError("--simplex, --below: not with --csv or --parquet")
    try:
        query = Query(
            categories=categories or None,
            quantiles=quantiles,
            simultaneous=not pointwise,
            where=conditions(where),
            **parameters,
        )
        window = reader.window(metric, query)
        slices = LocalPlan.answer_slices([window], query)[0] if query.by else None
        answer = reader.answer(window, query)
        if isinstance(answer, DistributionEstimate):
            for limit in below:
                answer.below(limit)  # one outside the range is refused before anything is shown
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    nearest_distribution = project(answer.value) if simplex and answer.reports else None
    overview = reader.store.overview()
    notes = (
        read_backlog(settings, overview).lines()
        + find_uncounted_reports(reader, overview, definition).lines()
    )
    if not answer.reports:  # reports may exist under a name or a definition that nobody counts
        notes += UncountedReports("", refused_reports(overview, "")).lines()
    if output.is_table:
        frame = estimate_frame(window, answer, query.top)
        output.write(frame if slices is None else slices.to_frame())
    elif output.as_json:
        document = (
            serialization.answer(window, answer, query.top, nearest_distribution)
            if slices is None
            else slices_answer(slices)
        )
        click.echo(json.dumps(serialization.as_dict(document)))
    elif slices is not None:
        click.echo(slices_as_text(slices, notes))
    else:
        about = scope_lines(window) if query.is_sliced else window_lines(window)
        if categories:
            from aggregator.features.discovery.discover_command import discovery_lines

            notes += discovery_lines(definition, categories)
        top = query.top or MAX_SHOWN_CATEGORIES
        margins = None if query.top else _margins(reader, window, query)
        shown = EstimateView(window, answer, top, nearest_distribution, below, margins)
        click.echo(as_text(shown, about + notes))
    if output.is_table or output.as_json:
        for line in notes:
            click.echo(line, err=True)


def _margins(reader: MetricReader, window: Window, query: Query) -> Estimate | str | None:
    """Return a two-way table's margins, or why it has none; None if the answer is no two-way table.

    A separate query asks for the margins, so that no cell gets wider bounds.
    """
    if (pair := axes_of_table(window.metric.axes, query.categories)) is None:
        return None
    try:
        return reader.answer(window, dataclasses.replace(query, categories=pair))
    except ValueError as error:
        return str(error)
