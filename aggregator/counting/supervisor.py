"""Runs several workers, one process each, and restarts those that die.

The workers end when the supervisor ends, even if it is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import structlog

from aggregator import child_guard

POLL_SECONDS = 0.5
RESTART_SECONDS = 2.0
LEAVE_SECONDS = 30.0
ORPHAN_SECONDS = 5
"""That a worker has to commit and leave when its supervisor has ended without a word."""

log = structlog.get_logger("dither.supervisor")


def single_worker_command(arguments: list[str], memory: int | None) -> list[str]:
    """Return the command line of one worker, given that of several, and its memory if it is set.

    Of an option that is given twice the last one counts. The port that answers whether the workers
    work is the supervisor's.

    Examples
    --------
    >>> single_worker_command(["aggregate", "--workers", "3"], None)[3:]
    ['aggregate', '--workers', '3', '--set', 'aggregate.health_port=0', '--workers', '1']
    """
    worker_options = ["--set", "aggregate.health_port=0"]
    if memory is not None:
        worker_options += ["--set", f"aggregate.memory={memory}"]
    return [sys.executable, "-m", "aggregator", *arguments, *worker_options, "--workers", "1"]


def own_instance(instance: str, number: int) -> list[str]:
    """Return the option that makes a worker's `group.instance.id` its own, if there is one.

    Examples
    --------
    >>> own_instance("east", 1), own_instance("", 1)
    (['--set', 'kafka.group.instance.id=east-1'], [])
    """
    return ["--set", f"kafka.group.instance.id={instance}-{number}"] if instance else []


class Supervisor:
    """Keeps a number of worker processes running.

    Parameters
    ----------
    command : list of str
        What one worker is started with.
    died : callable
        Called whenever a worker has died, before it is started again.
    own_arguments : callable, optional
        Returns what the worker of a number, from 0 on, gets after `command`.
    """

    def __init__(
        self,
        workers: int,
        command: list[str],
        died: Callable[[], object] = lambda: None,
        own_arguments: Callable[[int], list[str]] = lambda _: [],
    ) -> None:
        self.workers, self.command, self.died = workers, command, died
        self._own_arguments = own_arguments
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopping = False  # no Event: its lock is not safe in a signal handler

    def stop(self) -> None:
        """Ask every worker to drain, commit and leave; safe in a signal handler."""
        self._stopping = True

    def hang_up(self) -> None:
        """Have every worker read the definitions again."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGHUP)

    def trouble(self) -> str:
        """Return in a few words whether workers do not run; "" if all do."""
        ended = sum(process.poll() is not None for process in self._processes)
        return f"{ended} of {self.workers} workers do not run" if ended else ""

    def run(self) -> None:
        """Start the workers, and again whichever dies, until :meth:`stop`."""
        self._processes = [self._start(number) for number in range(self.workers)]
        started = [time.monotonic()] * self.workers
        while not self._stopping:
            time.sleep(POLL_SECONDS)
            for index, process in enumerate(self._processes):
                if self._stopping or process.poll() is None:
                    continue
                if time.monotonic() - started[index] < RESTART_SECONDS:
                    continue
                log.error("worker died", pid=process.pid, exit_code=process.returncode)
                child_guard.release(process)
                self.died()
                self._processes[index] = self._start(index)
                started[index] = time.monotonic()
        self._stop_all()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = [*self.command, *self._own_arguments(number)]
        process = child_guard.start(command, ORPHAN_SECONDS)
        log.info("worker started", pid=process.pid)
        return process

    def _stop_all(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + LEAVE_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("worker killed", pid=process.pid, after_seconds=LEAVE_SECONDS)
                process.kill()
                process.wait()
            child_guard.release(process)
