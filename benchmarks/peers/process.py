"""Runs a peer as a process, which does tasks and measures them on request."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from benchmarks.measure import CannotRunError, Figure, NotRun, Outcome, Side
from benchmarks.peers.environments import NotInstalledError, python_of

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 10.0


@contextmanager
def serving(name: str, population: Mapping[str, object]) -> Iterator[Peer]:
    """Start a peer in its environment, with a population; the peer ends with the block.

    Raises
    ------
    NotInstalledError
        If its environment cannot be made.
    """
    module = f"benchmarks.peers.with_{name.replace('-', '_')}"
    command = [str(python_of(name)), "-m", module, json.dumps(population)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            yield Peer(name, process.stdin, process.stdout, errors)
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def outcomes(
    name: str,
    population: Mapping[str, object],
    benchmarks: Iterable[str],
    measured: Callable[[Peer], Iterator[Outcome]],
) -> Iterator[Outcome]:
    """Yield what a peer measures; if it has no environment, that its benchmarks do not run."""
    with ExitStack() as stack:
        try:
            peer = stack.enter_context(serving(name, population))
        except NotInstalledError as error:
            yield from (NotRun(benchmark, str(error)) for benchmark in benchmarks)
            return
        yield from measured(peer)


def figure(name: str, side: Side, unit: str, scale: float = 1.0) -> Outcome:
    """Return the result that a task measures itself, divided by `scale`."""
    try:
        return Figure(name, side(0) / scale, unit)
    except CannotRunError as error:
        return NotRun(name, str(error))


class Peer:
    """The two ends of the pipe to a peer: a task goes in, a rate comes out."""

    def __init__(self, name: str, tasks: IO[str], rates: IO[str], errors: IO[str]) -> None:
        self.name, self._tasks, self._rates, self._said = name, tasks, rates, errors

    def side(self, task: str) -> Side:
        """Return a side that does one of the peer's tasks, in its process.

        It raises CannotRunError if the peer ends instead.
        """

        def rate(seconds: float) -> float:
            try:
                self._tasks.write(json.dumps([task, seconds]) + "\n")
                self._tasks.flush()
                return float(json.loads(self._rates.readline()))
            except (BrokenPipeError, ValueError):
                self._said.seek(0)
                last = (self._said.read().strip().splitlines() or ["nothing"])[-1]
                raise CannotRunError(f"{self.name} ended, and said {last}") from None

        return rate
