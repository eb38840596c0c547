"""A peer as a process that measures what it is asked to, when its turn comes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benchmarks.measure import Side
from benchmarks.peers.environments import python_of

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 10.0


class PeerError(RuntimeError):
    """A peer ended, or could not do what it was asked."""


@contextmanager
def serving(name: str, given: Mapping[str, object]) -> Iterator[Peer]:
    """Start a peer, in its environment, with what it is given; it ends with the block.

    Raises
    ------
    NotInstalledError
        If there is no environment for it.
    """
    module = f"benchmarks.peers.with_{name.replace('-', '_')}"
    command = [str(python_of(name)), "-m", module, json.dumps(given)]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101
        try:
            yield Peer(name, process.stdin, process.stdout)
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


class Peer:
    """The two ends of the pipe to a peer: a task goes in, a rate comes out."""

    def __init__(self, name: str, tasks: IO[str], rates: IO[str]) -> None:
        self.name, self._tasks, self._rates = name, tasks, rates

    def side(self, task: str) -> Side:
        """Return a side that does one of the peer's tasks, in its process.

        It raises PeerError if the peer cannot.
        """

        def rate(seconds: float) -> float:
            self._tasks.write(json.dumps([task, seconds]) + "\n")
            self._tasks.flush()
            line = self._rates.readline()
            if not line:
                raise PeerError(f"{self.name} ended while it had to {task}")
            return float(json.loads(line))

        return rate
