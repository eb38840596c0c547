"""The supervisor keeps as many workers running as it was asked for, and none outlives it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aggregator.counting import supervisor
from aggregator.counting.supervisor import Supervisor, single_worker_command
from tests.support.paths import ROOT
from tests.support.running.deployment import wait_until
from tests.support.running.processes import descendants, living

WORKER = """
import os, pathlib, signal, sys
folder, conduct = sys.argv[1:]
if conduct == "good":
    def leave(*_):
        pathlib.Path(folder, f"{os.getpid()}.left").touch()
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
pathlib.Path(folder, f"{os.getpid()}.started").touch()
while conduct != "short-lived":
    signal.pause()
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "RESTART_SECONDS", 0.0)


@contextlib.contextmanager
def running(
    workers: int, folder: Path, conduct: str = "good", died: Callable[[], object] = lambda: None
) -> Iterator[Supervisor]:
    """Run a supervisor in a thread; afterwards it was stopped."""
    runner = Supervisor(workers, [sys.executable, "-c", WORKER, str(folder), conduct], died)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join(30)
        assert not thread.is_alive()


def started(folder: Path) -> list[int]:
    """Return the workers that have started so far, the earliest first."""
    files = sorted(folder.glob("*.started"), key=lambda file: file.stat().st_mtime_ns)
    return [int(file.stem) for file in files]


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    deaths: list[int] = []
    with running(2, tmp_path, died=lambda: deaths.append(1)):
        wait_until(lambda: len(started(tmp_path)) == 2, "two workers")
        killed, kept = started(tmp_path)
        assert not deaths
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: len(started(tmp_path)) == 3, "another worker")
        assert living(set(started(tmp_path))) == set(started(tmp_path)) - {killed}
        assert living({kept})
    assert living(set(started(tmp_path))) == set()
    assert len(deaths) == 1


def test_dying_workers_start_ever_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_SECONDS", 0.4)
    with running(1, tmp_path, "short-lived"):
        wait_until(lambda: len(started(tmp_path)) >= 3, "three attempts")
    times = sorted(file.stat().st_mtime for file in tmp_path.glob("*.started"))
    assert times[2] - times[0] >= 0.4


@pytest.mark.parametrize("given", [["--workers", "3"], ["--workers=3"], []])
def test_one_worker_is_started_with_the_same_options_but_for_their_number(given: list[str]) -> None:
    options = ["aggregate", *given, "--set", "serve.port=1", "--log-json"]
    command = single_worker_command(options, None)
    ours = [sys.executable, "-m", "aggregator"]
    port = ["--set", "aggregate.health_port=0"]
    assert command == [*ours, *options, *port, "--workers", "1"], "the last number counts"


# -- However a supervisor ends, its workers do not count on by themselves --------------------------

PARENT = """
import signal, sys
from aggregator.counting.supervisor import Supervisor
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
supervisor = Supervisor(2, [sys.executable, "-c", *sys.argv[1:]])
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: supervisor.stop())
supervisor.run()
"""


@contextlib.contextmanager
def parent(folder: Path, conduct: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a supervisor of two workers in a process; afterwards nobody of them is left."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, WORKER, str(folder), conduct],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    seen = set[int]()
    try:
        wait_until(lambda: len(started(folder)) == 2, "two workers")
        seen |= descendants(process.pid)
        assert seen >= set(started(folder))
        yield process
        wait_until(lambda: not living(seen), "nobody is left")
    finally:
        process.kill()
        process.wait()
        for pid in living(seen):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    with parent(tmp_path, "good") as process:
        process.send_signal(number)
    left = {int(file.stem) for file in tmp_path.glob("*.left")}
    assert left == set(started(tmp_path)), "each was asked first, so that it could commit"


@pytest.mark.parametrize("conduct", ["stubborn", "frozen"])
def test_a_worker_that_does_not_listen_ends_too(tmp_path: Path, conduct: str) -> None:
    with parent(tmp_path, "stubborn") as process:
        if conduct == "frozen":
            for pid in started(tmp_path):
                os.kill(pid, signal.SIGSTOP)
        process.kill()
