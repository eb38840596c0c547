"""Clocks for devices and for the service, and waiting for what threads do."""

import dataclasses
import threading
import time
from collections.abc import Callable

from aggregator import clock


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class Hands(clock.Clock):
    """A monotonic clock for the service, which stands still until it is moved."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        raise AssertionError("the wall clock is asked")


PATIENCE = 90.0


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float = PATIENCE, pause: float = 0.05
) -> None:
    """Check a condition again and again, with a pause between two checks, until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        threading.Event().wait(pause)
