"""Sends batches from the event loop to Kafka, and returns Kafka's acknowledgements to it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producers.delivery.batches import PendingBatch
from producers.gateway.kafka_presence import KafkaPresence
from producers.kafka.connection import Connection
from producers.wire.framing import check_schema_id, frame

logger = logging.getLogger("producers")

BUSY_SECONDS = 0.002
"""The time between two polls while batches wait; a poll takes all acknowledgements that came."""
IDLE_SECONDS = 1.0
"""The time between two polls while no batch waits: Kafka's client may report errors then, too."""
CLOSING_SECONDS = 0.01
PREPARE_AGAIN_SECONDS = 5.0
RECONNECT_MS = 1000  # the most between two attempts; librdkafka's 10 s would prolong an outage
DOUBT_SECONDS = 1.0  # without an acknowledgement: is Kafka there at all?

NOT_TAKEN = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Errors that concern the topic, not a single batch."""

Outcome = KafkaError | None
"""None if Kafka has the batch, in as many replicas as the topic requires; else the error."""


@dataclasses.dataclass(slots=True, eq=False)
class _Flight:
    """A batch on its way to Kafka; librdkafka calls it when the batch has arrived or failed."""

    sender: Sender
    sent_at: float
    answer: Callable[[Outcome], None]
    release: Callable[[], None]
    is_answered: bool = False

    def __call__(self, error: Outcome, _message: Any) -> None:
        self.release()
        if error is None:
            self.sender.is_stalled = False
            self.sender.presence.confirm()
        elif error.code() in NOT_TAKEN:
            self.sender.is_stalled = True
        self.settle(error)

    def settle(self, outcome: Outcome) -> None:
        if not self.is_answered:
            self.is_answered = True
            try:
                self.answer(outcome)
            except Exception:  # it must not keep the others from their answers
                logger.exception("a post could not be answered")


class Sender:
    """Sends batches to Kafka; the parameters are those of `producers.gateway.gateway.Gateway`.

    Public methods run in the event loop, which polls for acknowledgements every few milliseconds,
    so no post needs a change of threads. `timeout` is the gateway's `acknowledge_timeout`.

    Attributes
    ----------
    is_stalled : bool
        Whether the last batch timed out, and Kafka has acknowledged no batch since.
    """

    _loop: asyncio.AbstractEventLoop
    """The event loop in which the sender was started."""

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
        self.presence = KafkaPresence(self._ask_brokers, self._fail_waiting)
        self._app_error_cb = config.get("error_cb")
        self.last_error = ""
        self.is_stalled = False
        self._config = {
            "message.timeout.ms": max(1, round(timeout * 1000)),
            "reconnect.backoff.max.ms": RECONNECT_MS,
            **config,
            "error_cb": self._on_broker_error,
        }
        self._prepare = prepare
        self._connection: Connection | None = None
        self._failed: list[Connection] = []
        self._closing = threading.Event()
        self._awaited: deque[_Flight] = deque()
        self._look: asyncio.TimerHandle | None = None
        self._is_busy = False

    def start(self) -> None:
        """Start connecting; Kafka need not be reachable."""
        self._loop = asyncio.get_running_loop()
        self._closing.clear()
        self._connection = Connection(self._config, background=False)
        self._look_in(IDLE_SECONDS)
        self.presence.start()
        if self._prepare is None:
            self.ready = True
        else:
            threading.Thread(
                target=self._get_ready, args=[self._prepare], name="dither-topic", daemon=True
            ).start()

    async def close(self) -> None:
        """Wait until all batches are acknowledged, or the timeout has passed; then close."""
        self.ready = False
        self._closing.set()
        self.presence.close()
        connection = self._connection
        if connection is None:
            return
        deadline = self._loop.time() + self.timeout
        while len(connection.producer) and self._loop.time() < deadline:
            self._take(connection)
            await asyncio.sleep(CLOSING_SECONDS)
        self._connection = None
        if self._look is not None:
            self._look.cancel()
        self._give_up_all(TIMED_OUT)
        for open_connection in (connection, *self._failed):
            await asyncio.to_thread(open_connection.close)

    @property
    def obstacle(self) -> str:
        """Why no batch can be sent now, as text for devices; "" if one can. The log has details."""
        if not self.ready:
            return "Kafka does not answer yet"
        return "Kafka does not answer" if self.presence.is_away else ""

    def send(
        self, batch: PendingBatch, answer: Callable[[Outcome], None], release: Callable[[], None]
    ) -> None:
        """Hand a batch to librdkafka.

        `batch`: the batch; `answer`: called once in the event loop: with None when Kafka has
        acknowledged the batch, or with the error; `release`: called when librdkafka no longer needs
        the bytes of the batch; if the batch timed out, this may be after `answer` was called.

        Raises
        ------
        BufferError
            If librdkafka's queue is full.
        KafkaException
            If librdkafka refuses the batch.
        """
        assert self._connection is not None  # noqa: S101
        flight = _Flight(self, self._loop.time(), answer, release)
        payload = batch.payload
        if self._schema_id is not None:
            payload = frame(self._schema_id, payload)
        self._connection.producer.produce(
            self.topic, value=payload, key=batch.key, on_delivery=flight
        )
        self._awaited.append(flight)
        if not self._is_busy:
            self._look_in(BUSY_SECONDS)

    def replace_failed(self) -> None:
        """Use a new producer after an error from which librdkafka does not recover."""
        broken = self._connection
        if broken is None or broken.closed:
            return
        logger.error(
            "Kafka's producer has failed permanently; it is replaced: %s", broken.last_error
        )
        self._connection = Connection(self._config, background=False)
        broken.producer.purge()  # its batches cannot be sent: each is reported as an error
        self._failed.append(broken)

    def _look_in(self, seconds: float) -> None:
        if self._look is not None:
            self._look.cancel()
        self._is_busy = seconds == BUSY_SECONDS
        self._look = self._loop.call_later(seconds, self._settle)

    def _settle(self) -> None:
        """Process acknowledgements, and answer batches that have waited too long."""
        if self._connection is None:
            return
        self._take(self._connection)
        for broken in list(self._failed):
            self._take(broken)
            if not len(broken.producer):
                self._failed.remove(broken)
                broken.close()
        now = self._loop.time()
        while self._awaited:
            oldest = self._awaited[0]
            if not oldest.is_answered:
                if oldest.sent_at > now - self.timeout:
                    break
                self.is_stalled = True
                oldest.settle(TIMED_OUT)
            self._awaited.popleft()
        if self._awaited and self._awaited[0].sent_at <= now - DOUBT_SECONDS:
            self.presence.request_check()
        self._look_in(BUSY_SECONDS if self._awaited else IDLE_SECONDS)

    def _take(self, connection: Connection) -> None:
        try:
            connection.producer.poll(0)
        except Exception:
            logger.exception("Kafka's client has failed")

    def _on_broker_error(self, error: KafkaError) -> None:
        """React to an error of the brokers that Kafka's client reports."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.presence.request_check(is_sure=True)  # or one has just closed an idle connection
        if self._app_error_cb is not None:
            self._app_error_cb(error)

    def _ask_brokers(self, seconds: float) -> bool:
        """Return whether a broker answers within `seconds`."""
        connection = self._connection
        if connection is None or not self.ready:  # asking for a topic may create it
            return True
        try:
            connection.producer.list_topics(self.topic, timeout=seconds)
        except KafkaException:
            return False
        return True

    def _fail_waiting(self) -> None:
        """Fail all waiting batches because Kafka is away; their senders can post them again."""
        logger.warning("Kafka does not answer: posts are refused until it does")
        if not self._closing.is_set():
            self._loop.call_soon_threadsafe(self._give_up_all, BROKERS_AWAY)

    def _give_up_all(self, why: KafkaError) -> None:
        while self._awaited:
            self._awaited.popleft().settle(why)

    def _get_ready(self, prepare: Callable[[], object]) -> None:
        while not self._closing.is_set():
            try:
                prepare()
            except Exception as error:
                if self.last_error != str(error):
                    logger.warning("not ready to take reports: %s", error)
                self.last_error = str(error)
                self._closing.wait(PREPARE_AGAIN_SECONDS)
            else:
                self.ready, self.last_error = not self._closing.is_set(), ""
                return


TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
BROKERS_AWAY = KafkaError(KafkaError._ALL_BROKERS_DOWN)
