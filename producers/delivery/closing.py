"""What closes itself, and waits for the calls under way before."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from producers.delivery.errors import DeliveryError


class Closing(ABC):
    """A context manager that closes itself; an error under way is kept, with what was lost."""

    @abstractmethod
    def close(self) -> object:
        """Close it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except DeliveryError as undelivered:
            if error is None:
                raise
            error.add_note(str(undelivered))


class Calls:
    """The calls under way of something that closes: it waits for them, and takes no more."""

    def __init__(self) -> None:
        self._state = threading.Condition()
        self._threads: list[int] = []
        self._is_closing = False

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Have whoever closes wait for a call, and for the calls that it makes itself.

        Raises
        ------
        ValueError
            If somebody closes it already.
        """
        own = threading.get_ident()
        with self._state:
            if self._is_closing and own not in self._threads:
                raise ValueError("this reporter is closed: open a new one")
            self._threads.append(own)
        try:
            yield
        finally:
            with self._state:
                self._threads.remove(own)
                self._state.notify_all()

    def close(self, deadline: float) -> bool:
        """Take no more calls, and wait for those under way; return False the second time.

        Parameters
        ----------
        deadline : float
            On the monotonic clock.

        Raises
        ------
        RuntimeError
            If this thread is within a call.
        """
        if threading.get_ident() in self._threads:  # the call could not end before this returns
            raise RuntimeError(
                "close was called within a call of this reporter, as by a signal's handler: "
                "expected it after the call; have the handler set a flag, or raise SystemExit"
            )
        with self._state:
            is_first, self._is_closing = not self._is_closing, True
            rest = max(0.0, deadline - time.monotonic())
            self._state.wait_for(lambda: not self._threads, rest)
        return is_first
