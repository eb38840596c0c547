"""`dither define`: a metric's definition from columns of a CSV file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from aggregator.errors import DitherError
from aggregator.terminal.options import cell_options
from estimators import LocalMetric
from estimators import define as make_metric
from estimators.discovery.learning import learn_code
from estimators.discovery.string_code import normal_form
from estimators.errors import DefinitionError
from estimators.metrics.categories import OPEN_VOCABULARY
from producers.populations.suggestions.suggestion import (
    SUGGESTED_KINDS,
    SUGGESTED_LEVELS,
    Suggestion,
    suggest,
)
from producers.populations.text_files import shell_word
from producers.populations.time_columns import UTC

OPTION_BY_KEY = {"range": "--range", "levels": "--level", "name": "--name", "by": "--by"}
"""The option that sets a key of the definition, by the key."""


@click.command()
@click.argument(
    "table",
    metavar="[FILE]",
    required=False,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    help="Column with the values; repeat it to give one for each axis of a frequency.",
)
@click.option(
    "--examples",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Instead of FILE: public strings, one a line, for a metric that discovers such strings.",
)
@cell_options
@click.option("--name", help="Name of the metric [default: that of the columns].")
@click.option("--unit", default="", show_default=False, help="Unit of the values, shown to people.")
@click.option(
    "--kind",
    type=click.Choice(SUGGESTED_KINDS),
    help="Kind of the metric [default: mean of numbers, distribution of numbers with long tails, "
    "frequency of strings].",
)
@click.option(
    "--range",
    "value_range",
    type=(float, float),
    metavar="LOW HIGH",
    help="Range of the values; others are clipped [default: from rounded quantiles].",
)
@click.option(
    "--category", "categories", multiple=True, help="A category to count; may be repeated."
)
@click.option(
    "--list-categories",
    is_flag=True,
    help="Write all strings of the file into the definition, as categories.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Use an open vocabulary: any string is counted, none is listed.",
)
@click.option(
    "--level",
    "levels",
    type=float,
    multiple=True,
    default=SUGGESTED_LEVELS,
    help="An epsilon that owners may choose; may be repeated.",
)
@click.option(
    "--users-per-day",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="How many users will report on a day: panes are wide enough for a history "
    "[default: as many as the file has].",
)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Column with a public attribute of the devices, such as the country: there are answers "
    "for each of its values, which are written into the definition; may be repeated.",
)
@click.option(
    "--above", type=float, metavar="VALUE", help="Ask which share of the numbers is above this one."
)
def define(
    table: str | None,
    columns: tuple[str, ...],
    examples: Path | None,
    levels: tuple[float, ...],
    **options: Any,
) -> None:
    """Suggest a metric for columns of a CSV file (-: the standard input), for metrics.toml.

    Numbers become a mean, or a distribution if their tails take most of their range; 0 and 1, or
    yes and no, become a share; strings become a frequency. Several columns become the axes of a
    frequency, for two-way tables. Everybody can read a definition, so values of the file are
    written into it only if you ask for it: a range comes from rounded quantiles, strings are listed
    only with --list-categories, attributes with --by. The error output says what was decided, what
    each range costs, and how wide the bounds of all rows, of a pane and of each slice will be.

    \b
    dither define flights.csv --column dep_delay --range -60 180 > metrics.toml
    dither define crashes.csv --column used_x --column crashed > metrics.toml

    With --examples the metric discovers frequent strings without a list. A code is learnt from the
    strings of the file and becomes part of the definition, so these strings must not be private.
    """  # noqa: D301  click reads the backspace: these lines stay as they are
    if examples is not None:
        if table is not None or columns:
            raise click.UsageError("--examples: expected no FILE and no --column")
        click.echo(define_discovery(examples, options["name"] or examples.stem, sorted(levels)))
        return
    if table is None or not columns:
        raise click.UsageError("expected a FILE and --column, or --examples")
    try:
        suggestion = suggest(table, columns, levels=sorted(levels), **options)
    except DefinitionError as error:
        raise DitherError(_explain_option(error)) from None
    except ValueError as error:
        raise DitherError(str(error)) from None
    for note in suggestion.notes:
        click.echo(note, err=True)
    arguments = map(shell_word, _arguments(suggestion, table, options))
    command = f"dither produce {' '.join(arguments)}"
    click.echo(f"next: this in metrics.toml; dither up; in a second terminal: {command}", err=True)
    click.echo(suggestion.text)


def _arguments(suggestion: Suggestion, table: str, options: dict[str, Any]) -> list[str]:
    """Return the arguments that make `dither produce` read the same cells."""
    arguments = [suggestion.name, "--csv", table]
    titles = suggestion.attributes.items()
    attributes = [f"{name}={title}" for name, title in titles if name != title]
    flags = {"--column": suggestion.columns, "--attribute": attributes}
    flags |= {"--time-column": options["time"], "--missing": options["missing"]}
    named = {name: options[name] for name in ("above", "decimal", "time_format", "time_zone")}
    defaults = (None, UTC)
    flags |= {
        f"--{name.replace('_', '-')}": [f"{value:g}" if name == "above" else value]
        for name, value in named.items()
        if value not in defaults
    }
    return arguments + [
        text for flag, values in flags.items() for value in values for text in (flag, value)
    ]


def define_discovery(examples: Path, name: str, levels: list[float]) -> str:
    """Return the definition of a metric that discovers strings like those of a file.

    `examples`: one string per line; `name`: the metric's name; `levels`: the epsilons on offer.
    Raises DitherError if the strings yield no code, or the definition is invalid.
    """
    keys: dict[str, Any] = {"kind": "frequency", "categories": OPEN_VOCABULARY, "discover": True}
    try:
        lines = [*filter(None, examples.read_text(encoding="utf-8-sig").split("\n"))]
        learnt = learn_code(lines)
        code = learnt.packed()
        metric = LocalMetric.require(make_metric(name=name, levels=levels, code=code, **keys))
    except DefinitionError as error:
        raise DitherError(_explain_option(error)) from None
    except UnicodeDecodeError as error:
        expected = f"expected UTF-8, as `iconv -f UTF-16 -t UTF-8 {examples}` prints"
        raise DitherError(f"{examples}: {error}: {expected}") from None
    except ValueError as error:
        raise DitherError(f"{examples}: {error}") from None
    longest = metric.require_discovery().layout.depths[-1]
    over = sum(learnt.encode(normal_form(line))[1] > longest for line in lines)
    if over:
        note = (
            f"{over:,} of {len(lines):,} examples have code words of more than {longest} bits: "
            "such strings are never found. options = { last = 128 } finds up to 128 bits"
        )
        click.echo(note, err=True)
    values = {**keys, "levels": levels, "pane": "1d", "code": code}
    return "\n".join([f"[metrics.{name}]", *(f"{k} = {json.dumps(v)}" for k, v in values.items())])


def _explain_option(error: DefinitionError) -> str:
    """Return the message of an error, with the option that sets the wrong key."""
    section, _, key = error.key.partition(".")
    if section == "attributes":
        return f"--by: {error}; --missing TEXT leaves one out"
    if key not in OPTION_BY_KEY:
        return str(error)
    return f"{OPTION_BY_KEY[key]} {format_value(error.value)}: expected {error.expected}"


def format_value(value: object) -> str:
    """Return a value as it is written on the command line.

    >>> format_value((5.0, 1.5)), format_value("Delay")
    ('5 1.5', 'Delay')
    """
    if isinstance(value, list | tuple):
        return " ".join(f"{number:g}" for number in value)
    return str(value)
