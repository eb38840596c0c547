"""A reporter for coroutines: its methods run in threads, so they do not block an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from numpy.typing import ArrayLike

from estimators.metrics.domains import Values
from estimators.metrics.metric import Metric
from producers.delivery.batches import Delivered
from producers.delivery.delivery_errors import DeliveryError
from producers.device.base_reporter import BaseReporter
from producers.device.times import Times

if TYPE_CHECKING:
    from producers.device.rounds import Round
    from producers.ledger.ledger import Ledger

R = TypeVar("R", bound=BaseReporter)


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

    async def report(
        self,
        value: Values,
        epsilon: ArrayLike,
        time: Times = None,
        *,
        attributes: Mapping[str, str] | None = None,
        ledger: Ledger | None = None,
        permanent: float | None = None,
        changes: int = 1,
    ) -> None:
        """Randomize values and put the reports into their batches.

        Parameters
        ----------
        value, epsilon, time, attributes, ledger, permanent, changes
            As for :meth:`producers.Reporter.report`, which describes the errors.
        """
        await asyncio.to_thread(
            self.reporter.report,
            value,
            epsilon,
            time,
            attributes=attributes,
            ledger=ledger,
            permanent=permanent,
            changes=changes,
        )

    async def answer(
        self,
        open_round: Round,
        value: ArrayLike,
        epsilon: ArrayLike,
        *,
        ledger: Ledger | None = None,
    ) -> int:
        """Answer a round of a minimum or maximum; return the number of answers.

        Parameters
        ----------
        open_round, value, epsilon, ledger
            As for :meth:`producers.Reporter.answer`, which describes the errors.
        """
        return await asyncio.to_thread(
            self.reporter.answer, open_round, value, epsilon, ledger=ledger
        )

    async def flush(self, timeout: float = 30.0) -> None:
        """Send everything; raise DeliveryError if it is not acknowledged in `timeout` seconds."""
        await asyncio.to_thread(self.reporter.flush, timeout)

    async def close(self, timeout: float = 30.0) -> object:
        """Close the reporter, and return the result of its `close`; None if it is not open."""
        if self._reporter is None:
            return None
        return await asyncio.to_thread(self._reporter.close, timeout)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except DeliveryError as undelivered:
            if error is None:
                raise
            error.add_note(str(undelivered))
