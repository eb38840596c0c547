"""`dither discover`: the frequent strings of an open vocabulary, without a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from aggregator.config.settings import Settings
from aggregator.reading.discovered_strings import (
    COMMON_SHARE,
    Discovered,
    DiscoveryAnswer,
    discover_strings,
    discovery_answer,
    reports_needed,
)
from aggregator.reading.query import Query
from aggregator.terminal.estimate_text import printable, table
from aggregator.terminal.options import Moment, metric_argument, opened_reader, settings_options
from aggregator.terminal.output import Output, output_options
from aggregator.timestamps import iso
from estimators import LocalMetric, Metric
from estimators.discovery.string_code import normal_form
from estimators.metrics.attributes import OTHER_VALUE
from estimators.metrics.categories import CodedVocabulary
from estimators.rounding import certainty


@click.command()
@metric_argument()
@click.option("--from", "start", type=Moment(), help="Start of the window.")
@click.option("--to", "end", type=Moment(), help="End of the window.")
@click.option(
    "--window", metavar="DURATION", help="Instead of --from and --to: the last 1d (1h, 7d, ...)."
)
@click.option(
    "--beta",
    default=0.05,
    help="Largest probability that nobody holds a shown string, or that a bound is wrong.",
)
@output_options
@settings_options
def discover(settings: Settings, metric: str, output: Output, beta: float, **stretch: Any) -> None:
    """Find the frequent strings of a metric with `discover = true`.

    Nobody has to list the strings. The search takes seconds, and uses only closed panes: without
    --to, all panes that every partition has closed. docs/discovery.md says how frequent a string
    has to be.
    """
    reader = opened_reader(settings)
    try:
        described, reading = reader.describe_closed(metric, Query(**stretch))
        discovered = discover_strings(reader.read(described), beta, reading)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    output.show(
        discovered.to_frame,
        lambda: msgspec.json.encode(discovery_answer(discovered)).decode(),
        lambda: as_text(discovered),
    )


def as_text(answer: Discovered) -> str:
    """Return the strings as a table, with the coverage of their bounds."""
    discovery, metric = answer.found, answer.window.metric
    begin, end = iso(answer.window.start_ms), iso(answer.window.end_ms)
    lines = [
        f"{metric.name}: {metric.description}" if metric.description else metric.name,
        f"window     {begin or 'the beginning'} to {end or 'now'}",
        f"status     {answer.status}",
        f"reports    {discovery.reports} ({discovery.tested} of whole strings)",
        f"covers     {answer.covers}: all strings are real and all bounds hold with "
        f"{certainty(answer.beta)}",
    ]
    rows = [
        (quoted(row.string), f"{row.value:.4f}", above(row.lower), f"{row.upper:.4f}")
        for row in discovery
    ]
    lines.append(outlook(discovery_answer(answer)))
    if rows:
        return "\n".join([*lines, "", table(("string", "share", "from", "to"), rows)])
    return "\n".join([*lines, "", f"nothing    {answer.reason}"])


def outlook(answer: DiscoveryAnswer) -> str:
    """Return as text how frequent a string must be to be found, and what rarer strings need."""
    if answer.found_from is None:
        return "candidates none: there are no reports"
    if answer.found_from > 1:
        needed = reports_needed(answer.reports, answer.found_from)
        return (
            f"candidates {answer.candidates}; nothing can be found yet: strings of "
            f"{COMMON_SHARE:.0%} of people need about {needed:,} reports"
        )
    return (
        f"candidates {answer.candidates}; strings of {answer.found_from:.2%} of people are found "
        "nearly always; strings half as frequent need 4 times as many reports\n"
        f"not found  strings whose code words have more than {answer.longest_code} bits (`dither "
        f"estimate {answer.metric} --category STRING` says which)"
    )


def discovery_lines(metric: Metric, strings: Sequence[str]) -> list[str]:
    """Return a line for each of these strings that can never be discovered, with the reason."""
    if not isinstance(metric, LocalMetric) or not isinstance(metric.domain, CodedVocabulary):
        return []
    mechanism, rule = metric.require_discovery(), metric.domain.deny_rule
    longest = mechanism.layout.depths[-1]
    lines = []
    for string in strings:
        text = normal_form(string)
        _, bits = mechanism.code.encode(text)
        if rule is not None and rule(text):
            lines.append(
                f"denied     {quoted(string)}: devices report {quoted(OTHER_VALUE)} in its place"
            )
        elif bits > longest:
            lines.append(
                f"too long   {quoted(string)}: its code word has {bits} bits or more, and `dither "
                f"discover` finds {longest} at most (the option `last`). Learn a code from public "
                "examples, or report a shorter text, such as the class of an error"
            )
    return lines


def above(lower: float) -> str:
    """Return a lower bound as text; the share exceeds zero, because somebody holds the string.

    >>> above(0.0), above(0.01234)
    ('> 0', '0.0123')
    """
    return f"{lower:.4f}" if lower else "> 0"


def quoted(text: str) -> str:
    r"""Return a string in quotes, with control characters escaped.

    >>> quoted("N725MQ"), quoted("a\x1b[2J")
    ('"N725MQ"', '"a\\u001b[2J"')
    """
    return f'"{printable(text)}"'
