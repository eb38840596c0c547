"""Checks whether Kafka answers, when there is reason to doubt it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

AGAIN_SECONDS = 0.3
"""The time between two queries while Kafka does not answer."""
SETTLED_SECONDS = 1.0
"""For this long after an answer no check is made, unless Kafka's client says that all brokers are
down."""
ASK_SECONDS, MOST_ASK_SECONDS = 1.0, 20.0
"""The timeout of a query: at first, and at most. It doubles after each timeout."""
TIMES_TAKEN = 4
"""An answer that took t seconds is valid for this many times t; the next timeout is as long."""
VALID_SECONDS = 5.0
"""An answer proves for at least this long that Kafka is there."""
SILENT_QUESTIONS = 3
"""After this many queries in a row without an answer, Kafka counts as away, even if connections are
open. One query is not enough: it goes to a random broker, and perhaps only that broker is
frozen."""


class KafkaPresence:
    """Checks in its own thread whether Kafka answers, after a call of :meth:`request_check`.

    `ask` returns whether Kafka answers within the given seconds. The thread calls `left` each time
    Kafka begins to count as away.

    Attributes
    ----------
    is_away : bool
        Whether Kafka counts as away, because the last queries had no answer.
    """

    def __init__(
        self,
        ask: Callable[[float], bool],
        left: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_away = False
        self._ask, self._left, self._clock = ask, left, clock
        self._patience, self._answer_seconds, self._silent = ASK_SECONDS, 0.0, 0
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
        """Request a check; do nothing for `SETTLED_SECONDS` after an answer, unless `is_sure`.

        `is_sure`: whether Kafka's client says that all brokers are down.
        """
        with self._changed:
            if not is_sure and self._clock() - self._answered_at < SETTLED_SECONDS:
                return
            self._is_sure = self._is_sure or is_sure
            self._doubts += 1
            self._changed.notify_all()

    def confirm(self) -> None:
        """Record that Kafka has just answered another request."""
        if self._silent or self.is_away:
            with self._changed:
                self._note_answer()

    def check(self, seconds: float) -> bool:
        """Return whether Kafka answers within `seconds`; an answer is reused for some seconds."""
        self.request_check()
        with self._changed:
            answers, settled = self._answers, self._answered_at
            self._changed.wait_for(
                lambda: (
                    self.is_away
                    or self._answers > answers
                    or self._clock() - settled < SETTLED_SECONDS
                ),
                seconds,
            )
            valid = max(VALID_SECONDS, TIMES_TAKEN * self._answer_seconds)
            return not self.is_away and self._clock() - self._answered_at < valid

    def _note_answer(self) -> None:
        self.is_away, self._is_sure, self._silent = False, False, 0
        self._answers, self._answered_at = self._answers + 1, self._clock()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._doubts or self._closing)
                if self._closing:
                    return
                self._doubts = 0
            began = self._clock()
            answers = self._ask(self._patience)
            with self._changed:
                has_left = False
                if answers:
                    self._note_answer()
                    self._answer_seconds = self._answered_at - began
                    proportional = TIMES_TAKEN * self._answer_seconds
                    self._patience = max(ASK_SECONDS, min(proportional, MOST_ASK_SECONDS))
                else:
                    self._silent, self._doubts = self._silent + 1, self._doubts + 1
                    if self._clock() - began >= self._patience:
                        self._patience = min(2 * self._patience, MOST_ASK_SECONDS)
                    is_silent = self._silent >= (1 if self._is_sure else SILENT_QUESTIONS)
                    has_left = is_silent and not self.is_away
                    self.is_away = self.is_away or has_left
                self._changed.notify_all()
            if has_left:
                self._left()
            if not answers:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, AGAIN_SECONDS)
