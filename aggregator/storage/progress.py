"""The progress of counting, of a partition and of a topic, from Redis."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aggregator.errors import StateUnreadable
from aggregator.state.pane_keys import counted_keys, metric_key
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage import parsing, redis_keys
from aggregator.storage.parsing import TORN, UNSET, Read
from estimators import Metric

__all__ = ["TORN", "UNSET", "PartitionProgress", "TopicProgress"]


OWNER_FACTS = ("epoch", "token", "next", "begun", "done", "partitions", "halted", "updated")
"""The facts of an owner on which answers depend; the others are for people and workers."""


class ProgressRequest:
    """Reads the progress of metrics in all partitions of a topic.

    Parameters
    ----------
    topic : str
        The reports topic.
    metrics : sequence of Metric, optional
        The metrics; by default all.
    """

    def __init__(self, topic: str, metrics: Sequence[Metric] | None) -> None:
        self._topic, self._metrics, self._policies = topic, metrics, redis_keys.policies_key(topic)
        names = [metric.name for metric in metrics or ()]
        self._keys = [metric_key(metric.name, metric.revision) for metric in metrics or ()]
        fields: list[Sequence[str] | None] = [
            [*names, *map(redis_keys.changed_field, names)],
            self._keys,
            OWNER_FACTS,
            [f"accepted:{name}" for name in names],
            [key for metric in metrics or () for key in counted_keys(metric)],
        ]
        if metrics is None:
            fields = [None] * len(fields)  # all fields of each hash
        self._policy_fields, self._round_fields, self._owner_fields, *fields = fields
        self._count_fields, self._mark_fields = fields

    def reads(self, numbers: Sequence[int]) -> list[list[Read]]:
        """Return the reads about the topic, then those about each of the partitions `numbers`.

        The first read lists the topic's partitions.
        """
        partitions = redis_keys.partitions_key(self._topic)
        topic_reads = [
            Read(("SMEMBERS", partitions), functools.partial(parsing.partitions, partitions)),
            _hash_read(self._policies, self._policy_fields, parsing.texts),
            _hash_read(redis_keys.rounds_key(self._topic), self._round_fields, parsing.names),
        ]
        prefixes = [redis_keys.tag(self._topic, number) for number in numbers]
        return [topic_reads, *map(self._partition_reads, prefixes)]

    def _partition_reads(self, prefix: str) -> list[Read]:
        reads = [
            _hash_read(f"{prefix}:owner", self._owner_fields, parsing.owner),
            _hash_read(f"{prefix}:watermarks", self._mark_fields, parsing.watermarks),
            _hash_read(f"{prefix}:counts", self._count_fields, parsing.counts),
        ]
        if self._metrics is None:
            return [*reads, Read(("PTTL", f"{prefix}:committed"), parsing.age)]
        indexes = [f"{prefix}:index:pane:{key}" for key in self._keys]
        edges = [
            Read(("ZRANGE", index, end, end), functools.partial(parsing.starts, index))
            for index in indexes
            for end in (0, -1)
        ]
        return [*reads, *edges]

    def progress(
        self,
        policies: dict[str, str] | StateUnreadable,
        rounds: dict[str, bytes] | StateUnreadable,
        facts: Mapping[int, Sequence[Any]],
    ) -> TopicProgress:
        """Return the progress that follows from the results of :meth:`reads`.

        `policies`, `rounds`: the parsed hashes; `facts`: the results of each partition's reads.
        """
        partitions, unreadable = {}, {}
        for number, (owner, marks, counts, *edges) in facts.items():
            errors = (fact for fact in facts[number] if isinstance(fact, StateUnreadable))
            if error := next(errors, None):
                unreadable[number] = error
            elif self._metrics is None:
                partitions[number] = PartitionProgress(owner, marks, counts, age_ms=edges[0])
            else:
                pairs = zip(self._keys, edges[::2], edges[1::2], strict=True)
                ends = {key: [*first, *last] for key, first, last in pairs}
                extents = {key: (starts[0], starts[-1]) for key, starts in ends.items() if starts}
                partitions[number] = PartitionProgress(owner, marks, counts, extents=extents)
        return TopicProgress(partitions, policies, rounds, unreadable, self._policies)


def _hash_read(
    key: str, names: Sequence[str] | None, parse: Callable[[str, dict[bytes, bytes]], Any]
) -> Read:
    """Return the read of the fields `names` of a hash; None for all fields."""
    command = ("HGETALL", key) if names is None else ("HMGET", key, *names)
    return Read(command, functools.partial(parsing.hash_fields, key, names, parse))


@dataclasses.dataclass(frozen=True)
class PartitionProgress:
    """The progress of a partition: its owner's facts, watermarks and counts."""

    owner: dict[str, str]
    watermarks: dict[str, Watermark]
    counts: dict[str, int]
    age_ms: int | None = None  # age of the last commit by Redis's clock; None if unknown
    # The starts of the first and last pane by metric key, in ms since the epoch; None: not read.
    extents: dict[str, tuple[int, int]] | None = None

    @property
    def is_halted(self) -> bool:
        """Whether counting of the partition has stopped until a person acts."""
        return bool(self.owner.get("halted")) or self.next_offset == TORN

    def idle_ms(self, now_ms: int) -> int | None:
        """Return the age of the last commit in ms; None if there was none.

        Redis's clock measures the age; after a week, when Redis has dropped the commit's mark, the
        worker's clock does.
        """
        if self.age_ms is None and "updated" in self.owner:
            return max(0, now_ms - int(self.owner["updated"]))
        return self.age_ms

    @functools.cached_property
    def is_intact(self) -> bool:
        """Whether a commit was made, and no commit was applied in part."""
        return self.owner.get("begun") == self.owner.get("done") and self.next_offset >= 0

    @functools.cached_property
    def next_offset(self) -> int:
        """The next offset to count, UNSET or TORN."""
        return int(self.owner.get("next", UNSET))

    @property
    def unmarked(self) -> list[str]:
        """The metrics that have counted reports but no watermark."""
        if not self.is_intact:
            return []
        marked = {key.partition("@")[0] for key in self.watermarks}
        outcomes = ((*name.partition(":"), reports) for name, reports in self.counts.items())
        return [
            metric
            for outcome, _, metric, reports in outcomes
            if outcome == "accepted" and reports and metric not in marked
        ]

    def continues_in(self, later: PartitionProgress | None) -> bool:
        """Return whether a later state is equal to this state or continues it."""
        if later is None or not later.is_intact:
            return False
        same_owner = self.owner.get("token") == later.owner.get("token")
        return same_owner and self.next_offset <= later.next_offset


@dataclasses.dataclass(frozen=True)
class TopicProgress:
    """The progress of all partitions, and the weight policies that were set."""

    partitions: dict[int, PartitionProgress]
    # By metric name, which searches do not need.
    policies: dict[str, str] | StateUnreadable
    # Last published rounds by metric key, which only metrics with rounds need.
    rounds: dict[str, bytes] | StateUnreadable = dataclasses.field(default_factory=dict)
    # By partition; no estimate is right without them.
    unreadable: dict[int, StateUnreadable] = dataclasses.field(default_factory=dict)
    policies_key: str = "policies"  # the Redis key of the policies

    @property
    def _stored_policies(self) -> dict[str, str]:
        if isinstance(self.policies, StateUnreadable):
            raise self.policies
        return self.policies

    def policy(self, metric: Metric) -> str:
        """Return the weight policy in force.

        Raises StateUnreadable if the stored policy does not fit the metric, or cannot be read.
        """
        policy = self._stored_policies.get(metric.name, metric.policies[0])
        if policy not in metric.policies:
            location = f"{self.policies_key}, field {metric.name}"
            raise StateUnreadable(location, repr(policy), f"one of {', '.join(metric.policies)}")
        return policy

    def policy_changed_ms(self, metric: str) -> int | None:
        """Return when a metric's weight policy last changed, in ms; None if it never did."""
        field = redis_keys.changed_field(metric)
        if (time_ms := self._stored_policies.get(field)) is None:
            return None
        return parsing.integer(f"{self.policies_key}, field {field}", time_ms, 0)

    def watermarks(self, key: str) -> dict[int, Watermark]:
        """Return the watermark of a metric key in each partition that has counted it."""
        return {
            number: progress.watermarks[key]
            for number, progress in self.partitions.items()
            if key in progress.watermarks
        }

    def count_version(self, metric: str) -> list[tuple[object, ...]]:
        """Return a value that changes whenever reports of the metric are counted."""
        return [
            (number, progress.owner.get("token"), progress.counts.get(f"accepted:{metric}"))
            for number, progress in self.partitions.items()
        ]

    def outcomes(self) -> Counter[tuple[str, str]]:
        """Return the number of reports by metric ("" if unknown) and outcome, over partitions."""
        outcomes: Counter[tuple[str, str]] = Counter()
        for progress in self.partitions.values():
            for key, count in progress.counts.items():
                outcome, _, metric = key.partition(":")
                outcomes[metric, outcome] += count
        return outcomes

    def require_readable(self) -> None:
        """Raise the StateUnreadable of the first unreadable partition, if any."""
        for error in self.unreadable.values():
            raise error

    def intact_partitions(self, partitions: int | None = None) -> list[PartitionProgress]:
        """Return the progress of all partitions; an empty list if one is missing or not intact.

        `partitions` is the topic's number of partitions; by default the one that workers stored.
        """
        if partitions not in self._intact:
            stored = [int(p.owner.get("partitions", 0)) for p in self.partitions.values()]
            size = max(*stored, 1 + max(self.partitions)) if any(stored) else 0
            numbers = range(size if partitions is None else partitions)
            progresses = [self.partitions.get(number) for number in numbers]
            intact = [p for p in progresses if p is not None and p.is_intact]
            self._intact[partitions] = intact if len(intact) == len(numbers) else []
        return self._intact[partitions]

    @functools.cached_property
    def _intact(self) -> dict[int | None, list[PartitionProgress]]:
        return {}

    def closed(self, key: str, partitions: int | None = None) -> int:
        """Return the event time in ms up to which all panes of a metric key are closed for good.

        It is the minimum over the committed states of all partitions. No report of these panes will
        be counted again, whatever is replayed, because neither a clock nor silence decides this
        time. It is NO_TIME if a partition is missing, is not intact, or has closed nothing.
        """
        marks = (progress.watermarks.get(key) for progress in self.intact_partitions(partitions))
        return min((NO_TIME if mark is None else mark.closed for mark in marks), default=NO_TIME)

    def continues_in(self, later: TopicProgress) -> bool:
        """Return whether all reads between this overview and a later one belong to one history.

        They do not if Redis was emptied, restored or failed over in between, because sums may have
        been counted again. The result is also False if a partition has another owner.
        """
        return all(
            progress.continues_in(later.partitions.get(number))
            for number, progress in self.partitions.items()
            if progress.is_intact
        )

    def extent(self, key: str, partitions: Iterable[int]) -> tuple[int, int] | None:
        """Return the starts of a metric key's first and last pane, in ms since the epoch.

        `key`: the key of a metric that was named when the progress was read; `partitions`: the
        partitions to look at.

        Returns
        -------
        tuple or None
            The two starts; None if there is no pane.
        """
        extents = [(self.partitions[number].extents or {}).get(key) for number in partitions]
        panes = [extent for extent in extents if extent is not None]
        return (min(panes)[0], max(last for _, last in panes)) if panes else None

    def history_reads(self, topic: str) -> list[Read]:
        """Return the reads whose results :meth:`is_continued` needs; they come after all others."""
        keys = [f"{redis_keys.tag(topic, number)}:owner" for number in self.partitions]
        return [_hash_read(key, OWNER_FACTS, parsing.owner) for key in keys]

    def is_continued(self, owners: Sequence[Any]) -> bool:
        """Return whether all reads since this overview belong to one history.

        Like :meth:`continues_in`, but from the results of :meth:`history_reads` alone.
        """
        later = {
            number: PartitionProgress(owner, {}, {})
            for number, owner in zip(self.partitions, owners, strict=True)
            if not isinstance(owner, StateUnreadable)
        }
        return self.continues_in(TopicProgress(later, {}))
