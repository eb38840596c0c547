"""The clock that the service uses: the system's, or a simulation's."""

from __future__ import annotations

import time


class Clock:
    """The machine's clock; a simulation overrides it."""

    def monotonic(self) -> float:
        """Return seconds since some moment; they never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


SYSTEM = Clock()
