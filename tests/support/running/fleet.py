"""Workers and servers as processes that are cheap to start: forked with all their imports."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "aggregator.cli.main",
        "aggregator.cli.commands.aggregate",
        "aggregator.cli.commands.serve",
        "aggregator.publishing.publisher",
        "aggregator.verifying.verify",
        "aggregator.web",
        "tests.support.running.fleet",
        "uvicorn",
    ]
)
STARTING = threading.Lock()
LEAVE_SECONDS = 60.0


def start(
    command: str, arguments: Sequence[str], log: Path | None = None, ahead_seconds: float = 0.0
) -> BaseProcess:
    """Start a command of `dither` in a process group of its own.

    It has the environment of this process; modules are those that this process began with.

    Parameters
    ----------
    command : str
    arguments : sequence of str
    log : Path, optional
        Where it writes; where this process does if it is left out.
    ahead_seconds : float
        By how much its clock is ahead.
    """
    given = (command, [*arguments], str(log or ""), ahead_seconds, dict(os.environ))
    process = CONTEXT.Process(target=be, args=given)
    with STARTING:
        process.start()
    return process


def be(
    command: str,
    arguments: Sequence[str],
    log: str,
    ahead_seconds: float,
    environ: Mapping[str, str],
) -> None:
    """Be a command of `dither`, writing to a log file, on a machine whose clock is wrong."""
    from aggregator.cli.main import main

    os.environ.clear()
    os.environ.update(environ)
    _set_clocks(ahead_seconds)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; whoever started us stops us
    os.setpgrp()
    if log:
        with Path(log).open("ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv = ["dither", command, *arguments]
    main()


def _set_clocks(ahead_seconds: float) -> None:
    """Have Python's wall clocks be ahead by so much; those that only count seconds stay."""
    if ahead_seconds:
        seconds, nanoseconds = time.time, time.time_ns
        time.time = lambda: seconds() + ahead_seconds
        time.time_ns = lambda: nanoseconds() + int(ahead_seconds * 1e9)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class Fleet:
    """Workers that come and go; one that ends by itself is started again, as a supervisor would.

    Parameters
    ----------
    arguments : sequence of str
        Of the command.
    log : Path
        Where all of them write.
    command : str
    """

    def __init__(self, arguments: Sequence[str], log: Path, command: str = "aggregate") -> None:
        self.arguments, self.log, self.command = list(arguments), log, command
        self.processes: list[BaseProcess] = []
        self.ended_alone = 0
        self._lock = threading.RLock()

    def join(self, ahead_seconds: float = 0.0) -> None:
        """Start another worker, on a machine whose clock is ahead by so much."""
        process = start(self.command, self.arguments, self.log, ahead_seconds)
        with self._lock:
            self.processes.append(process)

    def leave(self, choice: float) -> None:
        """Ask a worker to leave; it drains and commits on its own time."""
        with self._lock:
            if process := self._choose(choice):
                process.terminate()

    def kill(self, choice: float) -> None:
        """Kill a worker (SIGKILL)."""
        with self._lock:
            if process := self._choose(choice):
                self.processes.remove(process)
                process.kill()
                process.join()

    @contextlib.contextmanager
    def frozen(self, choice: float) -> Iterator[None]:
        """Stop a worker where it is (SIGSTOP), and let it go on at the end."""
        with self._lock:
            process = self._choose(choice)
            _signal(process, signal.SIGSTOP)
        try:
            yield
        finally:
            with self._lock:
                _signal(process, signal.SIGCONT)

    def keep(self, at_least: int) -> None:
        """Forget the workers that ended, and start others until there are enough."""
        with self._lock:
            for process in list(self.processes):
                if not process.is_alive():
                    process.join()
                    self.ended_alone += process.exitcode != 0
                    self.processes.remove(process)
            missing = at_least - len(self.processes)
        for _ in range(missing):
            self.join()

    def stop(self) -> list[int | None]:
        """Ask every worker to leave; return how they ended, None for one that did not."""
        with self._lock:
            for process in self.processes:
                process.terminate()
            codes = []
            for process in self.processes:
                process.join(LEAVE_SECONDS)
                codes.append(process.exitcode)
                process.kill()
                process.join()
            self.processes.clear()
        return codes

    def _choose(self, choice: float) -> BaseProcess | None:
        return self.processes[int(choice * len(self.processes))] if self.processes else None


def _signal(process: BaseProcess | None, number: signal.Signals) -> None:
    if process is not None and process.pid and process.is_alive():
        os.kill(process.pid, number)
