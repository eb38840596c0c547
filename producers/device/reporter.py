"""The reporter: the interface for an application on a device.

A batch has the reports of one pane and one slice, whose devices send the same attributes. Reports
wait until their batch is full or old, or their pane is over.
"""

from __future__ import annotations

import dataclasses
import threading
import time as clocks
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from estimators.exact.randomness import Bits
from estimators.metrics.attributes import Attributes
from estimators.metrics.denial import Deny
from estimators.metrics.metric import Metric
from producers.delivery.batches import Columns, Delivered, PendingBatch
from producers.delivery.delivery_errors import DeliveryError
from producers.device.base_reporter import BaseReporter
from producers.device.metric_checks import check_metric
from producers.kafka.connection import Connection
from producers.kafka.transport import Outbox
from producers.wire.batch import new_batch_id
from producers.wire.framing import LONGEST_FRAME

REPORTS_TOPIC = "dither.reports"


@dataclasses.dataclass(slots=True)
class _Slice:
    opened: float
    count: int = 0
    columns: list[Columns] = dataclasses.field(default_factory=list)

    def joined(self) -> Columns:
        if len(self.columns) == 1:
            return self.columns[0]
        level, reports, time_ms, attributes = zip(*self.columns, strict=True)
        return Columns(
            np.concatenate(level), np.concatenate(reports), np.concatenate(time_ms), attributes[0]
        )


class PaneBuffer:
    """Randomized reports that wait for their batch, by pane and slice.

    The reports of a slice in a pane are sent once there are `batch_reports` of them, or `batch_age`
    seconds after the first. Reports count until `lateness_ms` after the end of their pane.
    """

    def __init__(
        self, pane_ms: int, lateness_ms: int, batch_reports: int, batch_age: float
    ) -> None:
        self.pane_ms, self.lateness_ms = pane_ms, lateness_ms
        self.batch_reports, self.batch_age = batch_reports, batch_age
        self._panes: dict[int, dict[Attributes, _Slice]] = {}

    def add(self, panes: Iterable[tuple[int, Columns]], now: float) -> list[Columns]:
        """Add reports at monotonic time `now`; return the batches to send, by event time.

        A batch has one pane and one slice. The result has the full batches, and the batches of
        panes that the new reports will close on the workers: these must arrive before the new
        reports.
        """
        full: list[Columns] = []
        for start, report_columns in panes:
            over = int(report_columns.time_ms.max()) - self.pane_ms - self.lateness_ms
            for closed in sorted(start_ms for start_ms in self._panes if start_ms <= over):
                full += [reports.joined() for reports in self._panes.pop(closed).values()]
            pane = self._panes.setdefault(start, {})
            sliced = pane.setdefault(report_columns.attributes, _Slice(now))
            sliced.columns.append(report_columns)
            sliced.count += report_columns.level.size
            if sliced.count >= self.batch_reports:
                full += self._cut(pane, sliced, now)
        return full

    def pop_aged(self, now: float) -> list[Columns]:
        """Remove and return the batches that have reached their age, in order of event time."""
        batches = []
        for start in sorted(self._panes):
            pane = self._panes[start]
            old = [key for key, waiting in pane.items() if now - waiting.opened >= self.batch_age]
            batches += [pane.pop(key).joined() for key in old]
            if not pane:
                del self._panes[start]
        return batches

    def pop_all(self) -> list[Columns]:
        """Remove and return all waiting batches, in order of event time."""
        panes = [self._panes.pop(start) for start in sorted(self._panes)]
        return [waiting.joined() for pane in panes for waiting in pane.values()]

    def _cut(self, pane: dict[Attributes, _Slice], full: _Slice, now: float) -> Iterator[Columns]:
        columns, size = full.joined(), self.batch_reports
        cut_count = full.count - full.count % size
        if cut_count == full.count:
            del pane[columns.attributes]
        else:  # what is left came with the last call: a slice is cut as soon as it is full
            remaining = columns.part(slice(cut_count, None))
            pane[columns.attributes] = _Slice(now, full.count - cut_count, [remaining])
        for begin in range(0, cut_count, size):
            yield columns.part(slice(begin, begin + size))


class Reporter(BaseReporter):
    """Randomizes values of one metric immediately, and sends the reports to Kafka.

    It never stores a raw value: `report` randomizes the value before it returns, and only the
    report waits for its batch. All methods may be called from any thread.

    Parameters
    ----------
    metric : Metric
        The metric.
    config : mapping or Connection
        librdkafka's properties, or a connection that several reporters share.
    topic : str
        The reports topic.
    batch_reports : int
        A batch is sent when it has this many reports (fewer if Kafka's message size or the metric's
        `max_batch_reports` requires it).
    batch_age : float
        A batch is sent at the latest this many seconds after its first report, and earlier if the
        event time of a new report closes the batch's pane.
    key : bytes, optional
        The Kafka key of every batch, for metrics with a limit per key (`max_key_reports`): a random
        pseudonym of the device, or of several devices. A reader of the log can see which batches
        share a key; by default each batch has a random key, its id.
    schema_id : int, optional
        The id of ``ReportBatch`` in a schema registry, as ``dither schemas`` prints it: batches are
        sent in Confluent's frame, which does not change their meaning. By default they are bare.
    attributes : mapping of str to str, optional
        Public properties of the device, by which a metric may sum its reports (`by`). Only
        properties that the metric uses are sent; a value that the metric does not declare is sent
        as "other". Nothing protects them: see docs/privacy.md.
    deny : callable, optional
        For a metric of strings, the application's own rule: it is called with each string, in
        Unicode's normal form C, and returns whether the string must not be reported, as a
        :class:`estimators.DenyRule` does. The rule is used in addition to the definition's `deny`,
        which a server may change; nothing that a server sends switches it off. A string that one of
        the rules denies is reported as "other", randomized like any string. If the rule raises an
        error, nothing is reported.
    trusted : bool
        Must be true for a metric with ``trust = "central"``: **the collector may see true values**.
        The application decides this, not a definition that somebody sent.
    bits : Bits, optional
        The source of randomness; the operating system's by default.
    clock : callable
        Returns seconds since the epoch: the event time of reports without a given time.
    timer : callable
        Returns monotonic seconds: it determines the age of batches.

    Attributes
    ----------
    delivered : Delivered
        Reports, batches and bytes that Kafka has acknowledged.
    denied : int
        How many values were reported as "other", because a rule denies them. The number is exact,
        and sent nowhere: the application decides what to do with it.

    Raises
    ------
    TypeError
        If `metric` is not a metric, or `config` has no properties.
    ValueError
        If a parameter or a Kafka property cannot be used, or the metric has a crowd.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1])
    >>> with Reporter(metric, {"test.mock.num.brokers": 1}) as reporter:
    ...     reporter.report(1.0, epsilon=0.5)
    ...     reporter.report([0.0, 1.0], epsilon=[0.7, 2.0])
    ...     reporter.flush()
    ...     reporter.delivered.reports
    3
    """

    def __init__(
        self,
        metric: Metric,
        config: Mapping[str, Any] | Connection,
        *,
        topic: str = REPORTS_TOPIC,
        batch_reports: int = 1000,
        batch_age: float = 1.0,
        key: bytes | None = None,
        schema_id: int | None = None,
        attributes: Mapping[str, str] | None = None,
        deny: Deny | None = None,
        trusted: bool = False,
        bits: Bits | None = None,
        clock: Callable[[], float] = clocks.time,
        timer: Callable[[], float] = clocks.monotonic,
    ) -> None:
        check_metric(metric)
        if not batch_age >= 0:
            raise ValueError(f"batch_age = {batch_age}: expected seconds, 0 or more")
        self.topic, self._owns_connection = topic, not isinstance(config, Connection)
        self._connection = config if isinstance(config, Connection) else Connection(config)
        room_for_frame = 0 if schema_id is None else LONGEST_FRAME
        try:
            super().__init__(
                metric,
                most_bytes=self._connection.message_max_bytes - room_for_frame,
                batch_reports=batch_reports,
                attributes=attributes,
                deny=deny,
                trusted=trusted,
                bits=bits,
                clock=clock,
            )
            self._key, self._timer, self._lock = key, timer, threading.Lock()
            self._outbox = Outbox(self._connection, topic, key, schema_id)
            self._waiting = PaneBuffer(
                metric.pane_ms, metric.lateness_ms, self.batch_reports, batch_age
            )
            self._connection.add(self)
        except BaseException:
            if self._owns_connection:
                self._connection.close()
            raise

    @property
    def delivered(self) -> Delivered:
        """Reports, batches and bytes that Kafka has acknowledged so far."""
        return self._outbox.delivered

    def poll(self, timeout: float = 0.0) -> None:
        """Process acknowledgements for up to `timeout` seconds, then send what is due.

        Batches that have reached their age are due, and so are windows of roll-ups that are over.
        Call this only with ``Connection(..., background=False)``; otherwise a thread does it.
        """
        self._connection.poll(timeout)

    def send_aged(self) -> None:
        """Send the batches that have reached their age, and call the scheduled functions if due."""
        now = self._timer()
        with self._lock:
            self._seal(self._waiting.pop_aged(now))
        self._outbox.send()
        if self._scheduled:
            self.run_scheduled()

    def _has_capacity(self, reports: int) -> bool:
        """Return True; raise DeliveryError for new failures, or if over 64 MiB have failed."""
        if self._outbox.failed:
            self._outbox.check()
        return True

    def _buffer(self, panes: Iterable[tuple[int, Columns]]) -> None:
        """Buffer reports, and send the full batches; wait while librdkafka's queue is full."""
        now = self._timer()
        with self._lock:
            self.check_open()
            is_ready = self._seal(self._waiting.add(panes, now))
        if is_ready:
            self._outbox.send()

    def _send(self, batch: PendingBatch) -> None:
        """Send a batch; wait while librdkafka's queue is full."""
        with self._lock:
            self.check_open()
            self._outbox.put(batch)
        self._outbox.send()

    def _send_all(self, deadline: float) -> None:
        """Send everything, including failed batches, and wait for Kafka's acknowledgement."""
        with self._lock:
            self._seal(self._waiting.pop_all())
        self._outbox.flush(deadline)

    def _finish(self, deadline: float) -> None:
        """Send everything until a deadline, then no more; raise DeliveryError for lost reports."""
        with self._lock:
            self._is_closed = True
        try:
            self._send_all(deadline)
        except DeliveryError:
            self._unsent()
        finally:
            self._connection.remove(self)
            if self._owns_connection:
                self._connection.close(max(0.0, deadline - clocks.monotonic()))

    def _unsent(self) -> None:
        """Raise DeliveryError for the reports that are not acknowledged."""
        raise self._outbox.error(are_kept=False) from None

    def _seal(self, ready: Iterable[Columns]) -> bool:
        """Make batches of reports, in order, and queue them; return whether there were any."""
        is_ready = False
        for columns in ready:
            self._outbox.put(self._encoded(columns, new_batch_id()))
            is_ready = True
        return is_ready
