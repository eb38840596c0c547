"""Sends dead letters to their partitions again; each is counted at most once.

A copy of a batch is a duplicate while its pane is open, and late afterwards, so a message that is
sent twice changes no sum. Messages that a worker would refuse are not sent.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from aggregator.config.settings import Settings
from aggregator.dead_letters.reader import DeadLetter, MessagePosition
from aggregator.dead_letters.selection import HandledMarks
from aggregator.dead_letters.writer import REPLAYS_HEADER
from aggregator.errors import DitherError
from aggregator.kafka import clients
from aggregator.kafka.headers import Header
from aggregator.size_pieces import pieces
from aggregator.state.partition import Partition
from aggregator.storage.store import Store
from estimators import Metric
from estimators.durations import milliseconds
from producers.kafka.connection import LARGEST_MESSAGE

MAX_CHUNK_LETTERS = 500
MAX_CHUNK_BYTES = 16_000_000
"""The most letters and bytes that are sent, acknowledged and marked together."""
ACKNOWLEDGE_SECONDS = 60.0
PRODUCER_SIZES = {"message.max.bytes": 64_000_000, "batch.size": LARGEST_MESSAGE}
"""A letter may be as large as its topic allows; letters in one record batch must fit together."""


@dataclasses.dataclass(frozen=True)
class _ReplayedMessage:
    """A dead letter in the form of the message that is sent again."""

    at: int
    letter: DeadLetter
    kafka_ms: int

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.letter.key

    def value(self) -> bytes | None:
        return self.letter.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self.kafka_ms


class Forecast:
    """Forecasts which dead letters the workers would count if all were sent again, in order.

    It applies the rules of a worker with the current definitions, beginning at the stored
    watermarks.

    Parameters
    ----------
    partitions : int
        The number of partitions of the reports topic.
    stamps : bool or None
        Whether the reports topic replaces timestamps of messages; None if unknown.
    rounds : int
        The number of replays after which a dead letter is not sent again.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Mapping[str, Metric],
        store: Store,
        partitions: int,
        *,
        stamps: bool | None = False,
        rounds: int,
    ) -> None:
        self._metrics, self._store = metrics, store
        self._partitions, self._stamps, self._rounds = partitions, stamps, rounds
        self._future = milliseconds(settings.aggregate.future)
        self._past = milliseconds(settings.aggregate.past)
        self._states: dict[int, Partition] = {}

    def rejections(self, letters: Iterable[DeadLetter]) -> dict[MessagePosition, tuple[str, str]]:
        """Return reason and detail for each dead letter that would not be counted."""
        rejections: dict[MessagePosition, tuple[str, str]] = {}
        by_partition: defaultdict[int, list[_ReplayedMessage]] = defaultdict(list)
        for letter in letters:
            if (why := self._obstacle(letter)) is not None:
                rejections[letter.position] = why
                continue
            state = self._state(letter.origin.partition)
            again = by_partition[letter.origin.partition]
            offset = state.next_offset + len(again)
            again.append(_ReplayedMessage(offset, letter, replay_timestamp(letter)))
        for number, messages in by_partition.items():
            for rejection in self._state(number).count(messages):
                letter = messages[rejection.message.offset() - messages[0].at].letter
                rejections[letter.position] = rejection.reason, rejection.detail
        return rejections

    def _obstacle(self, letter: DeadLetter) -> tuple[str, str] | None:
        if letter.whole_bytes is not None:
            return "truncated", f"{len(letter.value or b'')} of {letter.whole_bytes} bytes are left"
        if letter.origin.partition >= self._partitions:
            return "no_partition", f"partition {letter.origin.partition} of {self._partitions}"
        if self._stamps is not False and letter.batch is not None and letter.batch.time_ms == 0:
            reason = "time_lost" if self._stamps else "time_unsafe"
            return reason, "a batch without an event time of its own"
        if letter.replays >= self._rounds:
            return "replayed", f"sent again {letter.replays} times"
        return None

    def _state(self, number: int) -> Partition:
        if number not in self._states:
            state = self._states[number] = Partition(self._metrics, self._future, self._past)
            state.watermarks.update(self._store.watermarks(number))
        return self._states[number]


def replay_timestamp(letter: DeadLetter) -> int:
    """Return the Kafka timestamp with which a dead letter is to be sent again, in ms.

    It is the original timestamp if the event time depends on it. Otherwise it is the current time,
    because retention could delete an old message at once, and because an event time may no longer
    be in the future.
    """
    batch = letter.batch
    return letter.arrived if batch is None or batch.time_ms == 0 else time.time_ns() // 1_000_000


@dataclasses.dataclass
class Replayed:
    """The outcome of a replay."""

    sent: int = 0  # acknowledged and marked as handled (in a rehearsal: would be)
    # The numbers of letters that would be refused again and were not sent, by reason and metric.
    kept: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)


def replay(
    settings: Settings,
    letters: Iterable[DeadLetter],
    forecast: Forecast,
    handled: HandledMarks | None,
) -> Replayed:
    """Send dead letters to their partitions again, and mark them as handled.

    `settings`: the settings of the deployment; `letters`: the letters to send; `forecast`: finds
    the letters that workers would refuse again; `handled`: where sent letters are marked; None to
    send nothing and count what would be sent. Raises DitherError if Kafka does not acknowledge some
    letters; the acknowledged letters are marked.
    """
    outcome = Replayed()
    producer: Any = None if handled is None else clients.producer(settings, **PRODUCER_SIZES)
    try:
        for chunk in pieces(letters, _size, MAX_CHUNK_BYTES, MAX_CHUNK_LETTERS):
            rejections = forecast.rejections(chunk)
            bad = [letter for letter in chunk if letter.position in rejections]
            outcome.kept.update((rejections[letter.position][0], letter.metric) for letter in bad)
            good = [letter for letter in chunk if letter.position not in rejections]
            if handled is not None:
                _send(producer, good, handled, outcome)
            else:
                outcome.sent += len(good)
    finally:
        if producer is not None:
            producer.close()
    return outcome


def _send(
    producer: Any, letters: Sequence[DeadLetter], handled: HandledMarks, outcome: Replayed
) -> None:
    acknowledged: list[MessagePosition] = []
    errors: list[KafkaError] = []
    for letter in letters:

        def delivered(
            error: KafkaError | None, _: Any, position: MessagePosition = letter.position
        ) -> None:
            if error is None:
                acknowledged.append(position)
            else:
                errors.append(error)

        content = (letter.topic, letter.value, letter.key, letter.origin.partition)
        about = {"timestamp": replay_timestamp(letter), "headers": _headers(letter)}
        try:
            producer.produce(*content, on_delivery=delivered, **about)
        except BufferError:  # the settings in [kafka] may make the queue small
            producer.flush(ACKNOWLEDGE_SECONDS)
            producer.produce(*content, on_delivery=delivered, **about)
    producer.flush(ACKNOWLEDGE_SECONDS)
    if acknowledged:
        handled.mark(acknowledged)
    outcome.sent += len(acknowledged)
    if missing := len(letters) - len(acknowledged):
        producer.purge()
        why = errors[0].str() if errors else f"no answer within {ACKNOWLEDGE_SECONDS:g} s"
        raise DitherError(
            f"{missing} dead letters were not acknowledged by Kafka ({why}); {outcome.sent} were "
            "replayed and marked. Run it again: nothing is counted twice"
        )


def _size(letter: DeadLetter) -> int:
    return len(letter.value or b"")


def _headers(letter: DeadLetter) -> list[Header]:
    original_headers = [(name, value) for name, value in letter.headers if name != REPLAYS_HEADER]
    return [*original_headers, (REPLAYS_HEADER, str(letter.replays + 1).encode())]
