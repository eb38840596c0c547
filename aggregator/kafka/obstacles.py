"""Obstacles: messages that cannot be counted, and which offsets may be skipped.

There are two kinds. Kafka's client cannot read a record batch that expands beyond the receive limit
or is damaged: it returns the same error again and again. A message that was read can make counting
fail: this is a defect of Dither. Neither is skipped silently. The partition halts, the others
continue, and `aggregate.skip` names the offsets that may be skipped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from aggregator.config.setting_checks import parse_place
from producers.kafka.kafka_errors import REFUSAL_CODES

HALT_SECONDS = 20.0
"""An error that repeats at one offset for so long halts the partition."""
HALT_TIMES = 3
PROBE_SECONDS = 10.0
"""Until a broker that is asked about one offset is taken to be away."""
SKIPPED = "skipped"
"""Field of the owner's hash: the spans of offsets that were passed, as ``8812-8911,9000-9000``."""
PASSING = (
    frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE}) | REFUSAL_CODES
)
"""Errors of a cluster or of a right, not of what stands at an offset."""

log = structlog.get_logger("dither.worker")


@dataclasses.dataclass(frozen=True)
class Obstacle:
    """Offsets that cannot be counted.

    Attributes
    ----------
    first : int
    last : int or None
        None: not known yet.
    why : str
    """

    first: int
    last: int | None
    why: str

    @property
    def end(self) -> int:
        """The last offset that is known to belong to it."""
        return self.first if self.last is None else self.last

    def reason(self, partition: int) -> str:
        """Return what to show, with the remedy."""
        offsets = f"offset {self.first}"
        if self.end > self.first:
            offsets = f"offsets {self.first} to {self.end}"
        lost = "the message" if self.last is None else f"{self.last - self.first + 1} offsets"
        return (
            f"{offsets} cannot be counted: {self.why}. Nothing after it is counted. To skip "
            f"{lost}, restart the workers with `dither aggregate --set "
            f"aggregate.skip={partition}:{self.first}`; "
            "docs/operations.md#an-offset-cannot-be-counted"
        )

    def may_pass(self, partition: int, skip: Iterable[str]) -> bool:
        """Whether the settings name it."""
        return any(
            number == partition and self.first <= offset <= self.end
            for number, offset in map(parse_place, skip)
        )


@dataclasses.dataclass
class Stall:
    """An error of Kafka's client that repeats where counting stands.

    Attributes
    ----------
    at : int
        The next offset that was to be counted.
    base : int
        Where the client says that the trouble begins.
    since : float
        Monotonic seconds.
    """

    at: int
    base: int
    why: str
    since: float
    times: int = 0

    def is_lasting(self, now: float) -> bool:
        """Whether it repeats for long enough to say that it will not pass by itself."""
        return self.times >= HALT_TIMES and now - self.since >= HALT_SECONDS


def is_of_data(error: KafkaError, offset: int | None) -> bool:
    """Whether an error is about the data at an offset, not about the cluster."""
    transient = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, *PASSING)
    return offset is not None and offset >= 0 and error.code() not in transient


def spans(owner: Mapping[str, str]) -> list[tuple[int, int]]:
    """Return the spans of offsets that a partition's owners have passed, ascending.

    Examples
    --------
    >>> spans({"skipped": "8812-8911,9000-9000"})
    [(8812, 8911), (9000, 9000)]
    """
    found = re.findall(r"(\d+)-(\d+)", owner.get(SKIPPED, ""))
    return sorted((int(first), int(last)) for first, last in found)


def between(begin: int, end: int, passed: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the stretches [start, stop) of [begin, end) that were not passed.

    Parameters
    ----------
    begin, end : int
        Offsets; `end` is the first one outside.
    passed : iterable of (int, int)
        First and last offset of each stretch that was passed, ascending.

    Examples
    --------
    >>> list(between(0, 20, [(5, 9), (19, 30)]))
    [(0, 5), (10, 19)]
    """
    for first, last in passed:
        if begin < min(first, end):
            yield begin, min(first, end)
        begin = max(begin, last + 1)
    if begin < end:
        yield begin, end


def last_offset(consumer: Consumer, topic: str, partition: int, base: int) -> int | None:
    """Return the last offset of the record batch at `base`, which cannot be read.

    The client tells where a batch begins, not where it ends: reading is tried from offsets at
    growing distances, then by bisection. Each attempt within the batch expands it once more, and a
    batch of one record takes one attempt, however long the log is. None if the broker does not
    answer.

    Parameters
    ----------
    consumer : Consumer
        A consumer with no other use; it is assigned the partition.
    topic : str
        Its name.
    partition : int
        Its number.
    base : int
        Where the batch begins.
    """
    end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PROBE_SECONDS)
    inside, outside, step = base, int(end[1]), 1
    while outside - inside > 1:
        tried = min(inside + step, (inside + outside) // 2)
        is_inside = _is_inside(consumer, TopicPartition(topic, partition, tried), base)
        if is_inside is None:
            return None
        inside, outside = (tried, outside) if is_inside else (inside, tried)
        step *= 2
    return inside


def _is_inside(consumer: Consumer, place: TopicPartition, base: int) -> bool | None:
    """Return whether an offset is in the batch at `base`; None if the broker does not answer."""
    consumer.assign([place])
    deadline = time.monotonic() + PROBE_SECONDS
    while time.monotonic() <= deadline:
        for message in consumer.consume(1, timeout=0.5):
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                return False
            if is_of_data(error, message.offset()):
                return (message.offset() or 0) <= base
    return None


@dataclasses.dataclass
class Trouble:
    """The obstacles that a worker has met in a partition.

    Attributes
    ----------
    suspect_until : int
        Up to this offset messages are counted one at a time: together they failed.
    culprit : Obstacle or None
        The one of them that fails by itself.
    stall : Stall or None
    probe : Probe or None
    shown : str
        Why the partition is halted; empty where it is not.
    is_blocked : bool
        Whether nothing is to be counted any more: it stands before the culprit.
    """

    suspect_until: int = -1
    culprit: Obstacle | None = None
    stall: Stall | None = None
    probe: Probe | None = None
    shown: str = ""
    is_blocked: bool = False


class Probe:
    """Finds the end of a record batch in a thread of its own, while others are counted.

    Parameters
    ----------
    find : callable
        Returns the last offset, or None if it could not be found.

    Attributes
    ----------
    last : int or None
        None: not found, or not yet.
    """

    def __init__(self, find: Callable[[], int | None]) -> None:
        self.last: int | None = None
        self._find = find
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether no answer will come any more."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.last = self._find()
        except KafkaException as error:
            log.warning("probe failed", error=str(error))


def start_probe(
    open_consumer: Callable[[], Consumer], topic: str, partition: int, base: int
) -> Probe:
    """Start looking for the end of a record batch.

    Parameters
    ----------
    open_consumer : callable
        Makes the consumer that looks.
    topic : str
    partition : int
    base : int
        The first offset of the record batch.
    """

    def find() -> int | None:
        with contextlib.closing(open_consumer()) as consumer:
            return last_offset(consumer, topic, partition, base)

    return Probe(find)
