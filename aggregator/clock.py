"""The service's clock, which a simulation replaces."""

from __future__ import annotations

import time


class Clock:
    """The clock of this machine; a simulation overrides the methods."""

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment, which no change of the wall clock affects."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        time.sleep(seconds)

    def now_ms(self) -> int:
        """Return the wall clock's milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK = Clock()
