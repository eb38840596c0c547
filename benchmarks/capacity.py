"""What a fleet needs: ``python -m benchmarks.capacity --devices 1e9``; docs/capacity.md explains.

Arithmetic on rates that were measured (`benchmarks/recorded.json`), for the peak hour of a day.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from benchmarks.capacity_model import Assumptions, Fleet, need
from benchmarks.capacity_rates import Rates
from benchmarks.record import Record

DEVICES = (1e6, 1e8, 1e9)
HELP = {"cells": "Of a level.", "posted": "Share of the messages that are posted to a gateway."}


def table(rates: Rates) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and lines of the fleets of docs/capacity.md."""
    heads = (
        *("devices", "reports a post", "messages/s", "gateways", "brokers", "partitions"),
        *("workers", "busy", "a worker's memory", "ids", "Redis masters", "Redis memory"),
        *("Redis writes", "Kafka keeps", "cores", "memory", "cents/h"),
    )
    return heads, [
        _line(f"{devices:.0e}".replace("e+0", "e"), told, need(Fleet(devices, 24.0, batch), rates))
        for devices in DEVICES
        for told, batch in (("1", 1.0), ("100", 100.0))
    ]


def _line(devices: str, batch: str, found: Any) -> tuple[str, ...]:
    return (
        devices,
        batch,
        f"{found.messages_per_second:,.0f}",
        f"{found.gateways:,}",
        f"{found.brokers:,}",
        f"{found.partitions:,}",
        f"{found.workers:,}",
        f"{found.busy:.0%}",
        size_text(found.worker_bytes),
        f"{found.remembered_ids:.2g}".replace("e+0", "e").replace("e+", "e"),
        f"{found.redis_masters:,}",
        size_text(found.redis_bytes),
        f"{size_text(found.redis_bytes_per_second)}/s",
        size_text(found.kafka_bytes),
        f"{found.cores:,.0f}",
        size_text(found.memory_bytes),
        f"{found.cents_per_hour:,.0f}",
    )


def size_text(size: float) -> str:
    """Return bytes with two digits or more.

    Examples
    --------
    >>> size_text(1_234_567), size_text(12)
    ('1.2 MB', '12 B')
    """
    for unit, letters in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            digits = 0 if size >= 10 * unit else 1
            return f"{size / unit:.{digits}f} {letters}"
    return f"{size:.2g} B"


def _options(command: Any) -> Any:
    """Give a command an option for each fact of a fleet, and for each assumption."""
    fields = [*dataclasses.fields(Fleet), *dataclasses.fields(Assumptions)]
    for field in reversed(fields):
        known: dict[str, Any] = {"type": float, "required": True}  # it has no default at all
        if field.default is not dataclasses.MISSING:
            known = {"type": type(field.default), "default": field.default, "show_default": True}
        name = f"--{field.name.replace('_', '-')}"
        command = click.option(name, help=HELP.get(field.name), **known)(command)
    return click.option(
        "--id-bytes", type=float, help="Of an id in a worker, instead of what is recorded."
    )(command)


@click.command()
@click.argument(
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=Path(__file__).with_name("recorded.json"),
)
@_options
def main(file: Path, id_bytes: float | None, **facts: Any) -> None:
    """Reckon what a fleet needs, from the rates of a recorded run."""
    limits = {field.name: facts.pop(field.name) for field in dataclasses.fields(Assumptions)}
    try:
        rates = Rates.of(Record.read(file))
        if id_bytes is not None:
            rates = dataclasses.replace(rates, held_id_bytes=id_bytes)
        found = need(Fleet(**facts), rates, Assumptions(**limits))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    except KeyError as error:
        raise click.ClickException(
            f"{file} has no {error}: measure it with `dither bench --only STAGE --update --json "
            f"{file}`, for the stages `end to end`, `commit`, `memory` and `gateway`"
        ) from None
    for name, value in dataclasses.asdict(found).items():
        told = size_text(value) if "bytes" in name else f"{value:,.6g}"
        click.echo(f"{name.replace('_', ' '):24} {told}")


if __name__ == "__main__":
    main()
