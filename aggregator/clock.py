"""The service's clock, which a simulation replaces."""

from __future__ import annotations

import time


class Clock:
    """The clock of this machine; a simulation overrides the methods."""

    def monotonic(self) -> float:
        """Return seconds since a fixed moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK = Clock()
