"""A clock for devices, and waiting for what threads do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look every 10 ms until something has happened."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"still not: {what}"
        threading.Event().wait(0.01)
