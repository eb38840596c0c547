"""`dither audit`: each level's privacy certificate."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import click

from aggregator.config.settings import Settings
from aggregator.reading.frames.frame import Frame
from aggregator.terminal.format import table
from aggregator.terminal.options import chosen_metrics, metric_argument, settings_options
from aggregator.terminal.output import Output, output_options
from estimators import Metric, SearchMetric, rounding
from estimators.rounding import loss
from estimators.shuffling import shuffled_epsilon


@click.command()
@metric_argument(required=False)
@click.option(
    "--shuffled",
    type=click.IntRange(1),
    metavar="REPORTS",
    help="Also show the epsilon that a shuffler would give if it mixed this many reports of a "
    "level. Dither has no shuffler.",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, min_open=True),
    default=1e-6,
    show_default=True,
    help="With --shuffled: the delta of (epsilon, delta)-differential privacy.",
)
@output_options
@settings_options
def audit(
    settings: Settings, metric: str | None, shuffled: int | None, delta: float, output: Output
) -> None:
    """Check that no report reveals more than its privacy level allows.

    The check is exact. For each metric and level it prints the logarithm of the largest ratio
    between the probabilities of a report under two values, computed from the randomizer's integer
    thresholds, and whether the ratio is at most e^epsilon. For a minimum or maximum this covers all
    answers of one device. The exit code is 1 if a level fails. Needs neither Kafka nor Redis.
    Metrics with trusted collection are left out.
    """
    definitions = chosen_metrics(settings, metric).values()
    randomized = [definition for definition in definitions if not definition.sends_true_values]
    for definition in definitions:
        if definition.sends_true_values:
            click.echo(
                f"{definition.name}: no certificate, because its reports are true values (trusted "
                "collection). Each release states its privacy loss (docs/trusted.md)",
                err=True,
            )
    if not randomized:
        sys.exit(1)
    rows = [row for definition in randomized for row in _rows(definition, shuffled, delta)]
    output.show(
        lambda: _frame(rows),
        lambda: json.dumps({"certificates": rows}),
        lambda: _as_text(rows, shuffled is not None),
    )
    sys.exit(0 if all(row["private"] for row in rows) else 1)


def _frame(rows: list[dict[str, Any]]) -> Frame:
    """Return certificates as a table."""
    names = ("metric", "mechanism", "epsilon", "log_ratio", "private", "shuffled_epsilon")
    return Frame.of(names, (tuple(map(row.get, names)) for row in rows))


def _rows(metric: Metric, shuffled: int | None, delta: float) -> list[dict[str, Any]]:
    mechanism, rows = metric.randomizer, []
    certified = metric.search if isinstance(metric, SearchMetric) else mechanism
    for level, (epsilon, name) in enumerate(
        zip(metric.levels, mechanism.level_mechanisms, strict=True)
    ):
        ratio = certified.privacy_ratio(level)
        row = {
            "metric": metric.name,
            "mechanism": name,
            "epsilon": float(epsilon),
            "log_ratio": math.log(ratio.numerator) - math.log(ratio.denominator),
            "private": certified.is_private(level),
        }
        if shuffled is not None:
            row["shuffled_epsilon"] = shuffled_epsilon(float(epsilon), shuffled, delta)
        rows.append(row)
    return rows


def _as_text(rows: list[dict[str, Any]], shuffled: bool) -> str:
    head = ["metric", "mechanism", "epsilon", "ln of the largest ratio", "certificate"]
    cells = []
    for row in rows:
        verdict = "holds" if row["private"] else "FAILS"
        cell = [row["metric"], row["mechanism"], f"{row['epsilon']:g}", _exact_loss(row), verdict]
        if shuffled:
            less = row["shuffled_epsilon"]
            cell.append("not applicable" if less is None else loss(less))
        cells.append(tuple(cell))
    return table((*head, *(["if shuffled"] if shuffled else [])), cells)


def _exact_loss(row: dict[str, Any]) -> str:
    """Return a loss, rounded up to at most the certified epsilon."""
    shown = rounding.loss(row["log_ratio"], 12)
    return f"{row['epsilon']:g}" if row["private"] and float(shown) > row["epsilon"] else shown
