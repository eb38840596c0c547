"""The progress of counting, of a partition and of a topic, from Redis."""

from __future__ import annotations

import dataclasses
from collections import Counter

from aggregator.errors import StateUnreadable
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage import parsing
from aggregator.storage.parsing import TORN, UNSET
from aggregator.storage.redis_keys import changed_field

__all__ = ["TORN", "UNSET", "PartitionProgress", "TopicProgress"]


@dataclasses.dataclass(frozen=True)
class PartitionProgress:
    """The progress of a partition: its owner's facts, watermarks and counts."""

    owner: dict[str, str]
    watermarks: dict[str, Watermark]
    counts: dict[str, int]
    age_ms: int | None = None  # of the last commit, by Redis's clock; None if unknown

    @property
    def is_halted(self) -> bool:
        """Whether counting of the partition has stopped until a person acts."""
        return bool(self.owner.get("halted")) or int(self.owner.get("next", UNSET)) == TORN

    def idle_ms(self, now_ms: int) -> int | None:
        """Return the age of the last commit; None if there was none.

        The worker's clock decides only after a week, when Redis has forgotten.
        """
        if self.age_ms is None and "updated" in self.owner:
            return max(0, now_ms - int(self.owner["updated"]))
        return self.age_ms

    @property
    def is_intact(self) -> bool:
        """Whether something was counted, and no commit was applied by half."""
        has_whole_commits = self.owner.get("begun") == self.owner.get("done")
        return has_whole_commits and self.next_offset >= 0

    @property
    def next_offset(self) -> int:
        """The next offset to count, UNSET or TORN."""
        return int(self.owner.get("next", UNSET))

    def require_watermarks(self, prefix: str) -> None:
        """Raise StateUnreadable if a metric has reports but no watermark."""
        marked = {key.partition("@")[0] for key in self.watermarks}
        for name, reports in self.counts.items():
            outcome, _, metric = name.partition(":")
            if outcome == "accepted" and reports and self.is_intact and metric not in marked:
                expected = f"a field of {metric}, whose reports were counted"
                raise StateUnreadable(f"{prefix}:watermarks", "nothing", expected)

    def continues_in(self, later: PartitionProgress | None) -> bool:
        """Return whether a later state is this one, or was counted on from it."""
        if later is None or not later.is_intact:
            return False
        same_owner = self.owner.get("token") == later.owner.get("token")
        return same_owner and self.next_offset <= later.next_offset


@dataclasses.dataclass(frozen=True)
class TopicProgress:
    """The progress of all partitions, and the weight policies that were set."""

    partitions: dict[int, PartitionProgress]
    policies: dict[str, str]
    # Last published rounds by metric key, for `open_round`.
    rounds: dict[str, bytes] = dataclasses.field(default_factory=dict)
    # By partition; no estimate is right without them.
    unreadable: dict[int, StateUnreadable] = dataclasses.field(default_factory=dict)
    policies_key: str = "policies"  # the Redis key of the policies

    def policy_changed_ms(self, metric: str) -> int | None:
        """Return when a metric's weight policy last changed; None: never."""
        field = changed_field(metric)
        time_ms = self.policies.get(field)
        return (
            None
            if time_ms is None
            else parsing.integer(f"{self.policies_key}, field {field}", time_ms, 0)
        )

    def outcomes(self) -> Counter[tuple[str, str]]:
        """Return reports by metric and outcome, over partitions; unknown metrics have no name."""
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
        if partitions is None:
            topic_sizes = [int(p.owner.get("partitions", 0)) for p in self.partitions.values()]
            partitions = max(*topic_sizes, 1 + max(self.partitions)) if any(topic_sizes) else 0
        progresses = [self.partitions.get(number) for number in range(partitions)]
        intact = [
            progress for progress in progresses if progress is not None and progress.is_intact
        ]
        return intact if len(intact) == partitions else []

    def closed(self, key: str, partitions: int | None = None) -> int:
        """Return the event time in ms up to which all panes of a metric key are closed for good.

        It is the minimum over all partitions, of committed state alone. No report of these panes
        will be counted again, whatever is replayed: neither a clock nor silence decides it. It is
        NO_TIME if a partition is missing, is not intact, or has closed nothing.
        """
        marks = (progress.watermarks.get(key) for progress in self.intact_partitions(partitions))
        return min((NO_TIME if mark is None else mark.closed for mark in marks), default=NO_TIME)

    def continues_in(self, later: TopicProgress) -> bool:
        """Return whether all reads between two overviews belong to one history.

        They do not if Redis was emptied, restored or failed over, when sums may have been counted
        anew. A change of owner looks the same.
        """
        return all(
            progress.continues_in(later.partitions.get(number))
            for number, progress in self.partitions.items()
            if progress.is_intact
        )
