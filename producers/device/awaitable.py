"""A reporter for coroutines: its methods run in threads, so they do not block an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from estimators.metrics.metric import Metric
from producers.delivery.batches import Delivered
from producers.delivery.closing import noting_lost_reports
from producers.device.base_reporter import BaseReporter

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=BaseReporter)


def in_thread(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a coroutine function that calls a reporter's method in a thread."""

    @functools.wraps(method)
    async def call(self: Any, /, *values: P.args, **options: P.kwargs) -> T:
        return await asyncio.to_thread(getattr(self.reporter, method.__name__), *values, **options)

    return call


class AwaitableReporter(Generic[R]):
    """The methods of a reporter as coroutines.

    Opening, reporting, flushing and closing may wait for a disk or a network; each runs in a thread
    of the event loop's default executor. If the awaiting task is cancelled, the call still runs to
    its end in its thread, so a report that was begun is sent.

    Parameters
    ----------
    reporter : callable
        Opens the reporter.
    """

    def __init__(self, reporter: Callable[[], R]) -> None:
        self._opening, self._opened = reporter, asyncio.Lock()
        self._reporter: R | None = None

    async def open(self) -> Self:
        """Open the reporter, unless it is open; ``async with`` does so."""
        async with self._opened:
            if self._reporter is None:
                self._reporter = await asyncio.to_thread(self._opening)
        return self

    @property
    def reporter(self) -> R:
        """The reporter itself.

        Raises ValueError if it is not open.
        """
        if self._reporter is None:
            name = type(self).__name__
            raise ValueError(f"this {name} is not open: use `async with`, or await `open()`")
        return self._reporter

    @property
    def metric(self) -> Metric:
        """The metric."""
        return self.reporter.metric

    @property
    def denied(self) -> int:
        """How many values were reported as "other", because a rule denies them."""
        return self.reporter.denied

    async def delivered(self) -> Delivered:
        """Return the reports, batches and bytes that are acknowledged so far."""
        return await asyncio.to_thread(lambda: self.reporter.delivered)

    report = in_thread(BaseReporter.report)
    """Randomizes values and puts the reports into their batches; see
    :meth:`producers.Reporter.report`."""
    answer = in_thread(BaseReporter.answer)
    """Answers a round of a minimum or maximum; see :meth:`producers.Reporter.answer`."""
    flush = in_thread(BaseReporter.flush)
    """Sends everything; see :meth:`producers.Reporter.flush`."""

    async def close(self, timeout: float = 30.0) -> object:
        """Close the reporter, and return the result of its `close`; None if it is not open."""
        if self._reporter is None:
            return None
        return await asyncio.to_thread(self._reporter.close, timeout)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with noting_lost_reports(error):
            await self.close()
