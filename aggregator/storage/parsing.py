"""What is read back from Redis, checked: anybody may have written there.

Whatever is not as Dither writes it raises :class:`aggregator.errors.StateUnreadable`, naming its
key; a value that only might be meant is never guessed at.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from aggregator.errors import StateUnreadable
from aggregator.state.admission import Uses
from aggregator.state.pane_keys import GRAINS_MS, PaneKey, counted_keys
from aggregator.state.partition import ANY_AGE, Partition
from aggregator.state.watermark import CONFIRMING_BATCHES, NEVER, RECENT_BATCHES, Ahead, Watermark
from aggregator.storage.redis_keys import changed_field
from estimators import Metric
from estimators.estimate import Counts
from producers.device.rounds import Round, decode

UNSET = -1
"""The next offset of a partition that was never committed."""
TORN = -2
"""The next offset of a partition to which a commit was applied by half: its sums are not sound."""

INT64 = 2**63 - 1
LOWEST = {
    "next": TORN,
    "epoch": 0,
    "begin": 0,
    "gap": 0,
    "high": 0,
    "updated": 0,
    "partitions": 0,
}
"""The fields of an owner's hash that are numbers, and the least that they can be."""
GRAINS = ("pane", *GRAINS_MS, "total")
BATCH_ID_BYTES = 16
MOST_PARTITIONS = 2**31 - 1
LAST_COMMIT_MS = 7 * 86_400_000
"""How long a partition's mark of its last commit lives. What is left of it says how long ago that
was, by the clock of the very server that has both, whatever other clocks say."""
INTEGER = re.compile(r"-?[0-9]{1,19}")


def text(key: str, value: bytes) -> str:
    """Return a value as text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise StateUnreadable(key, repr(value), "text in UTF-8") from None


def integer(key: str, value: bytes | str, lowest: int = -INT64, highest: int = INT64) -> int:
    """Return a value as an integer within bounds.

    Examples
    --------
    >>> integer("dither:flights:deaths", b"12", 0)
    12
    >>> integer("dither:flights:deaths", b"12.5", 0)
    Traceback (most recent call last):
    aggregator.errors.StateUnreadable: Redis has '12.5' at dither:flights:deaths: expected a whole \
number of at least 0. Restore Redis, or delete the key; \
docs/operations.md#a-stored-value-cannot-be-read
    """
    shown = value if isinstance(value, str) else text(key, value)
    if not INTEGER.fullmatch(shown) or not lowest <= int(shown) <= highest:
        raise StateUnreadable(key, repr(shown), f"a whole number of at least {lowest}")
    return int(shown)


def texts(key: str, found: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return a hash of texts."""
    return {text(key, name): text(key, value) for name, value in found.items()}


def names(key: str, found: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """Return a hash of bytes by its fields' names."""
    return {text(key, name): value for name, value in found.items()}


def owner(key: str, found: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the facts of a partition's owner; those that are numbers are whole numbers."""
    facts = texts(key, found)
    for name, lowest in LOWEST.items():
        if name in facts:
            integer(f"{key}, field {name}", facts[name], lowest)
    return facts


def watermarks(key: str, found: Mapping[bytes, bytes]) -> dict[str, Watermark]:
    """Return watermarks by metric key; where nothing is said of batches ahead, there are none."""
    marks = {}
    for name, value in texts(key, found).items():
        (*times, ahead), place = [*value.split(":"), ""][:4], f"{key}, field {name}"
        if len(times) != 3 or value.count(":") > 3:
            raise StateUnreadable(place, repr(value), "three times in ms, with colons between")
        time, arrived, closed = (integer(place, time, NEVER) for time in times)
        marks[name] = Watermark(time, arrived, closed, _ahead(place, ahead, time))
    return marks


def _ahead(place: str, value: str, time: int) -> Ahead:
    """Return the batches that are ahead of a watermark."""
    found: list[tuple[int, int]] = []
    for pair in filter(None, value.split(",")):
        age, _, beyond = pair.partition("+")
        most = RECENT_BATCHES - 1 if not found else found[-1][0] - 1
        found.append((integer(place, age, 0, most), time + integer(place, beyond, 1, INT64 - time)))
    if len(found) >= CONFIRMING_BATCHES:
        expected = f"fewer than {CONFIRMING_BATCHES} batches ahead of the watermark"
        raise StateUnreadable(place, repr(value), expected)
    return tuple(found)


def counts(key: str, found: Mapping[bytes, bytes]) -> dict[str, int]:
    """Return numbers of reports by ``outcome:metric``."""
    return {
        name: integer(f"{key}, field {name}", value, 0) for name, value in texts(key, found).items()
    }


def age(left_ms: int) -> int | None:
    """Return how many ms ago a mark was written, given what is left of its life; None: unknown."""
    return LAST_COMMIT_MS - left_ms if 0 <= left_ms <= LAST_COMMIT_MS else None


def partitions(key: str, found: Iterable[bytes]) -> list[int]:
    """Return numbers of partitions, ascending."""
    return sorted(integer(key, member, 0, MOST_PARTITIONS) for member in found)


def start(key: str, member: bytes) -> tuple[int, int]:
    """Return when a pane begins, in ms since the epoch, and its first offset: of an index."""
    begin, colon, first = text(key, member).partition(":")
    if not colon:
        raise StateUnreadable(key, repr(member), "a start and an offset, with a colon between")
    return integer(key, begin, 0), integer(key, first, 0)


def indexed(key: str, member: bytes) -> tuple[str, str]:
    """Return the grain and the metric's key of an index."""
    grain, _, metric = text(key, member).partition(":")
    if grain not in GRAINS or not metric or ":" in metric:
        raise StateUnreadable(key, repr(member), "a grain and a metric, with a colon between")
    return grain, metric


def opened(key: str, member: bytes) -> tuple[PaneKey, int]:
    """Return an open pane and its first offset."""
    match text(key, member).split(":"):
        case [grain, metric, begin, first] if grain in GRAINS:
            return PaneKey(grain, metric, integer(key, begin, 0)), integer(key, first, 0)
    raise StateUnreadable(key, repr(member), "a pane that is open, as grain:metric:start:offset")


def statistic(key: str, value: bytes, metric: Metric) -> Counts:
    """Return the statistic of a pane."""
    size = 8 * len(metric.levels) * metric.randomizer.columns
    if len(value) != size:
        expected = f"{size} bytes, the statistic of {metric.name!r}"
        raise StateUnreadable(key, f"{len(value)} bytes", expected)
    vector = np.frombuffer(value, dtype="<i8").astype(np.int64, copy=False)
    if (metric.counts(vector) < 0).any():
        expected = f"the statistic of {metric.name!r}"
        raise StateUnreadable(key, "a negative number of reports", expected)
    return vector


def asked(key: str, value: bytes, metric: Metric) -> Round:
    """Return the round of a metric that is open, or was the last one."""
    try:
        found = decode(value)
        expected = Round.of(metric, found.progress, found.opened_ms)
    except ValueError as error:
        raise StateUnreadable(key, str(error), f"a round of {metric.name!r}") from None
    if found != expected:
        raise StateUnreadable(key, f"{found}", f"the round that its decisions lead to: {expected}")
    return found


def batch_ids(key: str, value: bytes) -> set[bytes]:
    """Return the ids of the batches that were counted in a pane."""
    starts = range(0, len(value), BATCH_ID_BYTES)
    ids = {value[at : at + BATCH_ID_BYTES] for at in starts}
    if not ids or len(ids) * BATCH_ID_BYTES != len(value):
        found = f"{len(value)} bytes, with {len(ids)} different ids"
        raise StateUnreadable(key, found, f"batch ids of {BATCH_ID_BYTES} bytes, each once")
    return ids


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A partition's state as the store has it, in one consistent piece.

    Attributes
    ----------
    prefix : str
        Of the partition's keys.
    owner : dict of str to str
        ``epoch``, ``next``, ``begin``, ``topic_id``, ``worker``, ``high``, ``halted``, ``gap``,
        ``partitions``.
    watermarks : dict of str to Watermark
        By metric key.
    counts : dict of str to int
        Reports by ``outcome:metric``.
    open : dict of PaneKey to (int, bytes, set of bytes)
        First offset, statistic and counted batch ids of each open pane.
    used : dict of PaneKey to dict of bytes to int
        How many reports of each message key were counted in it, where the metric has a limit.
    gone : str
        The key of an open pane's statistic, or of its batch ids, that is not there.
    """

    prefix: str
    owner: dict[str, str]
    watermarks: dict[str, Watermark]
    counts: dict[str, int]
    open: dict[PaneKey, tuple[int, bytes, set[bytes]]]
    used: dict[PaneKey, Uses] = dataclasses.field(default_factory=dict)
    gone: str = ""

    @classmethod
    def of(cls, prefix: str, found: Any) -> Snapshot:
        """Return what ``snapshot.lua`` has read."""
        facts, marks, numbers, panes = found
        kept, used, gone = {}, {}, ""
        for member, value, seen, uses in panes:
            key, first = opened(f"{prefix}:open", member)
            if key in kept:
                raise StateUnreadable(f"{prefix}:open", f"two of {key}", "every open pane once")
            ids = set() if seen is None else batch_ids(f"{prefix}:seen:{key}", seen)
            kept[key] = first, value or b"", ids
            if value is None:
                gone = f"{prefix}:{key}"
            elif key.grain == "pane" and seen is None:
                gone = f"{prefix}:seen:{key}"
            place = f"{prefix}:keys:{key}"
            used[key] = {name: integer(place, count, 1) for name, count in _pairs(uses).items()}
        snapshot = cls(
            prefix,
            owner(f"{prefix}:owner", _pairs(facts)),
            watermarks(f"{prefix}:watermarks", _pairs(marks)),
            counts(f"{prefix}:counts", _pairs(numbers)),
            kept,
            used,
            gone,
        )
        if snapshot.next_offset != TORN:
            snapshot._check()
        return snapshot

    @property
    def next_offset(self) -> int:
        """The first offset that is not counted, UNSET or TORN."""
        if self.owner.get("begun") != self.owner.get("done"):
            return TORN
        return int(self.owner.get("next", UNSET))

    def partition(
        self, metrics: Mapping[str, Metric], future_ms: int, past_ms: int = ANY_AGE
    ) -> Partition:
        """Return the partition in memory, ready to count on from here."""
        partition = Partition(metrics, future_ms, max(0, self.next_offset), past_ms)
        partition.watermarks.update(self.watermarks)
        partition.counts.update(self.counts)
        for key, (first_offset, value, seen) in self.open.items():
            metric = metrics.get(key.metric.partition("@")[0])
            if metric is not None and key.metric in counted_keys(metric):
                statistic(f"{self.prefix}:{key}", value, metric)
                partition.restore(key, first_offset, value, seen, dict(self.used.get(key, {})))
        return partition

    def _check(self) -> None:
        """See whether a key is gone: what the others say of it would be counted twice, or lost."""
        if self.next_offset == UNSET and (self.open or self.watermarks or self.counts):
            raise StateUnreadable(f"{self.prefix}:owner", "no field next", "the next offset")
        accepted = {n for n, v in self.counts.items() if n.startswith("accepted:") and v}
        if accepted and not self.open:
            expected = "the panes that are open, of which there always are some"
            raise StateUnreadable(f"{self.prefix}:open", "nothing", expected)
        for key in self.open:
            if key.metric not in self.watermarks:
                place = f"{self.prefix}:watermarks"
                raise StateUnreadable(place, f"no field {key.metric}", "that of an open pane")
            if (name := f"accepted:{key.metric.partition('@')[0]}") not in accepted:
                raise StateUnreadable(f"{self.prefix}:counts", f"no field {name}", "its reports")


@dataclasses.dataclass(frozen=True)
class PartitionProgress:
    """How far a partition is counted: its owner's facts, watermarks and counts.

    `age_ms` is how long ago it was committed, by Redis's clock; None where Redis does not know.
    """

    owner: dict[str, str]
    watermarks: dict[str, Watermark]
    counts: dict[str, int]
    age_ms: int | None = None

    @property
    def is_halted(self) -> bool:
        """Whether nothing of the partition is counted until somebody acts."""
        return bool(self.owner.get("halted")) or int(self.owner.get("next", UNSET)) == TORN

    def idle_ms(self, now_ms: int) -> int | None:
        """Return how long ago the last commit was; None if there was none.

        The worker's own clock decides only where Redis has forgotten: after a week.
        """
        if self.age_ms is None and "updated" in self.owner:
            return max(0, now_ms - int(self.owner["updated"]))
        return self.age_ms

    @property
    def is_whole(self) -> bool:
        """Whether something was counted, and every commit was applied as a whole."""
        whole = self.owner.get("begun") == self.owner.get("done")
        return whole and self.next_offset >= 0

    @property
    def next_offset(self) -> int:
        """The first offset that is not counted, UNSET or TORN."""
        return int(self.owner.get("next", UNSET))

    def goes_on_in(self, later: PartitionProgress | None) -> bool:
        """Return whether another look found this state or one counted on from it."""
        if later is None or not later.is_whole:
            return False
        same_owner = self.owner.get("token") == later.owner.get("token")
        return same_owner and self.next_offset <= later.next_offset


@dataclasses.dataclass(frozen=True)
class TopicProgress:
    """How far all partitions are counted, and the policies of weights that were set.

    Attributes
    ----------
    rounds : dict of str to bytes
        The rounds that were published last, by metric key, as :func:`asked` reads them.
    unreadable : dict of int to StateUnreadable
        The partitions of which this cannot be said. No estimate is right without them.
    """

    partitions: dict[int, PartitionProgress]
    policies: dict[str, str]
    rounds: dict[str, bytes] = dataclasses.field(default_factory=dict)
    unreadable: dict[int, StateUnreadable] = dataclasses.field(default_factory=dict)

    def changed_ms(self, metric: str) -> int | None:
        """Return when a metric's policy of weights was changed last; None: never."""
        field = changed_field(metric)
        found = self.policies.get(field)
        return None if found is None else integer(f"policies, field {field}", found, 0)

    def check(self) -> None:
        """Raise StateUnreadable if a partition is left out."""
        for error in self.unreadable.values():
            raise error

    def whole(self, partitions: int | None = None) -> list[PartitionProgress]:
        """Return the standings of all of the topic's partitions; none if one of them is missing.

        Parameters
        ----------
        partitions : int, optional
            How many the topic has, for a caller that asked Kafka. By default what the workers said
            last; where none of them did, it is not known.
        """
        if partitions is None:
            told = [int(one.owner.get("partitions", 0)) for one in self.partitions.values()]
            partitions = max(*told, 1 + max(self.partitions)) if any(told) else 0
        found = [self.partitions.get(number) for number in range(partitions)]
        whole = [one for one in found if one is not None and one.is_whole]
        return whole if len(whole) == partitions else []

    def closed(self, key: str, partitions: int | None = None) -> int:
        """Return the event time in ms before which the log has closed every pane of a metric.

        In all of the topic's partitions, and in what is committed of them: no report of these panes
        will ever be counted again, whatever is replayed. No clock decides it, nor any silence.

        Parameters
        ----------
        key : str
            From :func:`aggregator.state.pane_keys.metric_key`.
        partitions : int, optional
            See :meth:`whole`.

        Returns
        -------
        int
            NEVER if a partition is not there, not whole, or has closed nothing.
        """
        marks = (one.watermarks.get(key) for one in self.whole(partitions))
        return min((NEVER if mark is None else mark.closed for mark in marks), default=NEVER)

    def goes_on_in(self, later: TopicProgress) -> bool:
        """Return whether what was read between two looks is of one history.

        Not if Redis was emptied, restored or failed over meanwhile: sums may then have been read
        that were still being counted anew. A change of owner cannot be told from that.
        """
        return all(
            one.goes_on_in(later.partitions.get(number))
            for number, one in self.partitions.items()
            if one.is_whole
        )


def _pairs(flat: list[bytes] | Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    if isinstance(flat, Mapping):
        return flat
    return dict(zip(flat[::2], flat[1::2], strict=True))
