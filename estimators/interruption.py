"""Lets a long computation end early: between its steps it checks whether it is still wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CURRENT_CHECK: ContextVar[Callable[[], object] | None] = ContextVar("check", default=None)


@contextmanager
def interruptible(check: Callable[[], object]) -> Iterator[None]:
    """Have every step of the computations inside call this; what it raises ends them."""
    token = _CURRENT_CHECK.set(check)
    try:
        yield
    finally:
        _CURRENT_CHECK.reset(token)


def checkpoint() -> None:
    """Check whether the computation is still wanted; called between steps of milliseconds."""
    check = _CURRENT_CHECK.get()
    if check is not None:
        check()
