"""Programs that run until the end of a test, and processes of this machine by their ids."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.running.deployment import wait_until

PROC = Path("/proc")


def parents() -> dict[int, int]:
    """Return every living process and its parent; zombies are not living."""
    if not (PROC / "self" / "stat").exists():
        pytest.skip("needs /proc: children are found there")
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
                if state != "Z":
                    found[int(folder.name)] = int(parent)
    return found


def children(pid: int) -> set[int]:
    """Return the processes that a process has started itself."""
    return {child for child, parent in parents().items() if parent == pid}


def descendants(pid: int) -> set[int]:
    """Return the processes that a process has started, and those that they have started."""
    table = parents()
    found: set[int] = set()
    latest = {pid}
    while latest:
        latest = {child for child, parent in table.items() if parent in latest}
        found |= latest
    return found


def living(pids: set[int]) -> set[int]:
    """Return those of the processes that still run."""
    return pids & parents().keys()


def run(command: Sequence[str | Path], **options: Any) -> str:
    """Run a program until it ends; return its output, or fail the test with its error output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return str(done.stdout)


@contextlib.contextmanager
def answering(
    command: Sequence[str | Path], log: Path, answers: Callable[[], bool], **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that writes to a log, wait until it answers, and end it afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return answers()

    try:
        wait_until(is_ready, f"{command[0]} answers")
        yield process
    finally:
        process.terminate()
        process.wait(60)
