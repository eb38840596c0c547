"""Compute what a fleet needs: ``python -m benchmarks.capacity --devices 1e9``.

The need is that of a day's peak hour, and is computed from measured rates
(`benchmarks/recorded.json`). docs/capacity.md explains the model.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import click

from benchmarks.capacity_model import Assumptions, Fleet, Rates, need
from benchmarks.record import RECORDED, Record, short, three_digits

DEVICES = (1e6, 1e8, 1e9)
CROWD_BATCH = 50_000.0
"""Reports in a message that a gateway writes for a crowd: 200 kB hold 66,666 of 3 bytes."""
MAY_BE_NONE = {
    *("lateness_seconds", "late_share", "posted", "sealed"),
    *("cents_core_hour", "cents_gigabyte_hour"),
}
DOCUMENTED = re.compile(r"^ {4}([\w, ]+) : .*\n((?: {8}.*\n)*)", re.MULTILINE)
HELP = {
    name: " ".join(text.split())
    for documented in (Fleet, Assumptions)
    for names, text in DOCUMENTED.findall(documented.__doc__ or "")
    for name in names.split(", ")
}


def table(rates: Rates) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and lines of the fleets of docs/capacity.md."""
    lines = []
    for devices in DEVICES:
        fleets = {
            "1": Fleet(devices, 24.0),
            "1, to a relay": Fleet(devices, 24.0, CROWD_BATCH, pane_seconds=3_600.0, sealed=1.0),
            "100": Fleet(devices, 24.0, 100.0),
        }
        for posted, fleet in fleets.items():
            needed = need(fleet, rates)
            cells = (_text(name, value) for name, value in needed.items())
            lines.append((f"{devices:,.0f}", posted, *cells))
    return ("devices", "reports a post", *needed), lines


def _options(command: Any) -> Any:
    """Give a command an option for each fact of a fleet, and for each assumption."""
    fields = [*dataclasses.fields(Fleet), *dataclasses.fields(Assumptions)]
    for field in reversed(fields):
        settings: dict[str, Any] = {"type": float, "required": True}  # it has no default at all
        if field.default is not dataclasses.MISSING:
            settings = {"type": type(field.default), "default": field.default, "show_default": True}
        name = f"--{field.name.replace('_', '-')}"
        command = click.option(name, help=HELP.get(field.name), **settings)(command)
    return click.option(
        "--id-bytes", type=float, help="Of an id in a worker, instead of what is recorded."
    )(command)


@click.command()
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=RECORDED
)
@_options
def main(file: Path, id_bytes: float | None, **facts: Any) -> None:
    """Compute what a fleet needs at its peak, from the rates of a recorded run.

    FILE is a record of `dither bench --json` on your machine, instead of the one of the project.
    """
    for name, value in facts.items():
        if not 0 <= value < math.inf or (value == 0 and name not in MAY_BE_NONE):
            expected = "of 0 or more" if name in MAY_BE_NONE else "above 0"
            raise click.BadParameter(
                f"{value:g}: expected a finite number {expected}",
                param_hint=f"--{name.replace('_', '-')}",
            )
    limits = {field.name: facts.pop(field.name) for field in dataclasses.fields(Assumptions)}
    try:
        rates = Rates.of(Record.read(file))
        if id_bytes is not None:
            rates = dataclasses.replace(rates, held_id_bytes=id_bytes)
        result = need(Fleet(**facts), rates, Assumptions(**limits))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    except KeyError as error:
        raise click.ClickException(
            f"{file} has no {error}: measure it with `dither bench --only STAGE --update --json "
            f"{file}`, for the stages `end to end`, `commit`, `memory`, `gateway` and `crowds`"
        ) from None
    for name, value in result.items():
        click.echo(f"{name:24} {_text(name, value)}")


def _text(name: str, value: float) -> str:
    """Return a need as human-readable text."""
    if "bytes" in name:
        return f"{short(value, ' ')}B"
    if name == "busy":
        return f"{value:.0%}"
    return f"{value:,}" if isinstance(value, int) else three_digits(value)


if __name__ == "__main__":
    main()
