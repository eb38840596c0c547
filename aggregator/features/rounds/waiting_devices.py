"""Occasional messages that simulated devices wait for a round, or for its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from estimators import SearchMetric
from producers.device.rounds import Round

FIRST_MESSAGE_SECONDS, REPEAT_MESSAGE_SECONDS = 5.0, 60.0
"""The time without answers until the first message, and between later messages."""


class Waiting:
    """Says what devices wait for, 5 seconds after their last answers and then once a minute.

    Parameters
    ----------
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(self, metric: SearchMetric, clock: Callable[[], float] = time.monotonic) -> None:
        self._metric, self._clock = metric, clock
        self._message = "waiting for a round: `dither coordinate` opens it"
        self._due = clock() + FIRST_MESSAGE_SECONDS

    def note_answers(self, opened: Round, answers: int) -> None:
        """Record the number of answers to a round; the next message is due in 5 seconds."""
        metric, reports = self._metric, self._metric.round_reports
        report_goal = "" if reports is None else f"with {reports:,} counted, or "
        self._message = (
            f"round {opened.number} of {opened.rounds}: {answers:,} answers sent; it closes "
            f"{report_goal}{metric.round_time} after it was opened with "
            f"{metric.minimum_reports:,} counted"
        )
        self._due = self._clock() + FIRST_MESSAGE_SECONDS

    def due(self) -> str | None:
        """Return the message if it is due, else None. The message is due once a minute."""
        if self._clock() < self._due:
            return None
        self._due = self._clock() + REPEAT_MESSAGE_SECONDS
        return self._message
