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
"""The time for a worker to commit and leave after its supervisor was killed."""

log = structlog.get_logger("dither.supervisor")


def single_worker_command(arguments: list[str], memory: int | None) -> list[str]:
    """Return the command line that starts one of several workers.

    `arguments`: the supervisor's arguments, to which options are added, because the last occurrence
    of an option counts; `memory`: the worker's memory in bytes; None for that of the settings. The
    health port belongs to the supervisor.

    >>> single_worker_command(["aggregate", "--workers", "3"], None)[3:]
    ['aggregate', '--workers', '3', '--set', 'aggregate.health_port=0', '--workers', '1']
    """
    worker_options = ["--set", "aggregate.health_port=0"]
    if memory is not None:
        worker_options += ["--set", f"aggregate.memory={memory}"]
    return [sys.executable, "-m", "aggregator", *arguments, *worker_options, "--workers", "1"]


def instance_option(instance: str, number: int) -> list[str]:
    """Return the option that makes a worker's `group.instance.id` unique; none without an id.

    >>> instance_option("east", 1), instance_option("", 1)
    (['--set', 'kafka.group.instance.id=east-1'], [])
    """
    return ["--set", f"kafka.group.instance.id={instance}-{number}"] if instance else []


class Supervisor:
    """Keeps a number of worker processes running.

    Parameters
    ----------
    command : list of str
        The command line that starts a worker.
    died : callable
        Called when a worker has died, before it is restarted.
    worker_arguments : callable, optional
        Returns the further arguments of a worker, given its number from 0 on.
    """

    def __init__(
        self,
        workers: int,
        command: list[str],
        died: Callable[[], object] = lambda: None,
        worker_arguments: Callable[[int], list[str]] = lambda _: [],
    ) -> None:
        self.workers, self.command, self.died = workers, command, died
        self._own_arguments = worker_arguments
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopping = False  # no Event: its lock is not safe in a signal handler

    def stop(self) -> None:
        """Ask every worker to drain, commit and leave; safe in a signal handler."""
        self._stopping = True

    def reload_definitions(self) -> None:
        """Make every worker reload the definitions."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGHUP)

    def trouble(self) -> str:
        """Return in a few words how many workers do not run; "" if all run."""
        ended = sum(process.poll() is not None for process in self._processes)
        return f"{ended} of {self.workers} workers do not run" if ended else ""

    def run(self) -> None:
        """Start the workers, and restart dead ones, until :meth:`stop`."""
        self._processes = [self._start(number) for number in range(self.workers)]
        started = [time.monotonic()] * self.workers
        while not self._stopping:
            time.sleep(POLL_SECONDS)
            for index, process in enumerate(self._processes):
                is_early = time.monotonic() - started[index] < RESTART_SECONDS
                if self._stopping or is_early or process.poll() is None:
                    continue
                log.error("worker died", pid=process.pid, exit_code=process.returncode)
                child_guard.release(process)
                self.died()
                self._processes[index] = self._start(index)
                started[index] = time.monotonic()
        self._stop_all()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        process = child_guard.start([*self.command, *self._own_arguments(number)], ORPHAN_SECONDS)
        log.info("worker started", pid=process.pid)
        return process

    def _stop_all(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + LEAVE_SECONDS
        for process in self._processes:
            if not child_guard.wait(process, max(0.1, deadline - time.monotonic())):
                log.warning("worker killed", pid=process.pid, after_seconds=LEAVE_SECONDS)
