"""Runs a peer as a process, which does tasks and measures them on request."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benchmarks.measure import CannotRunError, Side

FOLDER = Path(__file__).parent
STOP_SECONDS = 10.0


@contextmanager
def serving(name: str, reports: int) -> Iterator[Peer]:
    """Start a peer, which measures noise with that many reports; the peer ends with the block.

    uv installs what the script's first lines pin, in an environment of its own.
    """
    script = FOLDER / f"with_{name.replace('-', '_')}.py"
    command = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project"]
    command += ["--python", sys.executable, "--script", str(script), str(reports)]
    pipe, paths = subprocess.PIPE, {"PYTHONPATH": str(FOLDER.parents[1])}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, text=True, stdin=pipe, stdout=pipe, stderr=errors, env=os.environ | paths
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
