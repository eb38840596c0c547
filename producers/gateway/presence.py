"""Checks whether Kafka answers, when there is reason to doubt it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

AGAIN_SECONDS = 0.3
"""Between two questions while Kafka is away."""
SETTLED_SECONDS = 1.0
"""For so long an answer is not doubted again, unless Kafka's client says that nobody is there."""
SILENT_QUESTIONS = 3
"""Without an answer until Kafka is taken to be away, although connections are open: each question
goes to a broker drawn at random, and only one of several may be frozen."""


class Presence:
    """Checks Kafka in a thread of its own after a call of `doubt`.

    Parameters
    ----------
    ask : callable
        Returns whether Kafka answers, within about a second.
    left : callable
        Called in that thread when Kafka does not answer.

    Attributes
    ----------
    is_away : bool
        The result of the last check.
    """

    def __init__(self, ask: Callable[[], bool], left: Callable[[], object]) -> None:
        self.is_away = False
        self._ask, self._left = ask, left
        self._doubts, self._answers = 0, 0
        self._is_sure, self._closing = False, False
        self._answered_at = float("-inf")
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dither-presence", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def request_check(self, *, is_sure: bool = False) -> None:
        """Request a check of Kafka.

        Parameters
        ----------
        is_sure : bool
            Kafka's client says that no broker is reachable: then one failed check is enough.
        """
        with self._changed:
            if not is_sure and time.monotonic() - self._answered_at < SETTLED_SECONDS:
                return
            self._is_sure = self._is_sure or is_sure
            self._doubts += 1
            self._changed.notify_all()

    def check(self, seconds: float) -> bool:
        """Return whether Kafka is away; a result is reused for some seconds."""
        self.request_check()
        with self._changed:
            answers, settled = self._answers, self._answered_at
            self._changed.wait_for(
                lambda: (
                    self.is_away
                    or self._answers > answers
                    or time.monotonic() - settled < SETTLED_SECONDS
                ),
                seconds,
            )
            return self.is_away

    def _run(self) -> None:
        silent = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._doubts or self._closing)
                if self._closing:
                    return
                self._doubts = 0
            answers = self._ask()
            with self._changed:
                silent = 0 if answers else silent + 1
                has_left = not self.is_away and silent >= (1 if self._is_sure else SILENT_QUESTIONS)
                if answers:
                    self.is_away, self._is_sure = False, False
                    self._answers, self._answered_at = self._answers + 1, time.monotonic()
                else:
                    self.is_away = self.is_away or has_left
                    self._doubts += 1
                self._changed.notify_all()
            if has_left:
                self._left()
            if not answers:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, AGAIN_SECONDS)
