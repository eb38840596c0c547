"""Decides whether a partition's log continues where its sums end, or finds where they fork.

The log is compared with the next offset in Redis, and with the last counted message, which must
still be at its offset. If Redis has nothing, the log is compared with the progress that the worker
and the consumer group remember.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable
from typing import Any, Self

from aggregator.storage.progress import UNSET
from aggregator.storage.snapshot import Snapshot

DIGEST_BYTES = 8
MARK_PATTERN = re.compile(r"(\d{1,19}):(-?\d{1,10}):([0-9a-f]{16})")
GROUP_METADATA = re.compile(
    r"dither begin=(\d{1,19}) topic=(\S*)(?: vanished=(\d{1,19}))?"
    r"(?: deployment=([0-9a-f]{16}) at=(\d{1,19}))?"
)
VANISHED_FIELD = "vanished"
"""The field of the owner's hash with the number of counted offsets whose loss was accepted."""


@dataclasses.dataclass(frozen=True)
class Mark:
    """The position and digest of a message, which identify it in its log."""

    offset: int
    # The epoch of the leader that took the message; -1 if unknown. A log that was truncated and
    # written again has messages of a higher epoch.
    epoch: int
    # The digest of key, value and timestamp, because a log restored from a copy may repeat an
    # epoch.
    digest: str

    @classmethod
    def of(cls, message: Any) -> Self:
        """Return the mark of a message."""
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for part in (message.key() or b"", message.value() or b""):
            digest.update(len(part).to_bytes(8, "big") + part)
        digest.update(message.timestamp()[1].to_bytes(8, "big", signed=True))
        epoch = message.leader_epoch()
        return cls(message.offset(), -1 if epoch is None else epoch, digest.hexdigest())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the mark from the text of :meth:`__str__`; None for other text.

        >>> str(Mark.parse("7:3:00112233445566aa")), Mark.parse("")
        ('7:3:00112233445566aa', None)
        """
        match = MARK_PATTERN.fullmatch(text)
        return cls(int(match[1]), int(match[2]), match[3]) if match else None

    def __str__(self) -> str:
        """Return the stored form."""
        return f"{self.offset}:{self.epoch}:{self.digest}"


@dataclasses.dataclass(frozen=True)
class KnownProgress:
    """The progress of a partition that a worker or the consumer group remembers."""

    begin: int  # the offsets in [begin, next) were counted
    next: int
    topic_id: str = ""  # empty if unknown
    vanished: int = 0  # further counted offsets that had left the log
    deployment: str = ""  # whose Redis has the sums; empty if unknown
    at: int = 0  # ms since the epoch, to tell commits apart

    @property
    def metadata(self) -> str:
        """The metadata stored with Kafka's committed offset."""
        vanished = f" vanished={self.vanished}" if self.vanished else ""
        by = f" deployment={self.deployment} at={self.at}" if self.deployment else ""
        return f"dither begin={self.begin} topic={self.topic_id}{vanished}{by}"

    @classmethod
    def of_group(cls, offset: int, metadata: str | None) -> Self | None:
        """Return the progress in the offset that the group committed; None if it committed none.

        `offset`: the committed offset, negative if there is none; `metadata`: its metadata.

        >>> KnownProgress.of_group(9, "dither begin=4 topic=abc vanished=3")
        KnownProgress(begin=4, next=9, topic_id='abc', vanished=3, deployment='', at=0)
        >>> KnownProgress.of_group(9, None) == KnownProgress(begin=0, next=9)
        True
        """
        match = GROUP_METADATA.fullmatch(metadata or "")
        if offset < 0:
            return None
        if not match:
            return cls(0, offset)
        vanished, at = int(match[3] or 0), int(match[5] or 0)
        return cls(int(match[1]), offset, match[2], vanished, match[4] or "", at)


@dataclasses.dataclass(frozen=True)
class Log:
    """Answers queries about a partition's log."""

    range: Callable[[], tuple[int, int]]  # returns its first and its next offset
    # Returns the first message from an offset on.
    mark: Callable[[int], Mark | None] = lambda _: None
    # Returns the progress that the worker and the group remember.
    known_progress: Callable[[], tuple[KnownProgress, ...]] = lambda: ()
    topic_id: str = ""  # Kafka's; empty if unknown
    # Returns the log's origin as its owner recorded it, or refuses the partition; see
    # :class:`aggregator.counting.rival_deployments.OriginCheck`.
    origin: Callable[[], dict[str, str | int]] = dict


@dataclasses.dataclass(frozen=True)
class Break:
    """A log that does not continue where the sums end."""

    reason: str
    resume: int  # where counting continues if the loss is accepted
    missing: int  # how many offsets are then counted but gone, or neither counted nor in the log
    vanished: int = 0  # counted offsets that left the log elsewhere than at its beginning


def find_break(snapshot: Snapshot, log: Log, low: int, high: int, topic_id: str) -> Break | None:
    """Return how a log fails to continue where the sums end; None if it continues.

    `snapshot`: the partition's stored state; `log`: a reader of the log; `low`, `high`: the log's
    first and next offset; `topic_id`: Kafka's id of the topic; empty if unknown.
    """
    next_offset, stored_topic_id = snapshot.next_offset, snapshot.owner.get("topic_id", "")
    if next_offset == UNSET:
        return _find_forgotten(log.known_progress(), low, topic_id)
    if is_another(stored_topic_id, topic_id):
        # the offset up to which the old log was known
        missing = max(0, int(snapshot.owner.get("high", 0)) - next_offset)
        reason = f"the topic was deleted and created again (id {stored_topic_id}, now {topic_id})"
        return Break(reason, low, missing, next_offset - int(snapshot.owner.get("begin", 0)))
    if next_offset < low:
        lost = low - next_offset
        reason = f"{lost} offsets are gone: counted up to {next_offset}, log begins at {low}"
        return Break(reason, low, lost)
    return _find_truncation(snapshot, log, low, high)


def is_another(stored_id: str, current_id: str) -> bool:
    """Return whether two ids belong to different topics; an empty id may belong to any topic."""
    return bool(stored_id and current_id and stored_id != current_id)


def _find_forgotten(
    known_progress: tuple[KnownProgress, ...], low: int, topic_id: str
) -> Break | None:
    """Return what is lost if Redis has nothing of a counted partition; None if nothing is lost."""
    lost = 0
    for progress in known_progress:
        gone = progress.vanished
        if progress.next > progress.begin:
            end = progress.next if is_another(progress.topic_id, topic_id) else low
            gone += max(0, end - progress.begin)
        lost = max(lost, gone)
    if not lost:
        return None
    reason = (
        f"Redis has nothing of this partition, although it was counted, and {lost} of its offsets "
        f"are gone from the log, which begins at {low}"
    )
    return Break(reason, low, lost)


def _find_truncation(snapshot: Snapshot, log: Log, low: int, high: int) -> Break | None:
    """Return where a log was truncated below the next offset, even if it has grown since.

    None if the log was not truncated.
    """
    next_offset, last = snapshot.next_offset, Mark.parse(snapshot.owner.get("last", ""))
    if next_offset > high:
        reason = f"the log ends at {high}, before the counted {next_offset}: it was truncated"
        fork = _find_fork(log, last, low, high)
        return Break(reason, fork, next_offset - fork, next_offset - fork)
    if last is None or last.offset < low or log.mark(last.offset) == last:
        return None
    reason = f"the log was truncated and written again: another message is at offset {last.offset}"
    fork = _find_fork(log, last, low, next_offset)
    if fork <= last.offset:
        lost = next_offset - fork
        return Break(f"{reason} since offset {fork}", fork, lost, lost)
    return Break(reason, next_offset, next_offset - low, next_offset - low)


def _find_fork(log: Log, last: Mark | None, low: int, end: int) -> int:
    """Return the first offset whose message is of a later epoch than `last`; `end` if none is.

    Epochs never fall along a log, so a bisection finds the offset.
    """
    if last is None or last.epoch < 0:
        return end
    first, fork = low, end
    while first < fork:
        middle = (first + fork) // 2
        mark = log.mark(middle)
        if mark is None or mark.offset >= fork or mark.epoch > last.epoch:
            fork = middle
        else:
            first = mark.offset + 1
    return first
