"""The reporter of a device without a Kafka client, which posts to a gateway or relay over HTTP."""

from __future__ import annotations

import time as clocks
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack

from estimators.exact.randomness import Bits
from estimators.metrics.denial import Deny
from estimators.metrics.metric import Metric
from estimators.metrics.search import SearchMetric
from producers.delivery.batches import Columns, Delivered, PendingBatch
from producers.device.base_reporter import BaseReporter
from producers.device.metric_checks import check_metric
from producers.http.http_connection import CLOSE_TIMEOUT, HttpConnection, HttpOptions
from producers.http.relay_client import sealed_post
from producers.http.report_queue import NO_BATCH_ID, BatchRule, Totals

if TYPE_CHECKING:
    from producers.device.rounds import Round

MOST_BATCH_BYTES = 200_000
"""The most bytes of a batch; by default the gateway accepts 240,000."""


class HttpReporter(BaseReporter):
    """Randomizes values of one metric immediately, and posts the reports to a gateway.

    It has the interface of :class:`producers.Reporter`. When `report` returns, the report is in the
    queue. It stays there until the gateway has acknowledged its batch; then Kafka has it. A thread
    sends; `on_failure`, `failures` and `totals` tell the application about failures.

    Parameters
    ----------
    metric : Metric or str
        A metric or its name. For a name, the definition is fetched from the relay or, without a
        relay, from the gateway. It is stored in the queue's file, and never replaced by a
        definition with another meaning.
    gateway : str or HttpConnection
        The gateway's address, or a connection that several reporters share.
    batch_reports : int
        A batch is sent when it has this many reports (fewer if its bytes or the metric's
        `max_batch_reports` require it).
    batch_age : float
        A batch is sent at the latest this many seconds after its first report.
    attributes, deny, trusted, bits, clock
        As for :class:`producers.Reporter`. True values need an https:// address.
    **options
        The options of :class:`HttpConnection`, if `gateway` is an address: `queue`, `relay`, `key`,
        `token`, `tls`, `timeout`, `most_bytes`, `when_full`, `on_failure`. A metric with a crowd
        needs `relay` and `key`: its reports are sealed at once, are sent to the relay, and need a
        ledger.

    Raises
    ------
    TypeError, ValueError
        If a parameter cannot be used.
    GatewayError
        If `metric` is a name whose definition is not stored, and cannot be fetched.
    DefinitionChanged
        If the gateway has changed the meaning of a name.
    QueueError
        If the file is damaged, foreign, or cannot be opened.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1])
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with HttpReporter(metric, "http://127.0.0.1:9", queue=f"{folder}/queue") as reporter:
    ...         reporter.report([1.0, 0.0], epsilon=0.5)
    ...         reporter.totals.left
    2
    """

    def __init__(
        self,
        metric: Metric | str,
        gateway: str | HttpConnection,
        *,
        batch_reports: int = 1000,
        batch_age: float = 10.0,
        attributes: Mapping[str, str] | None = None,
        deny: Deny | None = None,
        trusted: bool = False,
        bits: Bits | None = None,
        clock: Callable[[], float] = clocks.time,
        **options: Unpack[HttpOptions],
    ) -> None:
        if not isinstance(metric, str):
            check_metric(metric)
        if not batch_age >= 0:
            raise ValueError(f"batch_age = {batch_age}: expected seconds, 0 or more")
        if isinstance(gateway, HttpConnection) and options:
            raise ValueError(f"options {', '.join(options)}: pass them to the connection instead")
        self._owns_connection = not isinstance(gateway, HttpConnection)
        self.connection = (
            gateway if isinstance(gateway, HttpConnection) else HttpConnection(gateway, **options)
        )
        try:
            relay = self.connection.relay
            if isinstance(metric, str):
                server = self.connection if relay is None else relay
                metric, is_new = server.definitions.get(name := metric)
                server.background.check(name, now=not is_new)
                if relay is not None and metric.crowd is None:
                    raise ValueError(  # noqa: TRY301
                        f"metric {name!r} has no crowd, as relay {relay.url} says: expected one, "
                        "or no relay, or a definition instead of a name"
                    )
            elif relay is not None and metric.crowd is not None:
                relay.application[metric.name] = metric
                relay.background.check(metric.name, now=True)
            super().__init__(
                metric,
                most_bytes=MOST_BATCH_BYTES,
                batch_reports=batch_reports,
                attributes=attributes,
                deny=deny,
                trusted=trusted,
                bits=bits,
                clock=clock,
                has_relay=relay is not None,
            )
            if metric.sends_true_values and not self.connection.is_secret:
                raise ValueError(  # noqa: TRY301
                    f"gateway {self.connection.url}: true values of {metric.name!r} would be "
                    "readable on their way: expected an https:// address"
                )
        except BaseException:
            if self._owns_connection:
                self.connection.close(0.0)
            raise
        self._rule = BatchRule(metric, self.batch_reports, round(1000 * batch_age))
        self._background, self._public_key = self.connection.background, None
        if relay is not None and metric.crowd is not None:
            self._background, self._public_key = relay.background, relay.public_key
        self.file = None if self.connection.path is None else self.connection.queue.file

    @property
    def totals(self) -> Totals:
        """The outcomes of this metric's reports since the queue was created."""
        return self.connection.queue.totals(self.metric.name)

    @property
    def delivered(self) -> Delivered:
        """Reports, batches and bytes acknowledged by the gateway since the queue was created."""
        totals = self.totals
        return Delivered(totals.delivered, totals.batches, totals.bytes)

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is sent, because the reporter or its connection is closed."""
        return self._is_closed or self.connection.closed

    @property
    def failures(self) -> int:
        """The number of failures in the background, for any metric of the connection."""
        return self.connection.failures

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Let this reporter and its connection wait for the end of a call before they close."""
        with super().calling(), self.connection.calls.under_way():
            yield

    def open_round(self) -> Round:
        """Return the open round of a minimum or maximum, for `answer`.

        Raises
        ------
        GatewayError
            If the gateway does not answer, or no round was opened yet.
        ValueError
            If the metric has no rounds, or the definition does not allow this round.
        """
        from producers.device.rounds import decode

        metric = SearchMetric.require(self.metric)
        opened = decode(self.connection.asking.get(metric.name, "round"))
        if fault := opened.fault(metric):
            raise ValueError(fault)
        return opened

    def flush(self, timeout: float = 30.0) -> None:
        """Send everything of this metric; see :meth:`producers.Reporter.flush`."""
        self.check_open()
        super().flush(timeout)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> int:
        """Send the rest within `timeout` seconds, as long as the gateway accepts it; then close.

        It first waits for running calls. With a queue in a file, it ends at the first failure: the
        next reporter with this file sends what is left. If another thread is closing the reporter,
        it waits for that thread and returns the same result. In a forked process nothing is done.
        Returns the number of this metric's reports that are left in the file. Raises DeliveryError
        if reports are lost because they waited in memory.
        """
        return super().close(timeout) or 0

    def schedule(self, name: str, call: Callable[[], object]) -> None:
        """Call a function each minute in the thread that sends, until the reporter is closed."""
        super().schedule(name, call)
        self._background.serve(self.run_scheduled)

    def _has_capacity(self, reports: int) -> bool:
        """Return whether the queue has room for reports; if not, count them as dropped.

        Raises
        ------
        DefinitionChanged
            If the gateway has changed the meaning of the metric's name.
        DeliveryError
            If the queue is full, and `when_full` is "refuse".
        """
        queue = self.connection.queue
        if (changed := self._background.changed.get(self.metric.name)) is not None:
            raise changed
        if not queue.is_full():
            return True
        if queue.when_full == "drop_new":
            queue.drop(self.metric.name, reports)
            return False
        error = self.connection.error(None, are_kept=True)
        error.add_note(f"the queue is full ({queue.most_bytes} bytes); nothing was reported")
        raise error

    def _buffer(self, panes: Iterable[tuple[int, Columns]]) -> None:
        """Put reports into the queue; for a crowd, seal each for the relay at once."""
        if self._public_key is None:
            if self.connection.queue.add(self._rule, panes):
                self._background.wake()
            return
        for start, columns in panes:
            for i in range(columns.level.size):
                report = self.metric.randomizer.encode(columns.reports[i : i + 1])
                post = sealed_post(self.metric, start, report, self._public_key)
                self._send(PendingBatch(NO_BATCH_ID, post, 1))

    def _send(self, batch: PendingBatch) -> None:
        """Put a batch into the queue."""
        self.connection.queue.put(self.metric.name, batch)
        self._background.wake()

    def _send_all(self, deadline: float) -> None:
        """Send everything of the metric, and wait until the gateway has acknowledged it."""
        self.connection.flush(self.metric.name, deadline - clocks.monotonic())

    def _finish(self, deadline: float) -> int:
        """Send the rest as long as the gateway accepts it; return how many reports are left.

        If the queue is in a file, sending stops at the first failure.
        """
        self._is_closed = True
        self._background.stop_serving(self.run_scheduled)
        if self._owns_connection:
            return self.connection.close(max(0.0, deadline - clocks.monotonic()))
        return self.connection.finish(self.metric.name, deadline)

    def _unsent(self) -> int:
        """Return the number of reports left in the file; raise DeliveryError without a file."""
        return self.connection.unsent(self.metric.name)
