"""`dither compare`: two slices, a slice and the rest, two windows, or two metrics."""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np

from aggregator.config.settings import Settings
from aggregator.features.comparisons.arms import compare_all
from aggregator.features.comparisons.comparison_answers import P_VALUES, comparisons_answer
from aggregator.features.comparisons.definitions import REST_SLICE
from aggregator.features.comparisons.query import (
    Compared,
    CompareQuery,
    arm_text,
    comparison_frame,
    number_list,
)
from aggregator.reading.query import conditions
from aggregator.reading.serialization import as_dict
from aggregator.terminal.estimate_text import printable
from aggregator.terminal.options import Moment, metric_argument, opened_reader, settings_options
from aggregator.terminal.output import Output, output_options
from estimators.comparison.arms import STANDARD_WEIGHTS
from estimators.question import BOUND_NAMES, TARGET_NAMES
from estimators.rounding import certainty, common_decimals, interval
from estimators.weights import WEIGHTINGS


class Split(click.ParamType[float]):
    """A planned ratio of reports, as in 1:1 or 9:1."""

    name = "A:B"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the ratio of the first number to the second."""
        if isinstance(value, float):
            return value
        try:
            first, second = (float(part) for part in str(value).split(":"))
            if first > 0 and second > 0:
                return first / second
        except ValueError:
            pass
        return self.fail(f"{value!r}: expected a ratio such as 1:1 or 9:1", param, ctx)


@click.command()
@metric_argument()
@click.option(
    "--where", multiple=True, metavar="ATTRIBUTE=VALUE", help="The first slice; may be repeated."
)
@click.option(
    "--against",
    multiple=True,
    metavar="ATTRIBUTE=VALUE",
    help="The second slice, or the word rest: all other reports of the window [default: rest].",
)
@click.option(
    "--by",
    multiple=True,
    metavar="ATTRIBUTE",
    help="Instead of --where: compare each slice by this attribute with the rest; may be repeated.",
)
@click.option("--from", "start", type=Moment(), help="Start of the first window.")
@click.option("--to", "end", type=Moment(), help="End of the first window.")
@click.option(
    "--window", metavar="DURATION", help="Instead of --from and --to: the last 1h (30s, 1d, ...)."
)
@click.option("--against-from", "against_start", type=Moment(), help="Start of the second window.")
@click.option("--against-to", "against_end", type=Moment(), help="End of the second window.")
@click.option("--against-metric", "other", metavar="METRIC", help="The metric of the second arm.")
@click.option("--ratio", is_flag=True, help="Show the ratio instead of the difference.")
@click.option("--beta", default=0.05, help="Failure probability of the bounds.")
@click.option(
    "--bound",
    type=click.Choice([bound for bound in BOUND_NAMES if bound != "normal"]),
    default="auto",
    help="fixed: for closed windows; anytime: for arms that you watch while they grow.",
)
@click.option(
    "--split",
    type=Split(),
    help="The planned ratio of reports of both arms, such as 1:1, declared before the start: "
    "it makes the bounds narrower at all times.",
)
@click.option(
    "--weights",
    type=click.Choice([*sorted(WEIGHTINGS), STANDARD_WEIGHTS]),
    help="How much each privacy level counts; standard: the same in both arms.",
)
@click.option(
    "--weights-fixed",
    is_flag=True,
    help="Weights and target were chosen before looking at any answer.",
)
@click.option(
    "--target",
    type=click.Choice(TARGET_NAMES),
    default="population",
    help="What the bounds cover: the population from which the users come, or exactly these users.",
)
@click.option(
    "--independent",
    is_flag=True,
    default=None,
    help="With --against-metric: no device reports to both metrics.",
)
@click.option(
    "--category", "categories", multiple=True, help="Compare only this category; may be repeated."
)
@click.option(
    "--quantile",
    "quantiles",
    type=float,
    multiple=True,
    help="Of a distribution: compare only this quantile, as in 0.95; may be repeated.",
)
@click.option(
    "--below",
    type=float,
    multiple=True,
    help="Of a distribution: compare the share below this edge, not quantiles; may be repeated.",
)
@click.option("--each", is_flag=True, help="Give both arms bounds; all three intervals share beta.")
@click.option(
    "--pointwise",
    is_flag=True,
    help="Make the bounds hold for each comparison and category by itself.",
)
@click.option(
    "--top",
    type=click.IntRange(1),
    help="With --by: compare only this many slices, those with most reports.",
)
@output_options
@settings_options
def compare(
    settings: Settings,
    metric: str,
    where: tuple[str, ...],
    against: tuple[str, ...],
    ratio: bool,
    categories: tuple[str, ...],
    pointwise: bool,
    output: Output,
    **options: Any,
) -> None:
    """Compare two arms of a metric, and show by how much the first exceeds the second.

    The arms are two slices, a slice and the rest, two windows that do not overlap, or two metrics.
    The bounds of a difference are narrower than those of its two arms suggest, so do not judge by
    whether two intervals overlap.

    The p-value of arms that grow is valid at any time: if you stop as soon as it is at most beta,
    at most a share beta of comparisons without a difference ever stop.
    """
    reader = opened_reader(settings)
    try:
        query = CompareQuery.of_options(
            conditions(where),
            REST_SLICE if against in ((), (REST_SLICE,)) else conditions(against),
            of="ratio" if ratio else "difference",
            categories=categories or None,
            simultaneous=not pointwise,
            **options,
        )
        comparisons = compare_all(reader, metric, query)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    edges = comparisons[0].query.below if comparisons else query.below
    for limit, edge in zip(query.below, edges, strict=True):
        if limit != edge:
            note = f"--below {limit:g}: the nearest edge of the logarithmic scale is {edge:g}"
            click.echo(note, err=True)
    output.show(
        lambda: comparison_frame(comparisons),
        lambda: json.dumps(as_dict(comparisons_answer(comparisons))),
        lambda: "\n\n".join(map(as_text, comparisons)),
    )


def as_text(compared: Compared, verdicts: tuple[str, str] = ("different", "not decided")) -> str:
    """Return a comparison as text.

    `verdicts`: the words for numbers that are proved to be different, and for the remaining ones.
    """
    query = compared.query
    scope = f", {compared.simultaneous} comparisons together" if compared.simultaneous > 1 else ""
    if query.each:
        scope += ", three intervals together"
    lines = [
        f"{compared.a.metric}: {query.of} of a and b",
        f"a          {arm_text(compared, 'a')}",
        f"b          {arm_text(compared, 'b')}",
        f"status     {compared.status}",
        f"bounds     {certainty(query.a.beta)} {compared.bound}, {query.a.target}{scope}",
    ]
    if compared.comparison is None:
        return "\n".join(lines)
    lines.append(f"law        {compared.law}")
    if compared.chosen_among > 1:
        lines.append(f"chosen     among {compared.chosen_among} answers, maybe after looking")
    if compared.comparison.warning:
        lines.append(f"warning    {compared.comparison.warning}")
    kind = P_VALUES[compared.bound]
    metric = compared.a.window.metric
    unit = f" {metric.unit}" if metric.unit and not query.below else ""
    suffix = unit if query.of == "difference" else ""
    ends = intervals(compared.value, compared.lower, compared.upper, suffix)
    p_values = number_list(compared.p_value)
    arms = [
        intervals(arm.estimate.value, arm.estimate.lower, arm.estimate.upper, unit)
        for arm in (compared.a, compared.b)
    ]
    lines.append("")
    for index, label in enumerate(compared.comparison.labels or ("",)):
        verdict = verdicts[0 if p_values[index] <= query.a.beta else 1]
        name = f"{printable(label)}  " if label else ""
        lines.append(f"{name}{ends[index]}, p = {p_values[index]:.2g}: {verdict}")
        if query.each:
            lines += [f"  {name} {arm[index]}" for name, arm in zip("ab", arms, strict=True)]
    lines.append(f"p-values: {kind}")
    return "\n".join(lines)


def intervals(value: Any, lower: Any, upper: Any, suffix: str) -> list[str]:
    """Return numbers with bounds as text, with the same number of decimals.

    `value`, `lower`, `upper`: the numbers and their bounds; `suffix`: a space and the unit, or
    nothing.
    """
    rows = [*zip(*map(number_list, (value, lower, upper)), strict=True)]
    finite = [row for row in rows if np.isfinite(row[1:]).all()]
    decimals = common_decimals((low for _, low, _ in finite), (high for *_, high in finite))
    texts = []
    for row in rows:
        shown, low, high = (f"{x:.4g}" for x in row)
        if np.isfinite(row).all():
            shown, low, high = interval(row, decimals)
        texts.append(f"{shown}{suffix} in [{low}, {high}]")
    return texts
