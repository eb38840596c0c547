"""Commands of `dither` as processes that are cheap to start: forked with all their imports.

The process of a command spends half a second of processor time on imports. Here one process has
imported them, and forks for each command: the command is still a separate process, with its
arguments, environment, folder, output and exit code.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
COMMANDS = ("aggregate", "deadletters", "estimate", "produce", "serve", "verify")
CONTEXT.set_forkserver_preload(
    [
        *("aggregator.cli.main", *(f"aggregator.cli.commands.{name}" for name in COMMANDS)),
        *("aggregator.publishing.publisher", "aggregator.verifying.verify", "aggregator.web"),
        *("producers", "scipy.special", "tests.support.running.fleet", "uvicorn"),
    ]
)
STARTING = threading.Lock()
LEAVE_SECONDS = 60.0
PYTHONPATH = os.environ.get("PYTHONPATH")
"""With another one, a command has other modules: it starts without the preloaded ones."""


def serve_all_forks() -> None:
    """Make the processes that are forked from this one share one process that has the imports.

    The output of commands without a log file is not shown.
    """
    shown = [os.dup(number) for number in (1, 2)]
    with Path(os.devnull).open("wb") as nowhere:
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
    forkserver.ensure_running()
    for number, descriptor in enumerate(shown, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    server: Any = forkserver._forkserver
    os.register_at_fork(after_in_child=lambda: setattr(server, "ensure_running", lambda: None))


def run(
    arguments: Sequence[str], timeout: float, environ: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a command until it ends, as `subprocess.run` would.

    Raises
    ------
    TimeoutExpired
        After `timeout` seconds; the command has been killed.
    """
    if environ.get("PYTHONPATH") != PYTHONPATH:
        command = [sys.executable, "-m", "aggregator", *arguments]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=timeout, check=False
        )
    with tempfile.NamedTemporaryFile("r") as output, tempfile.NamedTemporaryFile("r") as errors:
        process = _start(arguments, (output.name, errors.name), environ)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired([*arguments], timeout)
        told = output.read(), errors.read()
        return subprocess.CompletedProcess([*arguments], process.exitcode, *told)


def start(
    command: str, arguments: Sequence[str], log: Path | None = None, ahead_seconds: float = 0.0
) -> BaseProcess:
    """Start a command of `dither` in its own process group.

    It has the environment of this process, and the modules that this process had at its start.

    Parameters
    ----------
    command : str
    arguments : sequence of str
    log : Path, optional
        The file for the output; without it, the output is discarded.
    ahead_seconds : float
        The seconds by which the command's clock is ahead.
    """
    logs = (str(log), str(log)) if log else ()
    return _start([command, *arguments], logs, os.environ, ahead_seconds)


def _start(
    arguments: Sequence[str],
    logs: Sequence[str],
    environ: Mapping[str, str],
    ahead_seconds: float = 0.0,
) -> BaseProcess:
    given = ([*arguments], logs, dict(environ), str(Path.cwd()), ahead_seconds)
    process = CONTEXT.Process(target=be, args=given)
    with STARTING:
        process.start()
    return process


def be(
    arguments: Sequence[str],
    logs: Sequence[str],
    environ: Mapping[str, str],
    folder: str,
    ahead_seconds: float,
) -> None:
    """Run a command of `dither` in this process, with log files and a clock that is ahead."""
    from aggregator.cli.main import main

    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    _set_clocks(ahead_seconds)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starting process stops this one
    os.setpgrp()
    for number, log in enumerate(logs, start=1):
        with Path(log).open("ab") as file:
            os.dup2(file.fileno(), number)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv = ["dither", *arguments]
    main()


def _set_clocks(ahead_seconds: float) -> None:
    """Set Python's wall clocks ahead; monotonic clocks are unchanged."""
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
    """Workers that join and leave; a worker that ends by itself is replaced, as by a supervisor.

    Parameters
    ----------
    arguments : sequence of str
        The arguments of the command.
    log : Path
        The file for the output of all workers.
    command : str
    """

    def __init__(self, arguments: Sequence[str], log: Path, command: str = "aggregate") -> None:
        self.arguments, self.log, self.command = list(arguments), log, command
        self.processes: list[BaseProcess] = []
        self._lock = threading.RLock()

    def join(self, ahead_seconds: float = 0.0) -> None:
        """Start another worker, whose clock is ahead by `ahead_seconds`."""
        process = start(self.command, self.arguments, self.log, ahead_seconds)
        with self._lock:
            self.processes.append(process)

    def leave(self, choice: float) -> None:
        """Ask a worker to leave, and do not wait until it has drained and committed."""
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
        """Freeze a worker (SIGSTOP), and continue it at the end."""
        with self._lock:
            process = self._choose(choice)
            _signal(process, signal.SIGSTOP)
        try:
            yield
        finally:
            with self._lock:
                _signal(process, signal.SIGCONT)

    def keep(self, at_least: int) -> None:
        """Remove the workers that ended, and start others until there are enough."""
        with self._lock:
            for process in list(self.processes):
                if not process.is_alive():
                    process.join()
                    self.processes.remove(process)
            missing = at_least - len(self.processes)
        for _ in range(missing):
            self.join()

    def stop(self) -> list[int | None]:
        """Ask every worker to leave; return their exit codes, None for one that did not end."""
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
