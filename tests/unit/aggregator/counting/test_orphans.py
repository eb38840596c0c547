"""Workers end with whoever started them, however that ends: none counts on by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.running.deployment import wait_until
from tests.support.running.processes import descendants, living
from tests.unit.aggregator.counting.test_supervisor import WORKER, started

PARENT = """
import signal, sys
from aggregator.counting.supervisor import Supervisor
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
supervisor = Supervisor(2, [sys.executable, "-c", *sys.argv[1:]])
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: supervisor.stop())
supervisor.run()
"""


class Parent:
    """A program of the test in a process, and all processes that it was seen to start."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        self.seen: set[int] = set()

    def look(self) -> set[int]:
        self.seen |= descendants(self.process.pid)
        return self.seen

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in living(self.seen):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def parents() -> Iterator[list[Parent]]:
    found: list[Parent] = []
    yield found
    for parent in found:
        parent.kill()


def two_workers(folder: Path, parents: list[Parent], conduct: str) -> Parent:
    parent = Parent(PARENT, WORKER, str(folder), conduct)
    parents.append(parent)
    wait_until(lambda: len(started(folder)) == 2, "two workers")
    assert set(started(folder)) <= parent.look()
    return parent


def has_ended(parent: Parent) -> bool:
    parent.process.poll()
    return not living(parent.seen)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(
    tmp_path: Path, parents: list[Parent], number: signal.Signals
) -> None:
    parent = two_workers(tmp_path, parents, "good")
    parent.process.send_signal(number)
    wait_until(lambda: has_ended(parent), "nobody is left")
    left = {int(file.stem) for file in tmp_path.glob("*.left")}
    assert left == set(started(tmp_path)), "each was asked first, so that it could commit"


@pytest.mark.parametrize("conduct", ["stubborn", "frozen"])
def test_a_worker_that_does_not_listen_ends_too(
    tmp_path: Path, parents: list[Parent], conduct: str
) -> None:
    parent = two_workers(tmp_path, parents, "stubborn")
    if conduct == "frozen":
        for pid in started(tmp_path):
            os.kill(pid, signal.SIGSTOP)
    parent.process.kill()
    wait_until(lambda: has_ended(parent), "nobody is left")
