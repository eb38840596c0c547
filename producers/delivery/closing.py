"""Objects that wait for running calls before they close."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from producers.delivery.delivery_errors import DeliveryError

T = TypeVar("T")
CLOSED_MESSAGE = "this reporter is closed: open a new one"


@contextmanager
def noting_lost_reports(error: BaseException | None) -> Iterator[None]:
    """Turn a DeliveryError within the block into a note on `error`, if there is such an error."""
    try:
        yield
    except DeliveryError as undelivered:
        if error is None:
            raise
        error.add_note(str(undelivered))


class Closing(ABC):
    """A context manager that closes the object when its block ends.

    If the block raised an error and closing loses reports, a note on that error says so.
    """

    @abstractmethod
    def close(self) -> object:
        """Close the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noting_lost_reports(error):
            self.close()


class Calls:
    """The running calls of an object: closing it waits for these calls, and refuses later calls."""

    def __init__(self) -> None:
        self._state = threading.Condition()
        self._threads: list[int] = []
        self._flushing: list[int] = []
        self._closing_thread = 0
        self._is_closing = False
        self._outcome: Future[Any] = Future()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Let `close` wait for a call, and for the calls nested in it.

        Raises ValueError if the object is closing already, unless this thread is within a call.
        """
        thread_id = threading.get_ident()
        with self._state:
            if self._is_closing and thread_id not in self._threads:
                raise ValueError(CLOSED_MESSAGE)
            self._threads.append(thread_id)
        try:
            yield
        finally:
            with self._state:
                self._threads.remove(thread_id)
                self._state.notify_all()

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Mark a flush, for which `close` does not wait.

        Raises RuntimeError if this thread is within a call.
        """
        self._refuse_within_a_call("flush")
        thread_id = threading.get_ident()
        self._flushing.append(thread_id)
        try:
            yield
        finally:
            self._flushing.remove(thread_id)

    def close(self, deadline: float, finish: Callable[[], T]) -> T | None:
        """Refuse new calls, wait for those under way, at most until the deadline; call `finish`.

        Only the first thread calls `finish`, once, and returns its value; another thread waits for
        the first, until its own deadline. Deadlines are in monotonic seconds.

        Raises
        ------
        RuntimeError
            If this thread is within a call.
        TimeoutError
            If another thread is closing and has not finished by this call's deadline.
        Exception
            The error that `finish` raised.
        """
        self._refuse_within_a_call("close")
        with self._state:
            is_first, self._is_closing = not self._is_closing, True
            if is_first:
                self._closing_thread = threading.get_ident()
        seconds_left = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        if not is_first:
            if self._outcome.done():
                return None
            outcome: T = self._outcome.result(seconds_left)
            return outcome
        try:
            with self._state:
                self._state.wait_for(lambda: not self._threads, seconds_left)
            result = finish()
        except BaseException as error:
            self._outcome.set_exception(error)
            raise
        else:
            self._outcome.set_result(result)
            return result
        finally:
            self._closing_thread = 0

    def outcome(self) -> Any:
        """Wait until the first `close` has ended; return its value or raise its error."""
        return self._outcome.result()

    def _refuse_within_a_call(self, name: str) -> None:
        """Raise RuntimeError if this thread is within a call: waiting for it would never end."""
        if threading.get_ident() in (*self._threads, *self._flushing, self._closing_thread):
            raise RuntimeError(
                f"{name} was called within a call of this reporter, as by a signal's handler: "
                "expected it after the call; have the handler set a flag, or raise SystemExit"
            )
