"""`dither bench`: measured against the limit, and against other libraries."""

from __future__ import annotations

import importlib

import click

from aggregator.errors import DitherError

PACKAGE = "benchmarks"
MODULE = f"{PACKAGE}.command"


@click.command("bench")
def _missing() -> None:
    """Measure every stage against a baseline: needs a clone of the repository."""
    raise DitherError(
        "the benchmarks are not part of an installed package: clone the repository, and run "
        "`make bench` there"
    )


def _found() -> click.Command:
    """Return the benchmarks' own command, where the repository is there to have them."""
    try:
        command = importlib.import_module(MODULE).bench
    except ModuleNotFoundError as error:
        if error.name not in (PACKAGE, MODULE):  # the second: a package of that name, not ours
            raise
        return _missing
    assert isinstance(command, click.Command)  # noqa: S101
    return command


bench = _found()
