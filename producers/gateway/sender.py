"""Sends batches from the event loop to Kafka, and returns Kafka's acknowledgements to it."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producers.delivery.batches import PendingBatch
from producers.gateway.presence import Presence
from producers.kafka.connection import Connection
from producers.wire.framing import check_schema_id, frame

logger = logging.getLogger("producers")

SWEEP_SECONDS = 0.1  # how much later than its time a post may learn that there was no answer
PREPARE_AGAIN_SECONDS = 5.0
RECONNECT_MS = 1000  # at most between two attempts; librdkafka's own 10 s would add to an outage
ASK_SECONDS = 1.0
DOUBT_SECONDS = 1.0  # without an acknowledgement: is Kafka there at all?

NOT_TAKEN = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Outcomes that are about the topic, not about one batch."""

Outcome = KafkaError | None
"""None: Kafka has it, in as many replicas as the topic asks for."""


class Sender:
    """Batches in flight to Kafka, each with a future of its acknowledgement.

    All methods belong to the event loop; librdkafka's deliveries come from the connection's thread.

    Parameters
    ----------
    config : mapping
        librdkafka's properties.
    topic : str
    timeout : float
        Seconds to wait for Kafka's acknowledgement of a batch.
    prepare : callable, optional
        Called in a thread until it does not raise, before anything is sent: to create the topic.

    Attributes
    ----------
    is_stalled : bool
        Whether the last batch timed out, and Kafka has acknowledged none since.
    """

    _loop: asyncio.AbstractEventLoop
    """The one that it was started in."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        timeout: float,
        prepare: Callable[[], object] | None = None,
        schema_id: int | None = None,
    ) -> None:
        self._schema_id = None if schema_id is None else check_schema_id(schema_id)
        self.topic, self.timeout = topic, timeout
        self.ready = False
        self.presence = Presence(self._ask, self._left)
        self._told = config.get("error_cb")
        self.last_error = ""
        self.is_stalled = False
        self._config = {
            "message.timeout.ms": max(1, round(timeout * 1000)),
            "reconnect.backoff.max.ms": RECONNECT_MS,
            **config,
            "error_cb": self._complained,
        }
        self._prepare = prepare
        self._connection: Connection | None = None
        self._closing = threading.Event()
        self._arrived: deque[tuple[asyncio.Future[Outcome], Callable[[], None], Outcome]] = deque()
        self._is_settling = False
        self._awaited: deque[tuple[float, asyncio.Future[Outcome]]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start connecting; Kafka need not be reachable."""
        self._loop = asyncio.get_running_loop()
        self._closing.clear()
        self._connection = Connection(self._config)
        self.presence.start()
        if self._prepare is None:
            self.ready = True
        else:
            threading.Thread(target=self._get_ready, name="dither-topic", daemon=True).start()

    async def close(self) -> None:
        """Wait for what is under way, but not longer than the timeout."""
        connection, self._connection = self._connection, None
        self.ready = False
        self._closing.set()
        self.presence.close()
        if connection is None:
            return
        await asyncio.to_thread(connection.producer.flush, self.timeout)
        await asyncio.to_thread(connection.close)
        self._settle()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        while self._awaited:
            _give_up(self._awaited.popleft()[1])

    @property
    def obstacle(self) -> str:
        """Why nothing can be sent now, for devices; empty if it can. The log has details."""
        if not self.ready:
            return "Kafka does not answer yet"
        return "Kafka does not answer" if self.presence.is_away else ""

    def send(self, batch: PendingBatch, done: Callable[[], None]) -> asyncio.Future[Outcome]:
        """Hand a batch to librdkafka.

        Parameters
        ----------
        batch : PendingBatch
        done : callable
            Called when librdkafka has finished with the batch and freed its bytes, which may be
            after the future timed out.

        Returns
        -------
        Future
            None when Kafka has acknowledged the batch, or the error.

        Raises
        ------
        BufferError
            If librdkafka's queue is full.
        KafkaException
            If it refuses the batch.
        """
        assert self._connection is not None  # noqa: S101
        future: asyncio.Future[Outcome] = self._loop.create_future()
        self._connection.producer.produce(
            self.topic,
            value=(
                batch.payload if self._schema_id is None else frame(self._schema_id, batch.payload)
            ),
            key=batch.key,
            on_delivery=functools.partial(self._delivered, future, done),
        )
        self._awaited.append((self._loop.time(), future))
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        return future

    def replace_failed(self) -> None:
        """Continue with a new producer after an error from which librdkafka does not recover."""
        failed = self._connection
        if failed is None or failed.closed:
            return
        logger.error(
            "Kafka's producer has failed permanently; it is replaced: %s", failed.last_error
        )
        self._connection = Connection(self._config)
        threading.Thread(
            target=_abandon, args=[failed, self.timeout], name="dither-failed", daemon=True
        ).start()

    def _delivered(
        self,
        future: asyncio.Future[Outcome],
        done: Callable[[], None],
        error: Outcome,
        _message: Any,
    ) -> None:
        """Process a delivery in the connection's thread; wake the loop once for several."""
        self._arrived.append((future, done, error))
        if not self._is_settling:
            self._is_settling = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._is_settling = False
        while self._arrived:
            future, done, error = self._arrived.popleft()
            done()
            if error is None or error.code() in NOT_TAKEN:
                self.is_stalled = error is not None
            if not future.done():
                future.set_result(error)

    def _sweep(self) -> None:
        """Time out batches that have waited for too long, the oldest first."""
        now = self._loop.time()
        overdue = now - self.timeout
        while self._awaited and (self._awaited[0][1].done() or self._awaited[0][0] <= overdue):
            future = self._awaited.popleft()[1]
            self.is_stalled = self.is_stalled or not future.done()
            _give_up(future)
        if self._awaited and self._awaited[0][0] <= now - DOUBT_SECONDS:
            self.presence.request_check()
        again = bool(self._awaited)
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep) if again else None

    def _complained(self, error: KafkaError) -> None:
        """Process an error about the brokers from Kafka's client."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.presence.request_check(is_sure=True)  # or one has just closed an idle connection
        if self._told is not None:
            self._told(error)

    def _ask(self) -> bool:
        """Return whether a broker answers."""
        connection = self._connection
        if connection is None or not self.ready:  # asking for a topic may create it
            return True
        try:
            connection.producer.list_topics(self.topic, timeout=ASK_SECONDS)
        except KafkaException:
            return False
        return True

    def _left(self) -> None:
        """Fail the batches that wait while Kafka is away: their senders can post them again."""
        logger.warning("Kafka does not answer: posts are refused until it does")
        if not self._closing.is_set():
            self._loop.call_soon_threadsafe(self._give_up_all)

    def _give_up_all(self) -> None:
        while self._awaited:
            _give_up(self._awaited.popleft()[1], AWAY)

    def _get_ready(self) -> None:
        assert self._prepare is not None  # noqa: S101
        while not self._closing.is_set():
            try:
                self._prepare()
            except Exception as error:
                if self.last_error != str(error):
                    logger.warning("not ready to take reports: %s", error)
                self.last_error = str(error)
                self._closing.wait(PREPARE_AGAIN_SECONDS)
            else:
                self.ready, self.last_error = not self._closing.is_set(), ""
                return


TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
AWAY = KafkaError(KafkaError._ALL_BROKERS_DOWN)


def _give_up(future: asyncio.Future[Outcome], why: KafkaError = TIMED_OUT) -> None:
    if not future.done():
        future.set_result(why)


def _abandon(connection: Connection, seconds: float) -> None:
    """Close a connection whose batches cannot be sent; each is reported as an error."""
    connection.producer.purge()
    connection.producer.flush(seconds)
    connection.close()
