"""Commands whose code is in the repository and not in an installed package."""

from __future__ import annotations

import importlib

import click

from aggregator.errors import DitherError


def command_of_clone(module: str, name: str, program: str, remedy: str) -> click.Command:
    """Return a command of the repository; without its code, return one that refuses to run.

    Parameters
    ----------
    module, name : str
        The module that contains the command, and the command's name.
    program, remedy : str
        The code that an installed package lacks, and what to do in a clone; both for the message.
    """
    try:
        command: click.Command = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something else is missing

        def missing() -> None:
            raise DitherError(
                f"{program}: not part of an installed package: clone the repository, "
                f"`make setup`, and {remedy}"
            )

        return click.Command(name, callback=missing, help="Needs a clone of the repository.")
    return command
