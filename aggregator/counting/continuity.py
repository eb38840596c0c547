"""Decides whether a partition's log continues where its sums end, from all the evidence.

The log is compared with the next offset in Redis, and with the last counted message, which must
still be at its offset. If Redis has nothing, it is compared with the progress that the worker and
Kafka remember.
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
MARK = re.compile(r"(\d{1,19}):(-?\d{1,10}):([0-9a-f]{16})")
GROUP_METADATA = re.compile(
    r"dither begin=(\d{1,19}) topic=(\S*)(?: vanished=(\d{1,19}))?"
    r"(?: deployment=([0-9a-f]{16}) at=(\d{1,19}))?"
)
VANISHED = "vanished"
"""The owner's field with the number of counted offsets whose loss from the log was accepted."""


@dataclasses.dataclass(frozen=True)
class Mark:
    """A message of a log, by which it is known again.

    Attributes
    ----------
    offset : int
    epoch : int
        Of the leader that took it; -1 where the broker does not tell. A log that was cut off and
        written again has new messages of a higher epoch.
    digest : str
        Of its key, value and timestamp: a log that was restored from an older copy may have others
        of the same epoch.
    """

    offset: int
    epoch: int
    digest: str

    @classmethod
    def of(cls, message: Any) -> Self:
        """Return the mark of a message."""
        found = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for part in (message.key() or b"", message.value() or b""):
            found.update(len(part).to_bytes(8, "big") + part)
        found.update(message.timestamp()[1].to_bytes(8, "big", signed=True))
        epoch = message.leader_epoch()
        return cls(message.offset(), -1 if epoch is None else epoch, found.hexdigest())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return what :meth:`__str__` has written; None if it is something else.

        Examples
        --------
        >>> str(Mark.parse("7:3:00112233445566aa")), Mark.parse("")
        ('7:3:00112233445566aa', None)
        """
        found = MARK.fullmatch(text)
        return cls(int(found[1]), int(found[2]), found[3]) if found else None

    def __str__(self) -> str:
        """Return it as the store keeps it."""
        return f"{self.offset}:{self.epoch}:{self.digest}"


@dataclasses.dataclass(frozen=True)
class KnownProgress:
    """The progress of a partition, as a worker or the consumer group remembers it.

    Attributes
    ----------
    begin, next : int
        The offsets in [begin, next) were counted.
    topic_id : str
        Of the topic; empty where nobody told.
    vanished : int
        How many offsets were counted besides, and had left the log by then.
    deployment : str
        Whose Redis has the sums; empty where nobody told.
    at : int
        When this was committed, in ms since the epoch: only to tell one commit from the next.
    """

    begin: int
    next: int
    topic_id: str = ""
    vanished: int = 0
    deployment: str = ""
    at: int = 0

    @property
    def metadata(self) -> str:
        """The metadata that is stored with Kafka's committed offset."""
        vanished = f" vanished={self.vanished}" if self.vanished else ""
        by = f" deployment={self.deployment} at={self.at}" if self.deployment else ""
        return f"dither begin={self.begin} topic={self.topic_id}{vanished}{by}"

    @classmethod
    def of_group(cls, offset: int, metadata: str | None) -> Self | None:
        """Return what a group's committed offset says; None if the group has none.

        Examples
        --------
        >>> KnownProgress.of_group(9, "dither begin=4 topic=abc vanished=3")
        KnownProgress(begin=4, next=9, topic_id='abc', vanished=3, deployment='', at=0)
        >>> KnownProgress.of_group(9, None) == KnownProgress(begin=0, next=9)
        True
        """
        found = GROUP_METADATA.fullmatch(metadata or "")
        if offset < 0:
            return None
        if not found:
            return cls(0, offset)
        vanished, at = int(found[3] or 0), int(found[5] or 0)
        return cls(int(found[1]), offset, found[2], vanished, found[4] or "", at)


@dataclasses.dataclass(frozen=True)
class Log:
    """Queries about a partition's log.

    Attributes
    ----------
    range : callable
        Returns its first and its next offset.
    mark : callable
        Returns the first message from an offset on; None if there is none.
    known_progress : callable
        Returns how far it was counted, as far as anybody but Redis remembers.
    """

    range: Callable[[], tuple[int, int]]
    mark: Callable[[int], Mark | None] = lambda _: None
    known_progress: Callable[[], tuple[KnownProgress, ...]] = lambda: ()


@dataclasses.dataclass(frozen=True)
class Break:
    """A log that does not go on where the sums stand.

    Attributes
    ----------
    reason : str
    resume : int
        Where counting would go on, if the loss is accepted.
    missing : int
        How many offsets would then be counted and gone, or neither counted nor there.
    vanished : int
        How many of the counted offsets have left the log, so that their reports are only in the
        sums; without those that left its beginning, as the log's first offset tells of them.
    """

    reason: str
    resume: int
    missing: int
    vanished: int = 0


def broken(snapshot: Snapshot, log: Log, low: int, high: int, topic_id: str) -> Break | None:
    """Return how a log fails to go on from where the sums stand; None if it does.

    Parameters
    ----------
    snapshot : Snapshot
        What the store has of the partition.
    log : Log
        What can be asked about the partition's log.
    low, high : int
        The log's first and next offset.
    topic_id : str
        Kafka's id of the topic; empty where the cluster does not tell.
    """
    following, known = snapshot.next_offset, snapshot.owner.get("topic_id", "")
    if following == UNSET:
        return _forgotten(log.known_progress(), low, topic_id)
    if is_another(known, topic_id):
        # as far as the old log was known to reach
        missing = max(0, int(snapshot.owner.get("high", 0)) - following)
        reason = f"the topic was deleted and created again (id {known}, now {topic_id})"
        return Break(reason, low, missing, following - int(snapshot.owner.get("begin", 0)))
    if following < low:
        lost = low - following
        reason = f"{lost} offsets are gone: counted up to {following}, log begins at {low}"
        return Break(reason, low, lost)
    return _truncated(snapshot, log, low, high)


def is_another(known: str, topic_id: str) -> bool:
    """Whether two ids are of different topics; one that is empty tells nothing."""
    return bool(known and topic_id and known != topic_id)


def _forgotten(known_progress: tuple[KnownProgress, ...], low: int, topic_id: str) -> Break | None:
    """Return what of a partition that Redis has nothing of was counted and cannot be again."""
    lost = 0
    for known in known_progress:
        gone = known.vanished
        if known.next > known.begin:
            end = known.next if is_another(known.topic_id, topic_id) else low
            gone += max(0, end - known.begin)
        lost = max(lost, gone)
    if not lost:
        return None
    reason = (
        f"Redis has nothing of this partition, although it was counted, and {lost} of its offsets "
        f"are gone from the log, which begins at {low}"
    )
    return Break(reason, low, lost)


def _truncated(snapshot: Snapshot, log: Log, low: int, high: int) -> Break | None:
    """Return where a log was cut off below the next offset, also if it has grown past it since."""
    following, last = snapshot.next_offset, Mark.parse(snapshot.owner.get("last", ""))
    if following <= high and (last is None or last.offset < low or log.mark(last.offset) == last):
        return None
    end = min(following, high)
    fork = _fork(log, last.epoch, low, end) if last is not None and last.epoch >= 0 else end
    if following > high:
        reason = f"the log ends at {high}, before the counted {following}: it was truncated"
        return Break(reason, fork, following - fork, following - fork)
    assert last is not None  # noqa: S101
    reason = f"the log was truncated and written again: another message is at offset {last.offset}"
    if fork <= last.offset:
        lost = following - fork
        return Break(f"{reason} since offset {fork}", fork, lost, lost)
    return Break(reason, following, following - low, following - low)


def _fork(log: Log, epoch: int, low: int, end: int) -> int:
    """Return the first offset from which on messages are of a later epoch; `end` if none is.

    Epochs never fall in a log: about 20 looks find it among a million.
    """
    first, last = low, end
    while first < last:
        middle = (first + last) // 2
        found = log.mark(middle)
        if found is None or found.offset >= last or found.epoch > epoch:
            last = middle
        else:
            first = found.offset + 1
    return first
