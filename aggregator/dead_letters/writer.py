"""Writes messages that could not be counted to the dead-letter topic, with the reason.

The headers are those of Kafka Connect's dead-letter queue, so that existing tools read them. The
timestamp of a dead letter is the time at which it was written, because the topic's retention runs
from then; a header has the timestamp of the original message.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.errors import DitherError
from aggregator.kafka.headers import Header, read
from aggregator.state.decoder import Rejection
from producers.kafka.kafka_errors import describe_kafka_error, of_topic

HEADER_PREFIX = "__connect.errors."
CONVERSION_STAGE = "VALUE_CONVERTER"
ARRIVED_HEADER = "dither.arrived"
"""Header with Kafka's timestamp of the original, in ms since the epoch, if it had one."""
TRUNCATED_HEADER = "dither.truncated.from"
"""Header with the original size of a message that the broker would not take as a whole."""
REPLAYS_HEADER = "dither.replays"
"""Header with the number of replays of a dead letter."""
UNREADABLE_HEADER = "dither.headers.unreadable"
"""Header that replaces the original's headers if they could not be read."""
KEPT_BYTES = 100_000
POLL_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Letter:
    """A message for the dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


def letter_alternatives(message: Any, reason: str, detail: str) -> list[Letter]:
    """Return a message as a dead letter, and as shorter letters in case that one is too large.

    The second letter has the key and the beginning of the value, the last one only the reason and
    the position of the original. If the headers cannot be read, a header says so. A message beyond
    the size limit of counting is never copied in full. `message`: the refused message; `reason`:
    one of `aggregator.dead_letters.reasons`; `detail`: what is wrong with the message, and what was
    expected.
    """
    key, value, headers = message.key(), message.value(), read(message)
    why: list[Header] = [
        (HEADER_PREFIX + "topic", (message.topic() or "").encode()),
        (HEADER_PREFIX + "partition", str(message.partition()).encode()),
        (HEADER_PREFIX + "offset", str(message.offset()).encode()),
        (HEADER_PREFIX + "stage", CONVERSION_STAGE.encode()),
        (HEADER_PREFIX + "class.name", b"aggregator.state.partition.Partition"),
        (HEADER_PREFIX + "exception.class.name", reason.encode()),
        (HEADER_PREFIX + "exception.message", detail.encode()),
    ]
    if (arrived := message.timestamp()[1]) >= 0:
        why.append((ARRIVED_HEADER, str(arrived).encode()))
    if headers is None:
        headers, why = [], [*why, (UNREADABLE_HEADER, b"a name is not UTF-8")]
    whole_letter = Letter(key, value, [*headers, *why])
    why = [*why, (TRUNCATED_HEADER, str(len(value or b"")).encode())]
    shorter_letters = [Letter(key, value and value[:KEPT_BYTES], why), Letter(None, None, why)]
    return shorter_letters if reason == "too_large" else [whole_letter, *shorter_letters]


class DeadLettersUndelivered(DitherError):  # noqa: N818
    """Raised if Kafka did not acknowledge all dead letters in time."""


class DeadLetters:
    """Sends refused messages to the dead-letter topic."""

    def __init__(self, producer: Producer, topic: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.topic = topic
        self._producer, self._clock = producer, clock
        self._undelivered = 0
        self._waiting: deque[list[Letter]] = deque()
        self._error: KafkaError | None = None

    def enqueue(self, rejection: Rejection) -> None:
        """Queue a refused message; :meth:`flush` sends it."""
        self._undelivered += 1
        letters = letter_alternatives(rejection.message, rejection.reason, rejection.detail)
        self._waiting.append(letters)

    def _produce(self, alternatives: list[Letter]) -> None:
        """Send the first alternative; if it is too large, send the next.

        A full queue of the producer raises BufferError.
        """
        letter, *smaller = alternatives

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is None:
                self._undelivered -= 1
                return
            self._error = error
            is_too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE and smaller
            self._waiting.append(smaller if is_too_large else alternatives)

        try:
            self._producer.produce(
                self.topic, letter.value, letter.key, headers=letter.headers, on_delivery=delivered
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE or not smaller:
                raise of_topic(error.args[0], self.topic) from None
            self._produce(smaller)

    def flush(self, seconds: float) -> None:
        """Wait until all letters are acknowledged.

        Raises DeadLettersUndelivered if letters are unacknowledged after `seconds`; they stay
        queued.
        """
        deadline = self._clock.monotonic() + seconds
        while self._undelivered:
            with contextlib.suppress(BufferError):  # the producer's queue is full
                for _ in range(len(self._waiting)):
                    self._produce(self._waiting[0])
                    self._waiting.popleft()
            self._producer.poll(POLL_SECONDS)
            if self._undelivered and self._clock.monotonic() > deadline:
                why = f": {describe_kafka_error(self._error, self.topic)}" if self._error else ""
                raise DeadLettersUndelivered(
                    f"{self._undelivered} dead letters were not acknowledged by topic "
                    f"{self.topic!r} within {seconds:g} s{why}; nothing past them is committed"
                )
        self._error = None
