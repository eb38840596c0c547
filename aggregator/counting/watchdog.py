"""Detects a stalled worker, logs its step and its stack, then ends the process."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Self

import structlog

TICK_SECONDS = 1.0
REPEAT_SECONDS = 10.0
EXIT_CODE = 70
"""The exit code of a process that was ended because it was stuck (EX_SOFTWARE)."""

log = structlog.get_logger("dither.watchdog")


class Watchdog:
    """Watches the thread that enters it, from another thread.

    Only the time in which the process ran counts: a stopped process (SIGSTOP, a suspended machine)
    is not stuck.

    Parameters
    ----------
    stuck_seconds, exit_seconds : float
        Seconds in one step after which the step is logged, with the stack, and after which the
        process ends; 0 for never.
    report : callable
        A function that is called with the step and the seconds spent in it while the thread is
        stuck, and with (step, 0) when the thread resumes.
    end : callable
        Ends the process.
    """

    def __init__(
        self,
        stuck_seconds: float,
        exit_seconds: float,
        report: Callable[[str, float], object] = lambda *_: None,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._stuck_seconds, self._exit_seconds = stuck_seconds, exit_seconds
        self._report, self._end = report, end
        self._step: tuple[str, int | None, int | None] = ("starting", None, None)
        self._beats, self._entered_at = 0, time.monotonic()
        self._done = threading.Event()
        self._watched = 0
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def enter(self, step: str, partition: int | None = None, offset: int | None = None) -> None:
        """Record that a step begins now.

        `step`: the step's name in logs and metrics; `partition`: the partition of the step, if it
        is about one; `offset`, optional: the offset of the message that is being counted.
        """
        self._step = step, partition, offset
        self._entered_at = time.monotonic()
        self._beats += 1

    def trouble(self) -> str:
        """Return in a few words where the thread is stuck; "" if it is not.

        This is for a supervisor of the process, which must notice even if the watchdog hangs: the
        time in a step counts, whether the process ran or not.
        """
        seconds = time.monotonic() - self._entered_at
        is_stuck = self._exit_seconds and seconds > self._exit_seconds
        return f"{self._step[0]} for {seconds:.0f} seconds" if is_stuck else ""

    def __enter__(self) -> Self:
        """Start watching this thread."""
        self._watched = threading.get_ident()
        if self._stuck_seconds or self._exit_seconds:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(TICK_SECONDS)

    def _watch(self) -> None:
        beats, silent, reported_at, last = self._beats, 0.0, 0.0, time.monotonic()
        while not self._done.wait(TICK_SECONDS):
            now = time.monotonic()
            # After a longer time the process had been stopped.
            ran, last = min(now - last, 2 * TICK_SECONDS), now
            step, partition, offset = self._step
            if beats != self._beats:
                if reported_at:
                    log.warning("resumed", step=step, after_seconds=round(silent, 1))
                    self._report(step, 0.0)
                beats, silent, reported_at = self._beats, 0.0, 0.0
                continue
            silent += ran
            log_fields = {"step": step, "partition": partition, "offset": offset}
            if 0 < self._exit_seconds <= silent:
                log.error("terminated", **log_fields, seconds=round(silent), stack=self._stack())
                self._end(EXIT_CODE)
                return
            if 0 < self._stuck_seconds <= silent and silent >= reported_at + REPEAT_SECONDS:
                if not reported_at:
                    log.error("stuck", **log_fields, seconds=round(silent), stack=self._stack())
                reported_at = silent
                self._report(step, silent)
        if reported_at:  # a thread that is watched no longer is not stuck
            self._report(self._step[0], 0.0)

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._watched)
        return "".join(traceback.format_stack(frame)) if frame else "(no such thread)"
