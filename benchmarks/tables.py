"""Markdown tables of a recorded run: ``python -m benchmarks.tables FILE``, or into the docs.

With ``--write`` the tables of a page are replaced by those of the recorded run, each between
``<!-- benchmarks: STAGE -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks import capacity
from benchmarks.capacity_model import Rates
from benchmarks.record import RECORDED, Record, short, three_digits

BLOCK = re.compile(r"(<!-- benchmarks: ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


@click.command()
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=RECORDED
)
@click.option(
    "--write",
    "pages",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replace the tables of this page instead of printing; can be repeated.",
)
def main(file: Path, pages: tuple[Path, ...]) -> None:
    """Print the tables of a run that `dither bench --json FILE` has recorded."""
    record = Record.read(file)
    for page in pages:
        page.write_text(filled(page.read_text(), record))
    if not pages:
        stages = dict.fromkeys(name.split("/")[0] for name in record.names)
        for name in ("machine", *stages, "not run"):
            click.echo(f"{name}:\n\n{table(record, name)}")


def filled(page: str, record: Record) -> str:
    """Return a page with its tables replaced by those of a record."""
    return BLOCK.sub(lambda found: found[1] + table(record, found[2]) + found[3], page)


def table(record: Record, name: str) -> str:
    """Return the table of a stage, or of ``machine``, ``not run`` or ``capacity``.

    The stage `users` has a table for each population: ``users/a mean, worst``.
    """
    if name == "machine":
        return rows(("", ""), list(record.machine.items()))
    if name == "not run":
        lacking = list(record.not_run.items())
        return rows(("benchmark", "why not"), lacking) if lacking else "Nothing.\n"
    if name == "capacity":
        return rows(*capacity.table(Rates.of(record)))
    if name.startswith("users/"):
        return _users(record, name)
    results, figures = [], []
    for key, result in record.benchmarks.items():
        stage, *measured, against = key.split("/")
        if stage == name:
            low, high = map(three_digits, record.spread[key])
            ratio = f"**{three_digits(result.ratio)}** ({low} to {high})"
            sides = short(result.ours), short(result.baseline), result.unit
            results.append((": ".join(measured), against, *sides, ratio))
    for key, figure in record.figures.items():
        stage, *measured = key.split("/")
        if stage == name:
            figures.append((": ".join(measured), f"{figure.value:.3g}", figure.unit))
    tables = []
    if results:
        tables.append(rows(("what", "against", "ours", "baseline", "unit", "ratio"), results))
    if figures:
        tables.append(rows(("what", "measured", "unit"), figures))
    return "\n".join(tables)


def _users(record: Record, name: str) -> str:
    """Return the users that each mechanism needs, a row for each epsilon."""
    users: dict[str, dict[str, float]] = {}
    for key, figure in record.figures.items():
        population, _, mechanism = key.rpartition("/")
        if population.startswith(f"{name}/"):
            users.setdefault(population.rpartition("/")[2], {})[mechanism] = figure.value
    heads = list(dict.fromkeys(mechanism for needed in users.values() for mechanism in needed))
    lines = [
        (epsilon, *(three_digits(needed[head]) if head in needed else "" for head in heads))
        for epsilon, needed in users.items()
    ]
    return rows(("epsilon", *heads), lines)


def rows(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Examples
    --------
    >>> print(rows(("a", "b"), [("1", "2")]), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    ruler = "|" + "---|" * len(heads)
    head, *body = ("| " + " | ".join(line) + " |" for line in [heads, *lines])
    return "\n".join([head, ruler, *body, ""])


if __name__ == "__main__":
    main()
