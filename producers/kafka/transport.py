"""Sends reports to Kafka: an outbox keeps each batch until Kafka has acknowledged it.

A batch has the reports of one pane and one slice, whose devices send the same attributes. Reports
wait until their batch is full or old, or their pane is over.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from confluent_kafka import KafkaException

from estimators.metrics.attributes import Attributes
from producers.delivery.batches import Columns, Delivered, PendingBatch
from producers.delivery.delivery_errors import DeliveryError
from producers.kafka.connection import Connection
from producers.kafka.kafka_errors import describe_kafka_error
from producers.wire.framing import check_schema_id, frame

KEPT_BYTES = 64 * 2**20  # the most bytes of failed batches; above it, report() refuses reports
QUEUE_FULL_WAIT = 0.1  # seconds between two attempts while librdkafka's queue is full
FLUSH_WAIT = 0.01  # seconds between two looks at what is still under way
WHAT_TO_CHECK = "check that the brokers are reachable and the topic is writable"


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


class Outbox:
    """The batches of a reporter, from sealing until Kafka has acknowledged them.

    Any thread may send them, in the order of `put`, because a batch that is sent after a newer
    batch could be late. By default the key of a message is the batch's id.
    """

    def __init__(
        self, connection: Connection, topic: str, key: bytes | None, schema_id: int | None
    ) -> None:
        self.topic, self.key = topic, key
        self._schema_id = None if schema_id is None else check_schema_id(schema_id)
        self.delivered = Delivered()
        self.connection = connection
        self._lock, self._sending, self._sender = threading.Lock(), threading.Lock(), 0
        self._sealed: collections.deque[PendingBatch] = collections.deque()
        self._under_way: dict[bytes, PendingBatch] = {}
        self.failed: dict[bytes, PendingBatch] = {}
        self._reported_keys: set[bytes] = set()  # keys of failed batches that were in an error
        self._first_error = ""

    def check(self) -> None:
        """Raise DeliveryError for new failures, or if failed batches exceed `KEPT_BYTES` bytes."""
        with self._lock:
            failed = [*self.failed.values()]
            all_reported = self._reported_keys >= self.failed.keys()
        if not all_reported or sum(len(batch.payload) for batch in failed) > KEPT_BYTES:
            error = self.error(failed)
            error.add_note("nothing of this call was reported: repeat it")
            raise error

    def put(self, batch: PendingBatch) -> None:
        """Queue a batch for `send`; from then on `flush` waits for it."""
        if self._schema_id is not None:
            batch = dataclasses.replace(batch, payload=frame(self._schema_id, batch.payload))
        with self._lock:
            self._under_way[batch.key] = batch
            self._sealed.append(batch)

    def send(self, deadline: float | None = None) -> None:
        """Pass queued batches to librdkafka in order; wait while its queue is full.

        A batch fails if the queue has no room for it by the deadline (monotonic seconds).
        """
        if not self._sealed or self._sender == threading.get_ident():
            return  # a callback of librdkafka reports while this thread waits for room to send
        patience = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._sending.acquire(timeout=patience):
            return  # another thread still waits for room, and sends these too
        self._sender = threading.get_ident()
        try:
            while self._sealed:
                self._hand_over(self._sealed.popleft(), deadline)
        finally:
            self._sender = 0
            self._sending.release()

    def flush(self, deadline: float) -> None:
        """Send everything, also failed batches again; wait until all batches are acknowledged.

        Raises DeliveryError if a batch failed, or is still in flight at the deadline.
        """
        self.send(deadline)
        with self._lock:
            self._under_way |= self.failed
            self._sealed.extend(self.failed.values())
            self.failed.clear()
            self._reported_keys.clear()
            self._first_error = ""
        self.send(deadline)
        with self._lock:
            awaited = set(self._under_way)
        while awaited and time.monotonic() < deadline:
            self.connection.producer.poll(FLUSH_WAIT)
            with self._lock:
                awaited &= self._under_way.keys()
        with self._lock:
            missing = [self._under_way[key] for key in awaited & self._under_way.keys()]
            missing += self.failed.values()
        if missing:
            raise self.error(missing)

    def error(
        self, missing: list[PendingBatch] | None = None, *, are_kept: bool = True
    ) -> DeliveryError:
        """Return the error for missing batches.

        Parameters
        ----------
        missing : list of PendingBatch, optional
            By default all batches that are not acknowledged.
        are_kept : bool
            Whether the reporter keeps the batches, and can send them again.
        """
        with self._lock:
            if missing is None:
                missing = [*self._under_way.values(), *self.failed.values()]
            self._reported_keys = {batch.key for batch in missing} & self.failed.keys()
            reason, is_unheard = self._first_error, not self.delivered.batches
        if is_unheard and not reason:
            reason = self.connection.diagnose()
        return DeliveryError(
            reports=sum(batch.reports for batch in missing),
            batches=len(missing),
            first_error=reason or self.connection.last_error or "no answer in time",
            receiver=f"Kafka at {self.connection.servers}",
            check=WHAT_TO_CHECK,
            kept=are_kept,
        )

    def _hand_over(self, batch: PendingBatch, deadline: float | None) -> None:
        produce = functools.partial(
            self.connection.producer.produce,
            self.topic,
            value=batch.payload,
            key=batch.key if self.key is None else self.key,
            on_delivery=functools.partial(self._acknowledge, batch),
        )
        while True:
            try:
                produce()
            except BufferError as error:
                if self.connection.closed or (deadline is not None and time.monotonic() > deadline):
                    return self._fail(batch, str(error))
                self.connection.producer.poll(QUEUE_FULL_WAIT)
            except KafkaException as error:
                return self._fail(batch, describe_kafka_error(error.args[0], self.topic))
            except BaseException as error:
                self._fail(batch, repr(error))
                raise
            else:
                return None

    def _acknowledge(self, batch: PendingBatch, error: Any, _message: Any) -> None:
        if error is not None:
            return self._fail(batch, describe_kafka_error(error, self.topic))
        with self._lock:
            if self._under_way.pop(batch.key, None) is not None:
                done = self.delivered
                self.delivered = Delivered(
                    done.reports + batch.reports, done.batches + 1, done.bytes + len(batch.payload)
                )
        return None

    def _fail(self, batch: PendingBatch, reason: str) -> None:
        with self._lock:
            self.failed[batch.key] = self._under_way.pop(batch.key, batch)
            self._first_error = self._first_error or reason
