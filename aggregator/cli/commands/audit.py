"""`dither audit`: each level's privacy certificate, and an attack on the messages of a device."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Any

import click

from aggregator.config.settings import Settings
from aggregator.reading.frames.frame import Frame
from aggregator.terminal.format import table
from aggregator.terminal.options import chosen_metrics, metric_argument, settings_options
from aggregator.terminal.output import Output, output_options
from estimators import Metric, SearchMetric, rounding
from estimators.rounding import certainty, down, loss
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
@click.option(
    "--attack",
    "attacked",
    is_flag=True,
    help="Also measure a lower bound on epsilon by telling two values apart in the messages of a "
    "reporter. Uses an in-process broker, or a scratch topic of the cluster that --kafka names.",
)
@click.option(
    "--reports",
    type=click.IntRange(1_000),
    default=400_000,
    show_default=True,
    help="With --attack: number of reports per level.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.999,
    show_default=True,
    help="With --attack: confidence of each level's bound.",
)
@output_options
@settings_options
def audit(
    settings: Settings,
    metric: str | None,
    shuffled: int | None,
    delta: float,
    attacked: bool,
    reports: int,
    confidence: float,
    output: Output,
) -> None:
    """Check that no report reveals more than its privacy level allows.

    Without --attack the check is exact. For each metric and level it prints the logarithm of the
    largest ratio between the probabilities of a report under two values, computed from the
    randomizer's integer thresholds, and whether the ratio is at most e^epsilon. For a minimum or
    maximum this covers all answers of one device. The exit code is 1 if a level fails. Needs
    neither Kafka nor Redis. Metrics with trusted collection are left out.

    With --attack the check is a measurement. Two values go through a reporter and a broker, and the
    messages give a lower bound on epsilon; for a minimum or maximum, the answers to one round do.
    If the bound exceeds the level's epsilon, the level FAILS (exit code 1). A correct mechanism
    fails with a probability of at most 0.1% per level.
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
    is_text = not (output.as_json or output.is_table)
    if is_text:
        click.echo(_as_text(rows, shuffled is not None))
    attack_rows = list(_attacks(settings, randomized, reports, confidence)) if attacked else []
    if output.is_table:
        output.write(_frame(rows, attack_rows))
    elif output.as_json:
        document: dict[str, Any] = {"certificates": rows}
        if attacked:
            document |= {"confidence": confidence, "attacks": attack_rows}
        click.echo(json.dumps(document))
    elif attacked:
        click.echo("\n" + _attacks_as_text(attack_rows, confidence))
    holds = all(row["private"] for row in rows) and all(row["holds"] for row in attack_rows)
    sys.exit(0 if holds else 1)


def _frame(rows: list[dict[str, Any]], attacks: list[dict[str, Any]]) -> Frame:
    """Return certificates and the results of attacks on the same levels as a table."""
    names = ("metric", "mechanism", "epsilon", "log_ratio", "private", "shuffled_epsilon")
    outcomes = [(row["at_least"], row["holds"]) for row in attacks] or [(None, None)] * len(rows)
    return Frame.of(
        (*names, "at_least", "attack_holds"),
        ((*map(row.get, names), *outcome) for row, outcome in zip(rows, outcomes, strict=True)),
    )


def _attacks(
    settings: Settings, metrics: Collection[Metric], reports: int, confidence: float
) -> Iterator[dict[str, Any]]:
    """Yield the result of the attack on each level of each metric."""
    from aggregator.cli.attack import attack, embedded_topic, kafka_topic

    uses_kafka = settings.sources.get("kafka.bootstrap.servers") == "command line"
    for metric in metrics:
        with kafka_topic(settings) if uses_kafka else embedded_topic() as scratch:
            findings = attack(metric, scratch, reports, confidence)
            for name, finding in zip(metric.randomizer.level_mechanisms, findings, strict=True):
                yield {
                    "metric": metric.name,
                    "mechanism": name,
                    "answers": _answers_per_user(metric),
                    "epsilon": finding.epsilon,
                    "at_least": finding.leak.lower,
                    "event": finding.leak.event,
                    "hits": list(finding.leak.hits),
                    "trials": list(finding.leak.trials),
                    "reports": finding.reports,
                    "fault": finding.fault,
                    "holds": finding.holds,
                }


def _answers_per_user(metric: Metric) -> int:
    """Return how many rounds one user answers; 1 without rounds."""
    return metric.rounds if isinstance(metric, SearchMetric) and metric.split == "budget" else 1


def _attacks_as_text(rows: list[dict[str, Any]], confidence: float) -> str:
    cells = []
    for row in rows:
        happened = [
            "{} of {}".format(*pair) for pair in zip(row["hits"], row["trials"], strict=True)
        ]
        share = f"{100 * row['at_least'] / row['epsilon']:.0f}%"
        verdict = "holds" if row["holds"] else f"FAILS {row['fault']}".rstrip()
        one_of = f", 1 of {row['answers']}" if (row["answers"] or 1) > 1 else ""
        mechanism = row["mechanism"] + one_of
        shown = (row["metric"], mechanism, f"{row['epsilon']:g}", down(row["at_least"], 4))
        cells.append((*shown, share, row["event"], *happened, verdict))
    head = (
        "metric",
        "mechanism",
        "epsilon",
        f"at least ({certainty(float(1 - Decimal(repr(confidence))))})",
        "",
        "event",
    )
    return table((*head, "one value", "the other", "attack"), cells)


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
