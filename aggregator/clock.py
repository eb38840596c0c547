"""The time that a worker goes by: the system's, or whatever a simulation says it is."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What is asked of a clock."""

    def monotonic(self) -> float:
        """Return seconds since some moment; they never go back."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Return seconds since some moment; they never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


SYSTEM = SystemClock()
