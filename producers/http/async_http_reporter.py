"""The reporter over HTTP for coroutines."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from estimators.metrics.metric import Metric
from producers.device.awaitable import AwaitableReporter, in_thread
from producers.http.http_connection import HttpConnection
from producers.http.http_reporter import HttpReporter
from producers.http.report_queue import Totals


class AsyncHttpReporter(AwaitableReporter[HttpReporter]):
    """A :class:`producers.HttpReporter` whose methods are awaited; nothing blocks the event loop.

    Parameters
    ----------
    metric : Metric or str
        The metric, or its name.
    gateway : str or HttpConnection
        The gateway's address, or an open connection.
    **options
        The other parameters of :class:`producers.HttpReporter`.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1])
    >>> from tempfile import TemporaryDirectory
    >>> async def main(queue):
    ...     async with AsyncHttpReporter(metric, "http://127.0.0.1:9", queue=queue) as reporter:
    ...         await reporter.report([1.0, 0.0], epsilon=0.5)
    ...         return await reporter.close()
    >>> with TemporaryDirectory() as folder:
    ...     asyncio.run(main(f"{folder}/queue"))
    2
    """

    def __init__(self, metric: Metric | str, gateway: str | HttpConnection, **options: Any) -> None:
        super().__init__(functools.partial(HttpReporter, metric, gateway, **options))

    async def totals(self) -> Totals:
        """Return what became of this metric's reports since the queue was created."""
        return await asyncio.to_thread(lambda: self.reporter.totals)

    open_round = in_thread(HttpReporter.open_round)
    """Returns the open round of a minimum or maximum; see
    :meth:`producers.HttpReporter.open_round`."""
