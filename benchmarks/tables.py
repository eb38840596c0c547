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
from benchmarks.command import short
from benchmarks.measure import STAGES
from benchmarks.record import RECORDED, Record

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
        for name in ("machine", *STAGES, "not run"):
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
    results = [
        (measured, against, short(result.ours), short(result.baseline), result.unit, ratio)
        for key, result in record.results.items()
        for stage, measured, against in [_parts(key)]
        for ratio in [
            f"**{_ratio(result.ratio)}** ({_ratio(result.lowest)} to {_ratio(result.highest)})"
        ]
        if stage == name
    ]
    figures = [
        (key.partition("/")[2].replace("/", ": "), f"{figure.value:.3g}", figure.unit)
        for key, figure in record.figures.items()
        if key.split("/")[0] == name
    ]
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
        (epsilon, *(_rounded(needed[head]) if head in needed else "" for head in heads))
        for epsilon, needed in users.items()
    ]
    return rows(("epsilon", *heads), lines)


def _rounded(number: float) -> str:
    """Return a count with three digits.

    Examples
    --------
    >>> _rounded(163_912.0), _rounded(66.6), _rounded(1.05)
    ('164,000', '67', '1.1')
    """
    if number < 10:
        return f"{number:.2g}"
    return f"{float(f'{number:.3g}'):,.0f}"


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


def _ratio(ratio: float) -> str:
    """Return a ratio with three digits.

    Examples
    --------
    >>> _ratio(0.12345), _ratio(9630.4)
    ('0.123', '9,630')
    """
    return f"{ratio:.3g}" if ratio < 1_000 else f"{ratio:,.0f}"


def _parts(name: str) -> tuple[str, str, str]:
    """Return the stage, what was measured, and against what.

    Examples
    --------
    >>> _parts("peers/randomize/grr/opendp")
    ('peers', 'randomize: grr', 'opendp')
    """
    stage, *measured, against = name.split("/")
    return stage, ": ".join(measured), against


if __name__ == "__main__":
    main()
