"""The command line, `dither`: a command is a file in aggregator/cli/commands."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from aggregator.cli.lean_imports import LeanFinder, may_use_tls
from aggregator.feature import features

COMMAND_GROUPS = {
    "Run": {
        "demo": "Replay a year of flights as private telemetry; needs no server.",
        "up": "Run the whole service on this machine, for your own metrics.",
        "produce": "Report a CSV column or a simulated population to Kafka.",
        "aggregate": "Count reports from Kafka into Redis.",
        "serve": "Serve estimates over HTTP: dashboard, API, Prometheus.",
        "relay": "Shuffle the sealed reports of crowds, for another organisation.",
        "kafka": "Run Apache Kafka on this machine, without Docker.",
    },
    "Ask": {
        "define": "Suggest a metric for a column of a CSV file.",
        "plan": "Show how wide bounds will be, and how to share a budget.",
        "estimate": "Show a metric's estimate and its bounds.",
        "series": "Show a metric's estimates over time.",
        "watch": "Follow a metric's estimate and its bounds.",
        "slices": "List which slices of a metric have reports.",
        "metrics": "List the metrics and how many reports are counted.",
        "weights": "Show or change how much each privacy level counts.",
    },
    "Operate": {
        "deadletters": "List, explain, replay or drop messages that could not be counted.",
        "verify": "Replay the log and compare the result with the state in Redis.",
        "recount": "Count partitions again from their log.",
        "schemas": "Register the schemas of reports and events with a registry.",
        "topics": "Create the Kafka topics that are missing.",
        "roles": "List the rights that each role needs in Kafka and Redis.",
        "tokens": "Create tokens for the HTTP API.",
        "ledger": "Show what a device has spent of its privacy budget.",
        "completion": "Print a shell's completion script.",
    },
    "Research": {
        "audit": "Check every privacy level's guarantee.",
        "reproduce": "Run the papers' experiments.",
        "bench": "Benchmark every stage against a baseline and other libraries.",
    },
}
"""Help of the core's commands, by group and name, in the order in which a newcomer needs them."""


def command_groups() -> dict[str, dict[str, str]]:
    """Return the help texts of all commands, including those of features, by group and name."""
    groups = {group: dict(commands) for group, commands in COMMAND_GROUPS.items()}
    for feature in features():
        for name, (group, text) in feature.commands.items():
            groups[group][name] = text
    return groups


def command_help() -> dict[str, str]:
    """Return the help texts of all commands by name, in the order of the list of commands."""
    return {name: text for group in command_groups().values() for name, text in group.items()}


BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""The variable from which numpy's OpenBLAS takes its number of threads when it is loaded. Our
matrices are small: more threads make nothing faster, and threads that wait for each other in a loop
took up to ten times the processor time of the products."""
COMPLETE_VARIABLE = "_DITHER_COMPLETE"
"""The variable that a shell sets to ask for completions."""


def import_command(name: str) -> click.Command:
    """Import and return a command; garbage collection is off, which makes this a third faster.

    The imported objects are frozen: no later collection, nor the one at exit, goes through them.
    """
    owner = next((feature for feature in features() if name in feature.commands), None)
    module = f"aggregator.cli.commands.{name}"
    if owner is not None:
        module = f"aggregator.features.{owner.name}.{name}_command"
    collects = gc.isenabled()
    gc.disable()
    try:
        command: click.Command = getattr(importlib.import_module(module), name)
        gc.freeze()
    finally:
        if collects:
            gc.enable()
    return command


class LazyGroup(click.Group):
    """A group that imports a command's module only to run the command or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        return list(command_help())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name."""
        if cmd_name not in command_help():
            return None
        return import_command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into the help, without importing any of them."""
        for name, commands in command_groups().items():
            with formatter.section(name):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return the commands whose names complete a text, without importing any of them."""
        items = [
            CompletionItem(name, help=text)
            for name, text in command_help().items()
            if name.startswith(incomplete)
        ]
        return items or super().shell_complete(ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` name; an error about an unknown name suggests another."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from estimators.errors import meant

            message = f"no command {args[0]!r}: {meant(args[0], command_help())}"
            raise click.UsageError(message, ctx) from error


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(package_name="dither")
def cli() -> None:
    """Dither shows live statistics about many people without their raw values.

    Each device randomizes its value at the privacy level that its owner chose, and reports it to
    Kafka. An aggregator keeps exact sums in Redis. Estimates come with proved confidence bounds.

    Start with `dither demo`, which needs no server.
    """


def main(args: list[str] | None = None) -> Any:
    """Run the command line; an expected failure prints a message and exits with 1."""
    os.environ.setdefault(BLAS_THREADS, "1")  # before numpy is imported; for child processes, too
    words = sys.argv[1:] if args is None else args
    sys.meta_path.insert(0, LeanFinder(may_use_tls(words)))
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = None if stream.isatty() else "utf-8"  # of files, whatever the code page
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        return cli.main(args, complete_var=COMPLETE_VARIABLE, standalone_mode=True)
    except Exception as error:
        message = _explain(error, words)
        if message is None:
            raise
        if (logging := sys.modules.get("aggregator.config.logging")) is None:  # nothing is logged
            click.echo(f"Error: {message}", err=True)
        else:
            logging.tell_failure(message)
        sys.exit(1)


def _open_closed_streams() -> None:
    """Open each standard stream that is closed, so that no file or socket gets its descriptor.

    Standard output is opened for reading only: an answer that nobody gets is an error.
    """
    for name, access, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            unbuffered = io.FileIO(os.open(os.devnull, access), mode)
            setattr(sys, name, io.TextIOWrapper(unbuffered, write_through=True))


def _explain(error: Exception, args: list[str]) -> str | None:
    """Return a message about an expected failure; None for a defect."""
    if isinstance(error, ModuleNotFoundError):
        from aggregator.extras import EXTRA_BY_COMMAND, explain_missing_module

        command = next((word for word in args if word in command_help()), "")
        return explain_missing_module(error, f"dither {command}", EXTRA_BY_COMMAND.get(command))
    from aggregator.cli.failure_messages import explain_failure

    return explain_failure(error)
