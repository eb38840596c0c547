"""Reads the dead-letter topic: refused messages, and from their headers the origin and reason."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer

from aggregator.config.settings import Settings
from aggregator.dead_letters.writer import (
    ARRIVED_HEADER,
    HEADER_PREFIX,
    REPLAYS_HEADER,
    TRUNCATED_HEADER,
)
from aggregator.errors import DitherError
from aggregator.kafka import clients
from aggregator.kafka.headers import Header, read
from aggregator.kafka.log_reader import log_ranges, read_ranges
from estimators import ReportError
from producers.wire.batch import parse_batch
from producers.wire.framing import unframed
from producers.wire.reports_pb2 import ReportBatch

NAME_TAG = 0x0A
"""The first byte of a batch that begins with a metric's name: field 1, a string."""
MAX_INTEGER = 2**63
"""Kafka's offsets, sizes and timestamps are smaller than this."""
SHORT_NAME = 0x80
"""A name's length is one byte of the batch if it is smaller than this."""


class MessagePosition(NamedTuple):
    """The position of a message in a topic, written ``PARTITION:OFFSET``."""

    partition: int
    offset: int

    def __str__(self) -> str:
        """Return the position as ``PARTITION:OFFSET``."""
        return f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the position that ``str`` wrote; raise ValueError for other text.

        Examples
        --------
        >>> MessagePosition.parse("3:8812")
        MessagePosition(partition=3, offset=8812)
        """
        partition, colon, offset = text.partition(":")
        if not (colon and partition.isdecimal() and offset.isdecimal()):
            raise ValueError(f"{text!r}: expected PARTITION:OFFSET, as in 0:17")
        return cls(int(partition), int(offset))


@dataclasses.dataclass(frozen=True)
class DeadLetter:
    """A refused message."""

    position: MessagePosition  # in the dead-letter topic
    topic: str  # of the original
    origin: MessagePosition  # in the reports topic
    reason: str
    detail: str
    key: bytes | None  # of the original, unless truncated
    value: bytes | None
    headers: list[Header]  # of the original
    arrived: int  # Kafka's timestamp of the original, else of the letter, in ms
    whole_bytes: int | None = None  # the original size of a truncated value

    @classmethod
    def parse(cls, message: Any) -> Self | None:
        """Return the dead letter in a message; None if its headers name no original."""
        headers = read(message) or []
        named = [name for name, _ in headers]
        if HEADER_PREFIX + "topic" not in named:
            return None
        # Dither's headers are the last: the message may have been in a dead-letter topic before.
        begin = len(named) - 1 - named[::-1].index(HEADER_PREFIX + "topic")
        why = {name: _header_text(value) for name, value in headers[begin:]}
        try:
            numbers = (int(why[HEADER_PREFIX + name]) for name in ("partition", "offset"))
            origin = MessagePosition(*numbers)
            whole_bytes = int(why[TRUNCATED_HEADER]) if TRUNCATED_HEADER in why else None
            arrived = int(why[ARRIVED_HEADER]) if ARRIVED_HEADER in why else message.timestamp()[1]
        except (KeyError, ValueError):
            return None
        counts = origin.partition, origin.offset, whole_bytes or 0
        if not all(0 <= count < MAX_INTEGER for count in counts) or abs(arrived) >= MAX_INTEGER:
            return None
        return cls(
            position=MessagePosition(message.partition(), message.offset()),
            topic=why[HEADER_PREFIX + "topic"],
            origin=origin,
            reason=why.get(HEADER_PREFIX + "exception.class.name", ""),
            detail=why.get(HEADER_PREFIX + "exception.message", ""),
            key=message.key(),
            value=message.value(),
            headers=headers[:begin],
            arrived=arrived,
            whole_bytes=whole_bytes,
        )

    @property
    def identity(self) -> int:
        """A hash that is the same for all dead letters of the same message."""
        return hash((self.topic, self.origin, self.key, self.value))

    @property
    def replays(self) -> int:
        """How often the message had been replayed before this refusal."""
        # Anybody may have written the header.
        count = _header_text(dict(self.headers).get(REPLAYS_HEADER))[:9]
        return int(count) if count.isdecimal() else 0

    @functools.cached_property
    def batch(self) -> ReportBatch | None:
        """The batch of reports in the value; None if the value is truncated or no batch."""
        if self.value is None or self.whole_bytes is not None:
            return None
        try:
            return parse_batch(self.value)
        except ReportError:
            return None

    @functools.cached_property
    def metric(self) -> str:
        """The metric that the value names, as printable text; empty if it names none."""
        if self.batch is not None:
            return printable(self.batch.metric)
        try:
            head = unframed(self.value or b"")
        except ReportError:
            return ""
        if self.whole_bytes is None or len(head) < 2 or head[0] != NAME_TAG or head[1] > SHORT_NAME:
            return ""
        return printable(head[2 : 2 + head[1]].decode(errors="replace"))


class DeadLetterTopic:
    """The dead letters of a deployment, in the topic's order, one for each refused message.

    If a message has several dead letters, only the first is read. Reading joins no consumer group
    and commits no offset.

    Attributes
    ----------
    foreign_messages : int
        The number of messages that are no dead letters of this deployment.
    copies : list of (MessagePosition, MessagePosition)
        Pairs of a dead letter and a later letter with the same original.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.topic = settings, settings.topics.deadletters
        self.foreign_messages = 0
        self.copies: list[tuple[MessagePosition, MessagePosition]] = []
        properties = {
            "auto.offset.reset": "earliest",  # where retention deletes letters during the read
            "isolation.level": "read_uncommitted",  # they are written without transactions
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
        group = f"dither-deadletters-{uuid.uuid4()}"
        self._consumer: Consumer = clients.consumer(settings, group, **properties)

    def __enter__(self) -> Self:
        """Return the topic."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self._consumer.close()

    @functools.cached_property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """The first and the next offset of each partition, as of the first access.

        Raises DitherError if there is no such topic.
        """
        log_ranges_by_partition = log_ranges(self._consumer, self.topic)
        if not log_ranges_by_partition:
            raise DitherError(
                f"no topic {self.topic!r}, or this user may not see it: nothing was refused yet, "
                "or it has another name (--set topics.deadletters=NAME)"
            )
        return log_ranges_by_partition

    def letters(self, progress: Callable[[int], None] = lambda _: None) -> Iterator[DeadLetter]:
        """Yield the dead letters of this deployment whose offsets are in `ranges`.

        `progress` is called with the number of messages read since its last call.
        """
        first_positions: dict[int, MessagePosition] = {}
        batches = read_ranges(self._consumer, self.topic, self.ranges)
        for message in itertools.chain.from_iterable(batches):
            progress(1)
            letter = DeadLetter.parse(message)
            if letter is None or letter.topic != self.settings.topics.reports:
                self.foreign_messages += 1
            elif (
                first := first_positions.setdefault(letter.identity, letter.position)
            ) != letter.position:
                self.copies.append((first, letter.position))
            else:
                yield letter

    def letter(self, position: MessagePosition) -> DeadLetter:
        """Return the dead letter at a position.

        Raises DitherError if the position has no dead letter.
        """
        low, high = self.ranges.get(position.partition, (0, 0))
        if low <= position.offset < high:
            letter_range = {position.partition: (position.offset, position.offset + 1)}
            for (message,) in read_ranges(self._consumer, self.topic, letter_range):
                if letter := DeadLetter.parse(message):
                    return letter
                raise DitherError(
                    f"{position} of {self.topic!r} is no dead letter: it lacks the headers of one"
                )
        offset_ranges = ", ".join(
            f"{n}:{low} to {n}:{high - 1}" for n, (low, high) in self.ranges.items() if low < high
        )
        raise DitherError(
            f"no dead letter at {position}: {self.topic!r} "
            + (f"has {offset_ranges}" if offset_ranges else "is empty")
        )


def printable(text: str, max_length: int = 80) -> str:
    r"""Return untrusted text as a short line that a terminal can show.

    >>> printable("delay\x1b[2J")
    'delay?[2J'
    """
    return "".join(c if c.isprintable() else "?" for c in text[:max_length])


def _header_text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
