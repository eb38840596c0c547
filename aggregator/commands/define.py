"""`dither define`: a metric's definition from a column of a CSV file."""

from __future__ import annotations

import click

from aggregator.errors import DitherError
from producers.definitions import LEVELS, suggest


@click.command()
@click.argument("table", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--column", required=True, help="The column of the values.")
@click.option("--time-column", multiple=True, help="Its column of event times; may be repeated.")
@click.option("--name", help="Of the metric [default: the column's].")
@click.option("--unit", default="", help="Of a mean, for people.")
@click.option(
    "--range",
    "within",
    type=(float, float),
    metavar="LOW HIGH",
    help="What a mean's values can be; others are clipped [default: the file's smallest, largest].",
)
@click.option(
    "--level",
    "levels",
    type=float,
    multiple=True,
    default=LEVELS,
    show_default=True,
    help="An epsilon on offer; may be repeated.",
)
def define(
    table: str,
    column: str,
    time_column: tuple[str, ...],
    name: str | None,
    unit: str,
    within: tuple[float, float] | None,
    levels: tuple[float, ...],
) -> None:
    """Suggest a metric for a column of a CSV file: a table for metrics.toml.

    Numbers become a mean, up to a thousand distinct strings a frequency of these categories, more
    strings an open vocabulary. Look it over: everybody can read a definition, so a range or a list
    of categories says something about the file that it was taken from.

    \b
    dither define flights.csv --column dep_delay --range -60 180 > metrics.toml
    """  # noqa: D301  click reads the backspace: these lines stay as they are
    try:
        text = suggest(
            table,
            column,
            name=name,
            unit=unit,
            time=time_column,
            within=within,
            levels=sorted(levels),
        )
    except ValueError as error:
        raise DitherError(str(error)) from None
    click.echo(text)
