"""The dead letters: messages that could not be counted, as they came, with the reason.

The headers are those of Kafka Connect's dead-letter queue, so that existing tools read them.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from aggregator.errors import DitherError
from aggregator.partition import Refusal

CONTEXT = "__connect.errors."
STAGE = "VALUE_CONVERTER"
TRUNCATED = "dither.truncated.from"
"""Header with the original size of a message that the broker would not take whole."""
KEPT_BYTES = 100_000
Header = tuple[str, str | bytes | None]
POLL_SECONDS = 0.1


class RefusedMessage(Protocol):
    """The part of a Kafka message that a dead letter keeps."""

    def topic(self) -> str | None:
        """Return the topic it came from."""

    def partition(self) -> int | None:
        """Return the partition it came from."""

    def offset(self) -> int | None:
        """Return its offset."""

    def key(self) -> bytes | None:
        """Return its key."""

    def value(self) -> bytes | None:
        """Return its payload."""


class DeadLettersUndelivered(DitherError):  # noqa: N818
    """The dead-letter topic did not take everything in time."""


class DeadLetters:
    """Sends refused messages to the dead-letter topic.

    Parameters
    ----------
    producer : confluent_kafka.Producer
    topic : str
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self.topic = topic
        self._producer = producer
        self._undelivered = 0
        self._error: KafkaError | None = None

    def send(self, refusal: Refusal) -> None:
        """Queue a refused message; :meth:`flush` waits for it."""
        message: Any = refusal.message
        headers: list[Header] = [
            (CONTEXT + "topic", message.topic().encode()),
            (CONTEXT + "partition", str(message.partition()).encode()),
            (CONTEXT + "offset", str(message.offset()).encode()),
            (CONTEXT + "stage", STAGE.encode()),
            (CONTEXT + "class.name", b"aggregator.partition.Partition"),
            (CONTEXT + "exception.class.name", refusal.reason.encode()),
            (CONTEXT + "exception.message", refusal.detail.encode()),
        ]
        self._produce(message.key(), message.value(), headers)

    def _produce(self, key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
        def delivered(error: KafkaError | None, _: Any) -> None:
            self._undelivered -= 1
            if error is None:
                return
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                self._shorten(key, value, headers)
            else:
                self._error = error
                self._produce(key, value, headers)

        self._undelivered += 1
        while True:
            try:
                self._producer.produce(
                    self.topic, value, key, headers=headers, on_delivery=delivered
                )
            except BufferError:
                self._producer.poll(POLL_SECONDS)
            except KafkaException as error:
                self._undelivered -= 1
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                return self._shorten(key, value, headers)
            else:
                return None

    def _shorten(self, key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
        size = len(value or b"")
        self._produce(key, (value or b"")[:KEPT_BYTES], [*headers, (TRUNCATED, str(size).encode())])

    def flush(self, seconds: float) -> None:
        """Wait until everything sent so far has been acknowledged.

        Raises
        ------
        DeadLettersUndelivered
            If that takes longer than `seconds`; what is left stays queued.
        """
        deadline = time.monotonic() + seconds
        while self._undelivered:
            self._producer.poll(POLL_SECONDS)
            if self._undelivered and time.monotonic() > deadline:
                why = f": {self._error.str()}" if self._error else ""
                raise DeadLettersUndelivered(
                    f"{self._undelivered} dead letters were not acknowledged by topic "
                    f"{self.topic!r} within {seconds:g} s{why}; nothing past them is committed"
                )
        self._error = None
