"""Lets a caller end a long computation, which checks between its steps whether to continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CURRENT_CHECK: ContextVar[Callable[[], object] | None] = ContextVar("check", default=None)


@contextmanager
def interruptible(check: Callable[[], object]) -> Iterator[None]:
    """Call `check` at each step of the block's computations; they end if it raises."""
    token = _CURRENT_CHECK.set(check)
    try:
        yield
    finally:
        _CURRENT_CHECK.reset(token)


def checkpoint() -> None:
    """Call the check of the enclosing :func:`interruptible`, if any; loops do so every few ms."""
    check = _CURRENT_CHECK.get()
    if check is not None:
        check()
