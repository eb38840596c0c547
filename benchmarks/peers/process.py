"""Runs a peer as a process, which does tasks and measures them on request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import CannotRunError

FOLDER = Path(__file__).parent


@contextmanager
def serving(name: str, reports: int) -> Iterator[Callable[[str, float], float]]:
    """Start a peer, which measures noise with that many reports; the peer ends with the block.

    Yield a function that has the peer do a task for some seconds, in its process, and returns the
    rate. It raises CannotRunError if the peer ends instead. uv installs what the script's first
    lines pin, in an environment of its own.
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
        tasks, rates = process.stdin, process.stdout

        def rate(task: str, seconds: float) -> float:
            try:
                tasks.write(json.dumps([task, seconds]) + "\n")
                tasks.flush()
                return float(json.loads(rates.readline()))
            except (BrokenPipeError, ValueError):
                errors.seek(0)
                last = (errors.read().strip().splitlines() or ["nothing"])[-1]
                raise CannotRunError(f"{name} ended, and said {last}") from None

        try:
            yield rate
        finally:
            process.terminate()
