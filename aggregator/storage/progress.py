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
    """The progress of a partition: its owner's facts, watermarks and counts.

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
    def is_intact(self) -> bool:
        """Whether something was counted, and every commit was applied as a whole."""
        has_whole_commits = self.owner.get("begun") == self.owner.get("done")
        return has_whole_commits and self.next_offset >= 0

    @property
    def next_offset(self) -> int:
        """The first offset that is not counted, UNSET or TORN."""
        return int(self.owner.get("next", UNSET))

    def check(self, prefix: str) -> None:
        """Raise StateUnreadable if there are reports of a metric, and no watermark of it."""
        marked = {key.partition("@")[0] for key in self.watermarks}
        for name, reports in self.counts.items():
            outcome, _, metric = name.partition(":")
            if outcome == "accepted" and reports and self.is_intact and metric not in marked:
                expected = f"a field of {metric}, of which reports were counted"
                raise StateUnreadable(f"{prefix}:watermarks", "nothing", expected)

    def continues_in(self, later: PartitionProgress | None) -> bool:
        """Return whether another look found this state or one counted on from it."""
        if later is None or not later.is_intact:
            return False
        same_owner = self.owner.get("token") == later.owner.get("token")
        return same_owner and self.next_offset <= later.next_offset


@dataclasses.dataclass(frozen=True)
class TopicProgress:
    """The progress of all partitions, and the policies of weights that were set."""

    partitions: dict[int, PartitionProgress]
    policies: dict[str, str]
    # The rounds that were published last, by metric key: `open_round` reads them.
    rounds: dict[str, bytes] = dataclasses.field(default_factory=dict)
    # The partitions whose progress cannot be read. No estimate is right without them.
    unreadable: dict[int, StateUnreadable] = dataclasses.field(default_factory=dict)
    policies_key: str = "policies"  # where the policies are

    def changed_ms(self, metric: str) -> int | None:
        """Return when a metric's policy of weights was changed last; None: never."""
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

    def check(self) -> None:
        """Raise StateUnreadable if a partition is left out."""
        for error in self.unreadable.values():
            raise error

    def intact_partitions(self, partitions: int | None = None) -> list[PartitionProgress]:
        """Return the progress of all of the topic's partitions; none if one of them is missing.

        Parameters
        ----------
        partitions : int, optional
            How many the topic has, for a caller that asked Kafka. By default what the workers said
            last; where none of them did, it is not known.
        """
        if partitions is None:
            topic_sizes = [int(one.owner.get("partitions", 0)) for one in self.partitions.values()]
            partitions = max(*topic_sizes, 1 + max(self.partitions)) if any(topic_sizes) else 0
        progresses = [self.partitions.get(number) for number in range(partitions)]
        complete = [
            progress for progress in progresses if progress is not None and progress.is_intact
        ]
        return complete if len(complete) == partitions else []

    def closed(self, key: str, partitions: int | None = None) -> int:
        """Return the event time in ms before which the log has closed every pane of a metric.

        In all of the topic's partitions, and in what is committed of them: no report of these panes
        will ever be counted again, whatever is replayed. No clock decides it, nor any silence.

        Parameters
        ----------
        key : str
            From :func:`aggregator.state.pane_keys.metric_key`.
        partitions : int, optional
            See :meth:`intact_partitions`.

        Returns
        -------
        int
            NO_TIME if a partition is not there, not whole, or has closed nothing.
        """
        marks = (progress.watermarks.get(key) for progress in self.intact_partitions(partitions))
        return min((NO_TIME if mark is None else mark.closed for mark in marks), default=NO_TIME)

    def continues_in(self, later: TopicProgress) -> bool:
        """Return whether what was read between two looks is of one history.

        Not if Redis was emptied, restored or failed over meanwhile: sums may then have been read
        that were still being counted anew. A change of owner cannot be told from that.
        """
        return all(
            progress.continues_in(later.partitions.get(number))
            for number, progress in self.partitions.items()
            if progress.is_intact
        )
