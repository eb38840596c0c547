"""Detects a stalled worker, logs its step and its stack, then ends it."""

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
TELL_SECONDS = 10.0
EXIT_CODE = 70
"""Of a process that was ended for being stuck (EX_SOFTWARE)."""

log = structlog.get_logger("dither.watchdog")


class Watchdog:
    """Watches the thread that enters it, from another one.

    Only time in which the process ran counts: one that was stopped (SIGSTOP, a suspended machine)
    is not stuck.

    Parameters
    ----------
    after, end_after : float
        Seconds in one step until it is logged, with the stack, and until the process ends.
        0: never.
    tell : callable
        Told the step and the seconds in it, again and again while it is stuck, and (step, 0) when
        it gets on.
    end : callable
        Ends the process.
    """

    def __init__(
        self,
        after: float,
        end_after: float,
        tell: Callable[[str, float], object] = lambda *_: None,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._after, self._end_after = after, end_after
        self._tell, self._end = tell, end
        self._step: tuple[str, int | None, int | None] = ("starting", None, None)
        self._beats = 0
        self._done = threading.Event()
        self._watched = 0
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def at(self, step: str, partition: int | None = None, offset: int | None = None) -> None:
        """Say what is done now: the worker gets on."""
        self._step = step, partition, offset
        self._beats += 1

    def __enter__(self) -> Self:
        """Begin to watch this thread."""
        self._watched = threading.get_ident()
        if self._after or self._end_after:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End watching."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(TICK_SECONDS)

    def _watch(self) -> None:
        beats, silent, told_at, last = self._beats, 0.0, 0.0, time.monotonic()
        while not self._done.wait(TICK_SECONDS):
            now = time.monotonic()
            ran, last = min(now - last, 2 * TICK_SECONDS), now  # more: this process was stopped
            step, partition, offset = self._step
            if beats != self._beats:
                if told_at:
                    log.warning("gets on", step=step, after_seconds=round(silent, 1))
                    self._tell(step, 0.0)
                beats, silent, told_at = self._beats, 0.0, 0.0
                continue
            silent += ran
            place = {"step": step, "partition": partition, "offset": offset}
            if self._end_after and silent >= self._end_after:
                log.error("ends, being stuck", **place, seconds=round(silent), stack=self._stack())
                self._end(EXIT_CODE)
                return
            if self._after and silent >= self._after and silent >= told_at + TELL_SECONDS:
                if not told_at:
                    log.error("stuck", **place, seconds=round(silent), stack=self._stack())
                told_at = silent
                self._tell(step, silent)

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._watched)
        return "".join(traceback.format_stack(frame)) if frame else "(no such thread)"
