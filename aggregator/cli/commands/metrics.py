"""`dither metrics`: the defined metrics, and how much of the log is counted."""

from __future__ import annotations

import json
from typing import Any

import click

from aggregator.config.settings import Settings
from aggregator.errors import StoreUnreachable
from aggregator.reading.frames.frame import Frame
from aggregator.reading.reader import MetricReader
from aggregator.reading.status import halted_partitions
from aggregator.reading.uncounted_reports import (
    UncountedReports,
    find_uncounted_reports,
    refused_reports,
)
from aggregator.reading.window import event_time
from aggregator.storage.progress import TopicProgress
from aggregator.terminal.estimate_text import table
from aggregator.terminal.options import defined_metrics, opened_store, settings_options
from aggregator.terminal.output import Output, output_options
from aggregator.timestamps import from_iso, iso
from estimators import LocalMetric, Metric, SearchMetric, TrustedMetric
from estimators.metrics.attributes import Slicing
from estimators.metrics.categories import OPEN_VOCABULARY, CodedVocabulary

UNKNOWN_COUNTS: dict[str, Any] = dict.fromkeys(("reports", "refused", "earlier", "event_time"))
"""The counts of a metric if Redis does not answer or does not have them."""
NOTHING_COUNTED = (
    "Redis knows nothing of topic {!r}: no worker has counted it into this Redis (`dither "
    "aggregate`), or redis.url or topics.reports is that of another one"
)


METRIC_COLUMNS = (
    *("metric", "revision", "kind", "mechanism", "unit", "levels", "pane"),
    *("reports", "refused", "event_time"),
)


@click.command()
@output_options
@settings_options
def metrics(settings: Settings, output: Output) -> None:
    """List the metrics: their definitions, and how many reports are counted.

    Below the list are the number of slices of each metric that is summed by attributes of devices,
    and how many bits a batch reveals about its device at most; the strings that devices do not
    report; refused reports with their reasons; reports counted under another definition of a
    metric; and halted partitions.

    Without counts in Redis the command shows only the definitions, with a dash (null with --json)
    for unknown numbers. A table (--csv) has the numbers of each metric; --json has its whole
    definition.
    """
    defined = defined_metrics(settings)
    counted, left_out = dict.fromkeys(defined, UNKNOWN_COUNTS), list[UncountedReports]()
    nameless, stopped = UncountedReports("", {}), list[str]()
    try:
        store = opened_store(settings)
        reader = MetricReader(store, defined)
        overview = store.overview()
        if not overview.partitions:
            click.echo(f"{NOTHING_COUNTED.format(settings.topics.reports)}\n", err=True)
        for name, metric in defined.items() if overview.partitions else ():
            left_out.append(find_uncounted_reports(reader, overview, metric))
            counted[name] = _read_counts(reader, overview, metric, left_out[-1])
        nameless = UncountedReports("", refused_reports(overview, ""))
        stopped = [f"warning    {why}" for why in halted_partitions(overview)]
    except StoreUnreachable as error:
        click.echo(f"{error}\n", err=True)
    rows = [_metric_row(metric, counted[name]) for name, metric in defined.items()]
    if output.is_table or output.as_json:
        if output.is_table:
            output.write(Frame.of(METRIC_COLUMNS, map(_cells, rows)))
        else:
            click.echo(json.dumps(rows))
        for line in [*nameless.lines(), *stopped]:
            click.echo(line, err=True)
        return
    head = (
        *("metric", "kind", "mechanism", "domain", "levels", "pane"),
        *("reports", "refused", "event time"),
    )
    cells: list[tuple[Any, ...]] = [
        (
            row["metric"],
            row["kind"],
            _mechanism_text(defined[row["metric"]]),
            _domain_text(defined[row["metric"]]),
            " ".join(f"{e:g}" for e in row["levels"]),
            row["pane"],
            "-" if row["reports"] is None else row["reports"],
            "-" if row["refused"] is None else sum(row["refused"].values()),
            row["event_time"] or "-",
        )
        for row in rows
    ]
    click.echo(table(head, cells))
    notes = [_describe_slices(m.name, m.slicing) for m in defined.values() if m.slicing]
    local_metrics = [m for m in defined.values() if isinstance(m, LocalMetric)]
    coded = [m for m in local_metrics if isinstance(m.domain, CodedVocabulary)]
    notes += map(_describe_longest_strings, coded)
    notes += [_describe_denied_strings(m) for m in defined.values() if m.domain.meaning.get("deny")]
    notes += [line for uncounted in (*left_out, nameless) for line in uncounted.lines()]
    if notes or stopped:
        click.echo("\n" + "\n".join([*notes, *stopped]))


def _read_counts(
    reader: MetricReader, overview: TopicProgress, metric: Metric, left_out: UncountedReports
) -> dict[str, Any]:
    """Return a metric's number of counted reports, its event time, and the uncounted reports."""
    described = reader.describe(overview, metric.name)
    if isinstance(metric, TrustedMetric):  # only releases read its sums
        reports = overview.outcomes()[metric.name, "accepted"]
    else:
        reports = reader.read(described).reports
    is_search = isinstance(metric, SearchMetric)  # whose answers have no event time
    event_ms = None if is_search else event_time(described.watermarks)
    return {
        "reports": reports,
        "refused": left_out.refused,
        "earlier": left_out.earlier,
        "event_time": iso(None if event_ms is None else event_ms // 1000 * 1000),
    }


def _metric_row(metric: Metric, counted: dict[str, Any]) -> dict[str, Any]:
    return {
        "metric": metric.name,
        "revision": f"{metric.revision:08x}",
        "kind": metric.kind,
        "mechanism": metric.mechanism,
        "chosen": metric.randomizer.level_mechanisms,
        "range": None if metric.range is None else list(metric.range),
        "categories": OPEN_VOCABULARY
        if metric.categories == OPEN_VOCABULARY
        else list(metric.category_names) or None,
        "levels": list(metric.levels),
        "pane": metric.pane,
        "lateness": metric.lateness,
        "by": [] if metric.slicing is None else [*metric.slicing.attributes],
        "slices": None if metric.slicing is None else metric.slicing.size,
        "bits": None if metric.slicing is None else round(metric.slicing.bits, 3),
        "deny": metric.domain.meaning.get("deny"),
        "unit": metric.unit,
        "description": metric.description,
        **counted,
    }


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return a metric as a row of a table."""
    refused, event_time = row["refused"], row["event_time"]
    return (
        *(row["metric"], row["revision"], row["kind"], row["mechanism"], row["unit"]),
        *(" ".join(f"{e:g}" for e in row["levels"]), row["pane"], row["reports"]),
        None if refused is None else sum(refused.values()),
        None if event_time is None else round(1000 * from_iso(event_time)),
    )


def _describe_slices(name: str, slicing: Slicing) -> str:
    """Return a line on a metric's slices, and on the bits that a device's attributes reveal."""
    by = ", ".join(slicing.attributes)
    return f"slices     {name}: {slicing.size:,} slices, {slicing.bits:.1f} bits, by {by}"


def _describe_longest_strings(metric: LocalMetric) -> str:
    """Return a line on which strings are too long to be discovered."""
    layout = metric.require_discovery().layout
    return (
        f"discovers  {metric.name}: strings whose code words have at most {layout.depths[-1]} bits "
        f"(the option `last`), not longer ones: `dither estimate {metric.name} --category STRING` "
        "says which"
    )


def _describe_denied_strings(metric: Metric) -> str:
    """Return a line on strings that devices do not report."""
    rule = metric.domain.meaning["deny"]
    parts = [f"longer than {rule['longer_than']}"] if "longer_than" in rule else []
    parts += rule.get("presets", [])
    parts += [
        f"{len(rule[key])} {key if len(rule[key]) > 1 else key.removesuffix('s')}"
        for key in ("patterns", "strings")
        if key in rule
    ]
    return f"denied     {metric.name}: devices report other in place of: {', '.join(parts)}"


def _mechanism_text(metric: Metric) -> str:
    """Return the name of the mechanism, with the mechanisms of the levels if they differ."""
    mechanisms = dict.fromkeys(metric.randomizer.level_mechanisms)
    if set(mechanisms) == {metric.mechanism}:
        return metric.mechanism
    return f"{metric.mechanism} ({', '.join(mechanisms)})"


def _domain_text(metric: Metric) -> str:
    if metric.domain.of_numbers:
        high, low = metric.domain.opposite
        bins = metric.domain.parameters.get("bins")
        span = f"[{low:g}, {high:g}] {metric.unit}".strip()
        return span if bins is None else f"{span}, {bins} bins"
    if metric.radius is not None:
        ball = f"{metric.dimension} coordinates, length up to {metric.radius:g} {metric.unit}"
        return ball.strip()
    if metric.categories == OPEN_VOCABULARY:
        return "any string"
    if metric.category_names:
        return f"{len(metric.category_names)} categories"
    return ", ".join(f"{key} = {value}" for key, value in metric.domain.meaning.items())
