"""Messages now and then about the round that devices wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

from estimators import SearchMetric
from producers.device.rounds import Round

FIRST_SECONDS, AGAIN_SECONDS = 5.0, 60.0
"""After so long without an answer the message is due, and then so often."""


class Waiting:
    """Has a message once no device has answered for a while.

    Parameters
    ----------
    metric : SearchMetric
        With rounds.
    clock : callable
        Returns seconds.
    """

    def __init__(self, metric: SearchMetric, clock: Callable[[], float] = time.monotonic) -> None:
        self._metric, self._clock = metric, clock
        self._message = "waiting for a round: `dither coordinate` opens it"
        self._due = clock() + FIRST_SECONDS

    def note_answers(self, opened: Round, answers: int) -> None:
        """Note how many answers have been given to a round."""
        metric = self._metric
        enough = (
            "" if metric.round_reports is None else f"with {metric.round_reports:,} counted, or "
        )
        self._message = (
            f"round {opened.number} of {opened.rounds}: {answers:,} answers sent; it closes "
            f"{enough}{metric.round_time} after it was opened with "
            f"{metric.minimum_reports:,} counted"
        )
        self._due = self._clock() + FIRST_SECONDS

    def due(self) -> str | None:
        """Return what to tell now; None where there is nothing."""
        if self._clock() < self._due:
            return None
        self._due = self._clock() + AGAIN_SECONDS
        return self._message
