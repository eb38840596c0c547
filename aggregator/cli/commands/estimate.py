"""`dither estimate`: a metric's estimate and its bounds."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

import click
import numpy as np
from msgspec import UNSET

from aggregator.cli.commands.options import (
    defined_metrics,
    metric_argument,
    opened_store,
    settings_options,
    table,
)
from aggregator.config.settings import Settings
from aggregator.reading import coverage
from aggregator.reading.backlog import awaited
from aggregator.reading.coverage import MOST_WINDOWS, Looks
from aggregator.reading.left_out import LeftOut, left_out, refused
from aggregator.reading.reader import Reader
from aggregator.reading.search_progress import in_words, searched
from aggregator.reading.serialization import as_dict, lies
from aggregator.reading.windows import Window
from aggregator.timestamps import iso
from estimators import Estimate, Metric, rounding
from estimators.estimate import Floats
from estimators.metrics.domains import OPEN
from estimators.question import BOUNDS, TARGETS
from estimators.rounding import at_most, certainty, common_decimals, interval
from estimators.simplex import project
from estimators.weights import POLICIES

TINY = 1e-3
"""A p-value at which levels are said to differ: one metric in a thousand without a reason."""
SHOWN = 20
"""Categories in a table."""
WARNING = (
    "warning    the values go with the privacy level: weights other than uniform then estimate\n"
    "           a different population (--weights uniform, or dither weights METRIC uniform)"
)


class Moment(click.ParamType[float]):
    """A moment as ISO 8601, or seconds since the epoch."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return seconds since the epoch."""
        if isinstance(value, float):
            return value
        try:
            return float(value)
        except ValueError:
            pass
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r}: expected 2013-01-31, 2013-01-31T17:00+00:00 or seconds", param, ctx
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()


@click.command()
@metric_argument()
@click.option("--from", "start", type=Moment(), help="Begin of the window (UTC unless it says so).")
@click.option("--to", "end", type=Moment(), help="End of the window.")
@click.option("--window", metavar="DURATION", help="Instead: the last 1h (30s, 1d, ...) counted.")
@click.option(
    "--windows",
    type=click.IntRange(1, MOST_WINDOWS),
    default=1,
    help="Bounds that cover so many windows together, of this one and others that are looked at.",
)
@click.option("--beta", default=0.05, show_default=True, help="Failure probability of the bounds.")
@click.option(
    "--weights",
    type=click.Choice(sorted(POLICIES)),  # a release has the weights that it was drawn with
    help="How much each privacy level counts [default: as `dither weights` says].",
)
@click.option(
    "--weights-fixed",
    is_flag=True,
    help="Weights and target were chosen before looking: beta is not shared among what there is.",
)
@click.option(
    "--bound",
    type=click.Choice(BOUNDS),
    default="auto",
    show_default=True,
    help="fixed: for a closed window; anytime: for a total that is looked at while it grows; "
    "auto: fixed once the window is final; normal: asymptotic, for comparison.",
)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="population",
    show_default=True,
    help="What the bounds cover: whom the users come from, or these very users.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    help="Categories (or coordinates) to show, largest first [default: 20; with --json, all].",
)
@click.option(
    "--category",
    "categories",
    multiple=True,
    help="Answer for this category alone; may be repeated. Of an open vocabulary: any string.",
)
@click.option(
    "--pointwise",
    is_flag=True,
    help="Bounds that hold for each category by itself, not for all at once.",
)
@click.option(
    "--simplex",
    is_flag=True,
    help="Add the nearest frequencies that are at least 0 and sum to 1: biased, without bounds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def estimate(
    settings: Settings,
    metric: str,
    start: float | None,
    end: float | None,
    window: str | None,
    windows: int,
    beta: float,
    weights: str | None,
    weights_fixed: bool,
    bound: str,
    target: str,
    top: int | None,
    categories: tuple[str, ...],
    pointwise: bool,
    simplex: bool,
    as_json: bool,
) -> None:
    """Show a metric's estimate and its confidence bounds.

    Without --from, --to and --window: over everything counted so far. Times are event times; a
    window is widened to whole panes. Of a metric that is collected in trust: the latest release of
    a pane in the window.

    What is shown while a window grows, and what is shown once it is final, are two statements: each
    holds with 1 - beta, both with 1 - 2 beta.

    Bounds of a window are for this window by itself: who looks at many windows, and wants the
    bounds of all of them to hold, says how many (--windows). Naming weights or a target shares beta
    among all there are, as the answer may have been chosen after looking at the others. The answer
    without --weights is none of these: to compare with it, name its policy, too.
    """
    defined = defined_metrics(settings)
    store = opened_store(settings)
    reader = Reader(store, defined)
    definition = reader.metric(metric)
    if simplex and (categories or definition.kind != "frequency" or definition.categories == OPEN):
        raise click.UsageError("--simplex: only for all categories of a frequency")
    try:
        read = reader.window(metric, start, end, window)
        found = reader.answer(
            read,
            beta,
            weights,
            bound,
            target,
            categories=categories or None,
            simultaneous=not pointwise,
            looks=Looks(windows=windows, weights_fixed=weights_fixed),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    nearest = project(found.value) if simplex and found.reports else None
    overview = store.overview()
    told = awaited(settings, overview).lines() + left_out(reader, overview, definition).lines()
    if not found.reports:  # they may be its own, under a name or a definition nobody counts
        told += LeftOut("", refused(overview, "")).lines()
    if as_json:
        click.echo(json.dumps(as_dict(read, found, top, nearest)))
        for line in told:
            click.echo(line, err=True)
    else:
        click.echo(as_text(definition, found, top or SHOWN, nearest, read, told))


def as_text(
    metric: Metric,
    found: Estimate,
    top: int,
    nearest: Floats | None = None,
    window: Window | None = None,
    told: Sequence[str] = (),
) -> str:
    """Return an estimate for people, the nearest distribution beside it.

    `window` is what was read: it says which pane a release is of, and where a search stands; `told`
    are lines on what it does not contain.
    """
    lines = [
        f"{metric.name}: {metric.description or metric.kind}",
        f"status     {found.status}",
        f"reports    {found.reports} (worth {found.effective_reports:.0f} without noise)",
        f"bounds     {certainty(found.beta)} {found.bound}, {found.target}",
        f"weights    {found.policy}",
    ]
    lines[4:4] = coverage.in_words(found)
    lines[3:3] = told
    if window is not None and metric.has_rounds:
        lines += in_words(window)
    elif found.privacy is None:
        lines += lying(metric, found)
    else:
        lines += releasing(found, None if window is None else window.start_ms)
    if found.heterogeneity is not None:
        lines.append(f"levels     alike with p = {found.heterogeneity:.2g}")
    if warns(found):
        lines.append(WARNING)
    lines.append("")
    if np.ndim(found.value):
        kind, plural = (
            ("coordinate", "coordinates")
            if metric.kind == "vector_mean"
            else ("category", "categories")
        )
        shown = found.top(top)
        head, columns = [kind, "value", "lower", "upper"], _columns(shown)
        places = common_decimals(*columns[1:])
        rows: list[tuple[str, ...]] = [
            (label, *interval(numbers, places))
            for label, *numbers in zip(shown.labels, *columns, strict=True)
        ]
        if nearest is not None:  # in the same order: the projection keeps it
            head.append("simplex")
            ordered = np.sort(nearest)[::-1][: len(rows)].tolist()
            rows = [
                (*row, rounding.nearest(x, places)) for row, x in zip(rows, ordered, strict=True)
            ]
        lines.append(table(tuple(head), rows))
        if left := len(found.labels) - len(shown.labels):
            lines.append(f"and {left} more {plural} (--top)")
        if not found.labels:
            lines.append("any string may be asked for: --category, or watch in its definition")
        if found.radius is not None:
            unit = f" {metric.unit}" if metric.unit else ""
            lines.append(f"within {at_most(found.radius)}{unit} of the true vector (l2)")
    elif window is not None and (search := searched(window)) is not None:
        lines.append(search.statement)
    elif not metric.has_rounds:
        unit = f" {metric.unit}" if metric.unit else ""
        value, lower, upper = interval(_numbers(found))
        lines.append(f"{value}{unit} in [{lower}, {upper}]")
    levels = zip(found.levels, found.counts, found.weights, strict=True)
    mix: list[tuple[Any, ...]] = [(f"{e:g}", int(n), f"{w:.3f}") for e, n, w in levels]
    mix_head: tuple[str, ...] = ("epsilon", "reports", "weight")
    if found.privacy is not None:
        mix_head = (*mix_head, "loss")
        mix = [(*row, rounding.loss(loss)) for row, loss in zip(mix, found.privacy, strict=True)]
    return "\n".join([*lines, "", table(mix_head, mix)])


def releasing(found: Estimate, start: int | None) -> list[str]:
    """Return lines on a release: of which pane, and what its privacy costs."""
    drawn = f"of the pane from {iso(start)}, drawn once"
    pane = "none yet" if found.status == "not_ready" else drawn
    lines = [f"release    {pane}; devices send true values"]
    if found.saturation is not None:
        lines.append(f"saturation levels above {rounding.loss(found.saturation)} buy nothing")
    return lines


def lying(metric: Metric, found: Estimate) -> list[str]:
    """Return a line on what a few lies could do; none where nothing is known yet."""
    if metric.has_rounds:
        return []
    told = lies(metric, found)
    shift = told.shift if told.l2 is UNSET else told.l2
    if shift is None or not np.size(found.value):
        return []
    unit = f" {metric.unit}" if metric.unit else ""
    what = "a share" if metric.kind == "frequency" else "this"
    how = "" if told.l2 is UNSET else " (l2)"
    return [
        f"influence  {100 * told.share:g}% of the reports ({told.reports}), were they lies, could "
        f"have moved {what} by {at_most(shift)}{unit}{how}"
        + (f"; without privacy {at_most(told.without_privacy)}" if told.l2 is UNSET else "")
    ]


def _numbers(found: Estimate) -> list[float]:
    return [float(x) for x in (found.shown, found.lower, found.upper)]


def _columns(found: Estimate) -> list[list[float]]:
    return [np.asarray(x).tolist() for x in (found.shown, found.lower, found.upper)]


def warns(found: Estimate) -> bool:
    """Return whether the values go with the privacy level and the weights suppose otherwise."""
    apart = found.heterogeneity is not None and found.heterogeneity < TINY
    return apart and found.policy != "uniform"
