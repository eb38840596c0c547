"""`dither audit`: each level's privacy certificate."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from fractions import Fraction
from typing import Any

import click

from aggregator.config.settings import Settings
from aggregator.reading.frames.frame import Frame
from aggregator.terminal import options
from aggregator.terminal.estimate_text import table
from aggregator.terminal.output import Output, output_options
from estimators import Metric, SearchMetric, rounding
from estimators.limits import LARGEST_LEVEL
from estimators.rounding import loss
from estimators.shuffling.amplification import largest_level, shuffled_epsilon
from estimators.shuffling.set_laws import SetLaw

CERTIFICATE_COLUMNS = (
    *("metric", "mechanism", "epsilon", "log_ratio", "private"),
    *("shuffled_epsilon", "largest_level"),
)
LARGEST_CROWD = 10**9
"""At this size, the table of binomial probabilities takes 200 MB, and the bound takes seconds."""


@click.command()
@options.metric_argument(required=False)
@click.option(
    "--shuffled",
    type=click.IntRange(1, LARGEST_CROWD),
    metavar="REPORTS",
    help="Also show the epsilon that a crowd of this many reports of a level would keep if a relay "
    "shuffled it (docs/crowds.md).",
)
@click.option(
    "--delta",
    type=options.NumberRange(0, 1, min_open=True),
    default=1e-6,
    help="With --shuffled: the delta of (epsilon, delta)-differential privacy.",
)
@click.option(
    "--central",
    type=options.NumberRange(0, min_open=True),
    metavar="EPSILON",
    help="With --shuffled: also show the largest level that keeps this epsilon in the crowd.",
)
@output_options
@options.settings_options
def audit(
    settings: Settings,
    metric: str | None,
    shuffled: int | None,
    delta: float,
    central: float | None,
    output: Output,
) -> None:
    """Check that no report reveals more than its privacy level allows.

    The check is exact. For each metric and level, it prints the logarithm of the largest ratio
    between the probabilities of a report under two values, computed from the randomizer's integer
    thresholds, and whether the ratio is at most e^epsilon. For a minimum or maximum this covers all
    answers of one device. The exit code is 1 if a level fails. The command needs neither Kafka nor
    Redis, and leaves out metrics with trusted collection.
    """
    if central is not None and shuffled is None:
        raise click.UsageError("--central needs the size of a crowd: --shuffled REPORTS")
    definitions = options.chosen_metrics(settings, metric).values()
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
    crowd = None if shuffled is None else _Crowd(shuffled, delta, central)
    rows = [row for definition in randomized for row in _rows(definition, crowd)]
    output.show(
        lambda: Frame.of(CERTIFICATE_COLUMNS, [[*map(r.get, CERTIFICATE_COLUMNS)] for r in rows]),
        lambda: json.dumps({"certificates": rows}),
        lambda: _as_text(rows, crowd),
    )
    sys.exit(0 if all(row["private"] for row in rows) else 1)


@dataclasses.dataclass(frozen=True)
class _Crowd:
    """The crowd that the options --shuffled, --delta and --central describe."""

    reports: int
    delta: float
    central: float | None

    @property
    def text(self) -> str:
        """Return the text below the table, which explains the columns about the crowd."""
        return (
            "\nEach report keeps its epsilon, whoever colludes. In a crowd of "
            f"{self.reports:,} honest reports of its\nlevel, shuffled by a relay that does not "
            f"collude, it keeps `if shuffled`, with delta\n{self.delta:g}. A person who answers in "
            "several panes or metrics: both times the panes, summed\nover the metrics."
        )

    def epsilon(self, metric: Metric, level: int) -> float | None:
        """Return a report's epsilon in the crowd; None if a person's reports are linked."""
        if _has_linked_reports(metric):
            return None
        return shuffled_epsilon(metric.randomizer.set_laws(level), self.reports, self.delta)

    def largest_level(self, metric: Metric) -> float | None:
        """Return the largest level whose reports keep the requested epsilon in the crowd.

        None if no epsilon was requested, or if a person's reports are linked.
        """
        if self.central is None or _has_linked_reports(metric):
            return None

        def laws_at(level: Fraction) -> tuple[SetLaw, ...] | None:
            try:
                offered = dataclasses.replace(metric, levels=[float(level)])
                return offered.randomizer.set_laws(0)
            except ValueError:  # the mechanism has no such level
                return None

        return float(largest_level(laws_at, self.reports, self.central, self.delta))


def _has_linked_reports(metric: Metric) -> bool:
    """Return whether a person's reports in several crowds depend on each other."""
    return isinstance(metric, SearchMetric) or getattr(metric, "memoized", False)


def _rows(metric: Metric, crowd: _Crowd | None) -> list[dict[str, Any]]:
    mechanism, rows = metric.randomizer, []
    largest = crowd and crowd.largest_level(metric)
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
        if crowd is not None:
            shuffled = crowd.epsilon(metric, level)
            if shuffled is not None and row["private"]:
                shuffled = min(shuffled, float(epsilon))
            row["shuffled_epsilon"] = shuffled
            if crowd.central is not None:
                row["largest_level"] = largest
        rows.append(row)
    return rows


def _as_text(rows: list[dict[str, Any]], crowd: _Crowd | None) -> str:
    head = ("metric", "mechanism", "epsilon", "ln of the largest ratio", "certificate")
    columns = {}
    if crowd is not None:
        columns["shuffled_epsilon"] = "if shuffled"
        if crowd.central is not None:
            columns["largest_level"] = f"largest level for {crowd.central:g}"
    cells = [
        (
            *(row["metric"], row["mechanism"], f"{row['epsilon']:g}", _exact_loss(row)),
            "holds" if row["private"] else "FAILS",
            *(_in_words(name, row[name]) for name in columns),
        )
        for row in rows
    ]
    return table((*head, *columns.values()), cells) + ("" if crowd is None else crowd.text)


def _in_words(name: str, number: float | None) -> str:
    if number is None:
        return "not applicable"
    if name != "largest_level":
        return loss(number)
    if number == LARGEST_LEVEL:
        return f"{LARGEST_LEVEL}, the largest level"
    return f"{number:g}" if number else "none"


def _exact_loss(row: dict[str, Any]) -> str:
    """Return a row's loss as text, rounded up; epsilon if only rounding puts it above epsilon."""
    shown = rounding.loss(row["log_ratio"], 12)
    return f"{row['epsilon']:g}" if row["private"] and float(shown) > row["epsilon"] else shown
