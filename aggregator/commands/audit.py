"""`dither audit`: the privacy certificate of every metric at every level."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import click

from aggregator.commands.options import defined_metrics, metric_argument, settings_options, table
from aggregator.errors import UnknownMetric
from aggregator.settings import Settings
from estimators import Metric
from estimators.errors import nearest
from estimators.shuffling import shuffled_epsilon


@click.command()
@metric_argument(required=False)
@click.option(
    "--shuffled",
    type=click.IntRange(1),
    metavar="REPORTS",
    help="Add what a shuffler would give that mixes so many reports of a level: Dither has none.",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, min_open=True),
    default=1e-6,
    show_default=True,
    help="With --shuffled: the delta of (epsilon, delta)-differential privacy.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options
def audit(
    settings: Settings, metric: str | None, shuffled: int | None, delta: float, as_json: bool
) -> None:
    """Prove that no report says more than its privacy level allows.

    For each metric and level: the logarithm of the largest ratio of the probabilities of a report
    under two values, as the randomizer's integer thresholds make it, and whether the exact ratio is
    at most e^epsilon. The exit code is 1 if one is not. Needs neither Kafka nor Redis.
    """
    metrics = defined_metrics(settings)
    if metric is not None and metric not in metrics:
        raise UnknownMetric(metric, nearest(metric, metrics))
    chosen = metrics.values() if metric is None else [metrics[metric]]
    rows = [row for each in chosen for row in _rows(each, shuffled, delta)]
    if as_json:
        click.echo(json.dumps({"certificates": rows}))
    else:
        click.echo(_as_text(rows, shuffled is not None))
    sys.exit(0 if all(row["private"] for row in rows) else 1)


def _rows(metric: Metric, shuffled: int | None, delta: float) -> list[dict[str, Any]]:
    mechanism, found = metric.randomizer, []
    for level, (epsilon, name) in enumerate(zip(metric.levels, mechanism.chosen, strict=True)):
        ratio = mechanism.privacy_ratio(level)
        row = {
            "metric": metric.name,
            "mechanism": name,
            "epsilon": float(epsilon),
            "log_ratio": math.log(ratio.numerator) - math.log(ratio.denominator),
            "private": mechanism.is_private(level),
        }
        if shuffled is not None:
            row["shuffled_epsilon"] = shuffled_epsilon(float(epsilon), shuffled, delta)
        found.append(row)
    return found


def _as_text(rows: list[dict[str, Any]], shuffled: bool) -> str:
    head = ["metric", "mechanism", "epsilon", "ln of the largest ratio", "certificate"]
    cells = []
    for row in rows:
        verdict = "holds" if row["private"] else "FAILS"
        cell = [
            row["metric"],
            row["mechanism"],
            f"{row['epsilon']:g}",
            f"{row['log_ratio']:.12g}",
            verdict,
        ]
        if shuffled:
            less = row["shuffled_epsilon"]
            cell.append("not applicable" if less is None else f"{less:.4g}")
        cells.append(tuple(cell))
    return table((*head, *(["if shuffled"] if shuffled else [])), cells)
