"""The reporter to Kafka for coroutines."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from estimators.metrics.metric import Metric
from producers.device.awaitable import AwaitableReporter
from producers.device.reporter import Reporter
from producers.kafka.connection import Connection


class AsyncReporter(AwaitableReporter[Reporter]):
    """A :class:`producers.Reporter` whose methods are awaited; nothing blocks the event loop.

    Parameters
    ----------
    metric : Metric
        The metric.
    config : mapping or Connection
        Librdkafka's properties, or an open connection.
    **options
        The other parameters of :class:`producers.Reporter`.

    Examples
    --------
    >>> import asyncio
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1])
    >>> async def main():
    ...     async with AsyncReporter(metric, {"test.mock.num.brokers": 1}) as reporter:
    ...         await reporter.report([1.0, 0.0], epsilon=0.5)
    ...         await reporter.flush()
    ...         return await reporter.delivered()
    >>> asyncio.run(main()).reports
    2
    """

    def __init__(
        self, metric: Metric, config: Mapping[str, Any] | Connection, **options: Any
    ) -> None:
        super().__init__(functools.partial(Reporter, metric, config, **options))
