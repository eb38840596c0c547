"""Redis as the store of one topic's sums."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import redis

from aggregator.errors import StateUnreadable
from aggregator.state.watermark import Watermark
from aggregator.storage import parsing
from aggregator.storage.commands import Commands, ask_each
from aggregator.storage.pane_index import MAX_SCANNED_NAMES, PaneIndex
from aggregator.storage.parsing import Command, readable
from aggregator.storage.progress import ProgressRequest, TopicProgress
from aggregator.storage.redis_keys import partitions_key, tag
from aggregator.storage.topic_registry import TopicRegistry
from estimators import Metric

if TYPE_CHECKING:
    from aggregator.storage.partition_store import PartitionStore


class Store(Commands):
    """The sums of one reports topic in Redis; as a context manager, it closes its connections.

    Attributes
    ----------
    panes : PaneIndex
        Lists and reads panes.
    registry : TopicRegistry
        Weights, rounds, definitions and workers.
    """

    def __init__(self, client: redis.Redis, topic: str) -> None:
        super().__init__(client)
        self.topic = topic
        self._partitions_key = partitions_key(topic)
        self._partitions: list[int] = []  # as last read
        self.panes = PaneIndex(self, topic)
        self.registry = TopicRegistry(self, topic)

    @functools.cached_property
    def partition(self) -> PartitionStore:
        """Acquires, commits and halts partitions; a reader does not load this code."""
        from aggregator.storage.partition_store import PartitionStore

        return PartitionStore(self, self.topic)

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client's connections."""
        self.client.close()

    def partitions(self) -> list[int]:
        """Return the numbers of all partitions that were ever counted, ascending."""
        return parsing.partitions(self._partitions_key, self.members(self._partitions_key))

    def overview(self) -> TopicProgress:
        """Return the progress of all metrics in all partitions, in one round trip.

        The first call takes two round trips. If a partition is unreadable, all are read again: it
        may have been deleted meanwhile.
        """
        return self._readable_progress(None)

    def progress(self, *metrics: Metric) -> TopicProgress:
        """Return the progress of some metrics in all partitions, like :meth:`overview`.

        Other metrics are not read, and of the owners' facts only those in
        :data:`aggregator.storage.progress.OWNER_FACTS`.
        """
        return self._readable_progress(metrics)

    def _readable_progress(self, metrics: Sequence[Metric] | None) -> TopicProgress:
        progress = self._progress(metrics)
        return self._progress(metrics) if progress.unreadable else progress

    def _progress(self, metrics: Sequence[Metric] | None) -> TopicProgress:
        request = ProgressRequest(self.topic, metrics)
        while True:  # until the partitions are those that were asked
            numbers = self._partitions
            members_command: list[Command] = [("SMEMBERS", self._partitions_key)]
            parts = [members_command, *request.commands(numbers)]
            ((members,), *replies) = ask_each(self.replies, parts)
            self._partitions = parsing.partitions(self._partitions_key, readable(members))
            if self._partitions == numbers:
                break
        progress = request.progress(numbers, replies)
        for number, partition in [*progress.partitions.items()]:
            for name in partition.unmarked:
                if not self._has_earlier_watermark(number, name):
                    expected = f"a field of {name}, whose reports were counted"
                    key = f"{tag(self.topic, number)}:watermarks"
                    progress.unreadable[number] = StateUnreadable(key, "nothing", expected)
                    progress.partitions.pop(number, None)
        return progress

    def _has_earlier_watermark(self, number: int, name: str) -> bool:
        """Return whether a partition has a watermark of any definition of a metric."""
        pattern = ("MATCH", f"{name}@*", "COUNT", MAX_SCANNED_NAMES)
        ((_, marks),) = self.ask([("HSCAN", f"{tag(self.topic, number)}:watermarks", 0, *pattern)])
        return bool(marks)

    def is_same_history(self, overview: TopicProgress) -> bool:
        """Return whether all reads since an overview belong to one history, in one round trip."""
        return overview.is_continued(self.replies(overview.history_commands(self.topic)))

    def owner(self, partition: int) -> dict[str, str]:
        """Return the fields of a partition's owner's hash."""
        return self.hash(f"{tag(self.topic, partition)}:owner", parsing.owner)

    def watermarks(self, partition: int) -> dict[str, Watermark]:
        """Return a partition's watermarks by metric key."""
        return self.hash(f"{tag(self.topic, partition)}:watermarks", parsing.watermarks)

    def counts(self, partition: int) -> dict[str, int]:
        """Return a partition's numbers of reports by ``outcome:metric``."""
        return self.hash(f"{tag(self.topic, partition)}:counts", parsing.counts)
