"""The command line, `dither`: a command is a file in aggregator/cli/commands."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

GROUPS = {
    "Run": {
        "demo": "Replay a year of flights as private telemetry, on servers of its own.",
        "up": "Run the whole service on this machine, for metrics of your own.",
        "produce": "Report a CSV column, or a simulated population, into Kafka.",
        "aggregate": "Count reports from Kafka into Redis.",
        "coordinate": "Open and decide the rounds of minimum and maximum.",
        "serve": "Serve estimates over HTTP: dashboard, API, Prometheus.",
        "kafka": "Run Apache Kafka on this machine, without Docker.",
    },
    "Ask": {
        "define": "Suggest a metric for a column of a CSV file.",
        "estimate": "Show a metric's estimate and its bounds.",
        "watch": "Watch a metric's estimate and its bounds move.",
        "metrics": "List the metrics and how far they are counted.",
        "weights": "Show or change how much each privacy level counts.",
    },
    "Operate": {
        "deadletters": "List, explain, send again or drop what could not be counted.",
        "verify": "Replay the log and compare the state byte by byte.",
        "recount": "Have partitions counted again from their log.",
        "topics": "Create the Kafka topics that are missing.",
        "roles": "List the rights that each role needs in Kafka and Redis.",
        "tokens": "Make tokens for the HTTP interface.",
        "ledger": "Tell what a device has given away, from its privacy ledger.",
        "completion": "Print the script that completes commands and metrics in a shell.",
    },
    "Research": {
        "audit": "Prove that no report says more than its level allows.",
        "reproduce": "Run the papers' experiments.",
        "bench": "Measure every stage against a baseline, and against other libraries.",
    },
}
"""Commands by what one wants to do, in the order of a newcomer's day."""
COMMANDS = {name: told for group in GROUPS.values() for name, told in group.items()}

COMPLETE_VARIABLE = "_DITHER_COMPLETE"
"""What a shell sets to ask for completions."""


class LazyGroup(click.Group):
    """A group that imports a command's module only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"aggregator.cli.commands.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any of them."""
        for name, commands in GROUPS.items():
            with formatter.section(name):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete the commands' names without importing any of them."""
        found = [
            CompletionItem(name, help=told)
            for name, told in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found or super().shell_complete(ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when there is none of that name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from estimators.errors import meant

            message = f"no command {args[0]!r}: {meant(args[0], COMMANDS)}"
            raise click.UsageError(message, ctx) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dither")
def cli() -> None:
    """Dither: telemetry that is private before it leaves the device.

    Devices randomize each value at the privacy level their owner chose and report it into Kafka; an
    aggregator keeps exact sums in Redis; estimates come out with confidence bounds that hold.

    Start with `dither demo`: it needs no server.
    """


def main(args: list[str] | None = None) -> Any:
    """Run the command line; a failure a person can act on is a message and exit code 1."""
    try:
        return cli.main(args, complete_var=COMPLETE_VARIABLE, standalone_mode=True)
    except Exception as error:
        from aggregator.cli.failure_messages import explain_failure

        message = explain_failure(error)
        if message is None:
            raise
        click.echo(f"Error: {message}", err=True)
        sys.exit(1)
