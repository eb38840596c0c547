"""The forms in which commands print answers: text for people, JSON, CSV, or a Parquet file."""

from __future__ import annotations

import dataclasses
import functools
import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from aggregator.reading.frames.frame import Frame

STDOUT_PATH = "-"


@dataclasses.dataclass(frozen=True)
class Output:
    """The form of an answer, by default text; `parquet`: a path, or ``-`` for standard output."""

    as_json: bool = False
    as_csv: bool = False
    parquet: str | None = None

    @property
    def is_table(self) -> bool:
        """Whether the form is a table."""
        return self.as_csv or self.parquet is not None

    def show(
        self, frame: Callable[[], Frame], document: Callable[[], str], text: Callable[[], str]
    ) -> None:
        """Print an answer in the chosen form.

        Parameters
        ----------
        frame, document, text : callable
            Return the answer as a table, as JSON and as text; only one of them is called.
        """
        if self.is_table:
            self.write(frame())
        else:
            click.echo(document() if self.as_json else text())

    def write(self, frame: Frame) -> None:
        """Print a table, or write it to its file.

        Raises LibraryMissingError if the package that writes Parquet is not installed.
        """
        if self.as_csv:
            click.echo(frame.to_csv(), nl=False)
        elif self.parquet == STDOUT_PATH:
            buffer = io.BytesIO()
            frame.to_parquet(buffer)
            click.echo(buffer.getvalue(), nl=False)
        elif self.parquet is not None:
            frame.to_parquet(self.parquet)


def progress_bar(label: str, length: int, *, is_quiet: bool) -> Any:
    """Return a progress bar on standard error; it is hidden if standard error is no terminal.

    `label`: the text before the bar; `length`: the number of steps; `is_quiet`: whether to hide it
    in any case.
    """
    hidden = is_quiet or not sys.stderr.isatty()
    return click.progressbar(length=length, label=label, file=sys.stderr, hidden=hidden)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for an answer's form to a command, and pass it an `Output`."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @click.option("--csv", "as_csv", is_flag=True, help="Print a table as CSV, one row per number.")
    @click.option(
        "--parquet",
        metavar="FILE",
        help="Write the same table as Parquet (-: to the standard output).",
    )
    @functools.wraps(command)
    def with_output(as_json: bool, as_csv: bool, parquet: str | None, **arguments: Any) -> Any:
        if as_json + as_csv + (parquet is not None) > 1:
            raise click.UsageError("--json, --csv, --parquet: expected one of them")
        return command(output=Output(as_json, as_csv, parquet), **arguments)

    return with_output
