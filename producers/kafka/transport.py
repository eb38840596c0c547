"""Sends reports to Kafka; buffers them until their batch is full or old, or their pane is over.

A batch has the reports of one pane and one slice, whose devices send the same attributes.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from estimators.metrics.attributes import Attributes
from estimators.metrics.metric import Metric
from producers.delivery.batches import Columns, Delivered, PendingBatch
from producers.delivery.closing import CLOSED_MESSAGE
from producers.delivery.delivery_errors import DeliveryError
from producers.kafka.connection import Served
from producers.kafka.delivery import Outbox
from producers.wire.batch import encode_randomized, new_batch_id

KEPT_BYTES = 64 * 2**20  # the most bytes of failed batches; above it, report() refuses reports


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
        for start, part in panes:
            over = int(part.time_ms.max()) - self.pane_ms - self.lateness_ms
            for closed in sorted(start_ms for start_ms in self._panes if start_ms <= over):
                full += [reports.joined() for reports in self._panes.pop(closed).values()]
            pane = self._panes.setdefault(start, {})
            sliced = pane.setdefault(part.attributes, _Slice(now))
            sliced.columns.append(part)
            sliced.count += part.level.size
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
        joined, size = full.joined(), self.batch_reports
        cut_count = full.count - full.count % size
        if cut_count == full.count:
            del pane[joined.attributes]
        else:  # what is left came with the last call: a slice is cut as soon as it is full
            remaining = joined.part(slice(cut_count, None))
            pane[joined.attributes] = _Slice(now, full.count - cut_count, [remaining])
        for begin in range(0, cut_count, size):
            yield joined.part(slice(begin, begin + size))


class KafkaTransport:
    """The transport of one metric's reports to Kafka.

    Parameters
    ----------
    metric, outbox, waiting
        The metric, the outbox for its batches, and the buffer in which reports wait for them.
    timer : callable
        Returns monotonic seconds, which determine the age of batches.
    reporter : Served
        The outbox's connection serves this reporter until the transport is closed.
    owns_connection : bool
        Whether the connection is closed with the transport.
    """

    file = None

    def __init__(
        self,
        metric: Metric,
        outbox: Outbox,
        waiting: PaneBuffer,
        timer: Callable[[], float],
        reporter: Served,
        *,
        owns_connection: bool,
    ) -> None:
        self._metric, self._outbox, self._waiting, self._timer = metric, outbox, waiting, timer
        self._reporter, self._owns_connection = reporter, owns_connection
        self._lock, self.is_closed = threading.Lock(), False
        self._scheduled: Callable[[], float] | None = None
        outbox.connection.add(reporter)

    @property
    def delivered(self) -> Delivered:
        """Reports, batches and bytes that Kafka has acknowledged so far."""
        return self._outbox.delivered

    @property
    def key(self) -> bytes | None:
        """The key of all batches; None if the key of each batch is its id."""
        return self._outbox.key

    def has_capacity(self, reports: int) -> bool:
        """Return True; raise DeliveryError for new failures, or if over 64 MiB have failed."""
        if self._outbox.failed:
            self._outbox.check(KEPT_BYTES)
        return True

    def buffer(self, panes: Iterable[tuple[int, Columns]]) -> None:
        """Buffer reports, and send the full batches; wait while librdkafka's queue is full."""
        now = self._timer()
        with self._lock:
            self._check_open()
            is_ready = self._seal(self._waiting.add(panes, now))
        if is_ready:
            self._outbox.send()

    def send(self, batch: PendingBatch) -> None:
        """Send a batch; wait while librdkafka's queue is full."""
        with self._lock:
            self._check_open()
            self._outbox.put(batch)
        self._outbox.send()

    def serve(self, call: Callable[[], float]) -> None:
        """Call a function whenever batches are sent by age."""
        self._scheduled = call

    def send_aged(self) -> None:
        """Send the batches that have reached their age, and call the scheduled function."""
        now = self._timer()
        with self._lock:
            self._seal(self._waiting.pop_aged(now))
        self._outbox.send()
        if self._scheduled is not None:
            self._scheduled()

    def flush(self, deadline: float) -> None:
        """Send everything, including failed batches, and wait for Kafka's acknowledgement."""
        with self._lock:
            self._seal(self._waiting.pop_all())
        self._outbox.send(deadline)
        self._outbox.resend(deadline)
        self._outbox.wait(deadline)

    def close(self, deadline: float) -> None:
        """Flush until a deadline, then send no more; raise DeliveryError if reports are lost."""
        with self._lock:
            self.is_closed = True
        try:
            self.flush(deadline)
        except DeliveryError:
            raise self._outbox.error(are_kept=False) from None
        finally:
            self._outbox.connection.remove(self._reporter)
            if self._owns_connection:
                self._outbox.connection.close(max(0.0, deadline - time.monotonic()))

    def unsent(self) -> None:
        """Raise DeliveryError for the reports that are not acknowledged."""
        raise self._outbox.error(are_kept=False)

    def _seal(self, ready: Iterable[Columns]) -> bool:
        """Make batches of reports, in order, and queue them; return whether there were any."""
        is_ready = False
        for level, reports, times, attributes in ready:
            key, last, is_ready = new_batch_id(), int(times.max()), True
            payload = encode_randomized(
                self._metric, level, reports, last, key, attributes=attributes
            )
            self._outbox.put(PendingBatch(key, payload, level.size))
        return is_ready

    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError(CLOSED_MESSAGE)
