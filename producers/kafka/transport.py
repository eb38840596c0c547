"""Sends reports to Kafka: an outbox keeps each batch until Kafka has acknowledged it."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
import time
from typing import Any

from confluent_kafka import KafkaException

from producers.delivery.batches import Delivered, PendingBatch
from producers.delivery.delivery_errors import DeliveryError
from producers.kafka.connection import Connection
from producers.kafka.kafka_errors import describe_kafka_error
from producers.wire.framing import check_schema_id, frame

KEPT_BYTES = 64 * 2**20  # the most bytes of failed batches; above it, report() refuses reports
QUEUE_FULL_WAIT = 0.1  # seconds between two attempts while librdkafka's queue is full
FLUSH_WAIT = 0.01  # seconds between two looks at what is still under way
WHAT_TO_CHECK = "check that the brokers are reachable and the topic is writable"


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
