"""Obstacles in a log: damaged batches, messages that cannot be counted, and skipped offsets.

There are two kinds. A record batch that is damaged, or expands beyond the receive limit, makes
Kafka's client return the same error again and again. A message at which counting fails is a defect
of Dither. Neither is skipped silently: the partition halts, the others continue, and
`aggregate.skip` names the offsets that may be skipped.
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

from aggregator.config.setting_checks import parse_skipped
from producers.kafka.kafka_errors import REFUSAL_CODES

HALT_SECONDS = 20.0
"""If an error repeats at one offset for this time, the partition halts."""
MIN_HALT_ERRORS = 3
PROBE_SECONDS = 10.0
"""If a broker does not answer about an offset in this time, it counts as unreachable."""
SKIPPED_FIELD = "skipped"
"""Field of the owner's hash: the skipped offsets, as ``8812-8911,9000-9000``."""
NON_DATA_CODES = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE, *REFUSAL_CODES)
"""Codes of errors of a cluster or a missing permission, not of the data at an offset."""

log = structlog.get_logger("dither.worker")


@dataclasses.dataclass(frozen=True)
class Obstacle:
    """Offsets whose messages cannot be counted."""

    first: int
    last: int | None  # None if unknown
    why: str

    @property
    def end(self) -> int:
        """The last offset that is known to be unreadable."""
        return self.first if self.last is None else self.last

    def reason(self, partition: int) -> str:
        """Return why the partition halts, and what to do."""
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

    def is_skippable(self, partition: int, skip: Iterable[str]) -> bool:
        """Return whether the setting `aggregate.skip` names this obstacle's offsets."""
        return any(
            number == partition and self.first < offsets.stop and offsets.start <= self.end
            for number, offsets in map(parse_skipped, skip)
        )


@dataclasses.dataclass
class Stall:
    """An error of Kafka's client that repeats at the next offset."""

    at: int  # the next offset to count
    base: int  # where the client's error begins
    why: str
    since: float  # monotonic seconds
    times: int = 0

    def is_lasting(self, now: float) -> bool:
        """Return whether the error has lasted too long to pass by itself."""
        return self.times >= MIN_HALT_ERRORS and now - self.since >= HALT_SECONDS


def is_of_data(error: KafkaError, offset: int | None) -> bool:
    """Return whether an error is about the data at an offset, not about the cluster."""
    transient = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, *NON_DATA_CODES)
    return offset is not None and offset >= 0 and error.code() not in transient


def skipped_spans(owner: Mapping[str, str]) -> list[tuple[int, int]]:
    """Return the spans of offsets that a partition's owners skipped, ascending.

    >>> skipped_spans({"skipped": "8812-8911,9000-9000"})
    [(8812, 8911), (9000, 9000)]
    """
    matches = re.findall(r"(\d+)-(\d+)", owner.get(SKIPPED_FIELD, ""))
    return sorted((int(first), int(last)) for first, last in matches)


def unskipped_ranges(
    begin: int, end: int, passed: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the unskipped stretches [start, stop) of [begin, end).

    `begin`, `end`: the first offset and the end; `passed`: first and last offset of each skipped
    span, ascending.

    >>> list(unskipped_ranges(0, 20, [(5, 9), (19, 30)]))
    [(0, 5), (10, 19)]
    """
    for first, last in passed:
        if begin < min(first, end):
            yield begin, min(first, end)
        begin = max(begin, last + 1)
    if begin < end:
        yield begin, end


def last_offset(consumer: Consumer, topic: str, partition: int, base: int) -> int | None:
    """Return the last offset of the unreadable record batch at `base`; None without an answer.

    The client says where a batch begins, but not where it ends. Reads at growing distances, then a
    bisection, find the first readable offset. Each read within the batch expands it again; a batch
    of one record takes one read, however long the log is. `consumer`: a consumer that nothing else
    uses; it is assigned the partition; `topic`: the topic; `partition`: the partition; `base`: the
    offset at which the batch begins.
    """
    end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PROBE_SECONDS)
    last_unreadable, first_readable, step = base, int(end[1]), 1
    while first_readable - last_unreadable > 1:
        probed = min(last_unreadable + step, (last_unreadable + first_readable) // 2)
        is_unreadable = _is_in_batch(consumer, TopicPartition(topic, partition, probed), base)
        if is_unreadable is None:
            return None
        if is_unreadable:
            last_unreadable = probed
        else:
            first_readable = probed
        step *= 2
    return last_unreadable


def _is_in_batch(consumer: Consumer, position: TopicPartition, base: int) -> bool | None:
    """Return whether an offset is in the batch at `base`; None without an answer."""
    consumer.assign([position])
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
    """The obstacles that a worker has met in a partition."""

    suspect_until: int = -1  # up to this offset messages are counted one at a time
    culprit: Obstacle | None = None  # the message that fails alone
    stall: Stall | None = None
    probe: Probe | None = None
    shown: str = ""  # why the partition is halted, or empty
    is_blocked: bool = False  # whether counting has stopped before the culprit


class Probe:
    """Finds the end of a record batch in a thread, while other partitions are counted.

    Parameters
    ----------
    open_consumer : callable
        Returns the consumer for the search.
    topic : str
        The reports topic.
    partition, base : int
        The partition, and the offset at which the batch begins.

    Attributes
    ----------
    last : int or None
        The last offset of the batch; None until it is found, or if Kafka does not answer.
    """

    def __init__(
        self, open_consumer: Callable[[], Consumer], topic: str, partition: int, base: int
    ) -> None:
        self.last: int | None = None
        self._open_consumer, self._batch = open_consumer, (topic, partition, base)
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with contextlib.closing(self._open_consumer()) as consumer:
                self.last = last_offset(consumer, *self._batch)
        except KafkaException as error:
            log.warning("probe failed", error=str(error))
