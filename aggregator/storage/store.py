"""Redis as the store of one topic's sums."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Self

import redis

from aggregator.errors import StateUnreadable
from aggregator.state.watermark import Watermark
from aggregator.storage import parsing
from aggregator.storage.commands import Command, Commands, ask_each, readable
from aggregator.storage.pane_index import PaneIndex
from aggregator.storage.progress import PartitionProgress, TopicProgress
from aggregator.storage.redis_keys import partitions_key, policies_key, rounds_key, tag
from aggregator.storage.topic_registry import TopicRegistry

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
        self.panes = PaneIndex(self, topic)
        self.registry = TopicRegistry(self, topic)

    @functools.cached_property
    def partition(self) -> PartitionStore:
        """Acquires, commits and halts a partition; a reader does not load what counts."""
        from aggregator.storage.partition_store import PartitionStore

        return PartitionStore(self, self.topic)

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client's connections."""
        self.client.close()

    def partitions(self) -> list[int]:
        """Return all partitions that were ever counted, ascending."""
        key = partitions_key(self.topic)
        return parsing.partitions(key, self.members(key))

    def overview(self) -> TopicProgress:
        """Return the progress of all partitions, in two round trips.

        If a partition is unreadable, all are read again: it may have been deleted meanwhile.
        """
        progress = self._overview()
        return self._overview() if progress.unreadable else progress

    def _overview(self) -> TopicProgress:
        numbers, policies = self.partitions(), policies_key(self.topic)
        prefixes = [tag(self.topic, number) for number in numbers]
        names = ("owner", "counts", "watermarks")  # watermarks last, as they are the largest
        parts: list[list[Command]] = [
            [*(("HGETALL", f"{prefix}:{name}") for name in names), ("PTTL", f"{prefix}:committed")]
            for prefix in prefixes
        ]
        topic_commands: list[Command] = [("HGETALL", policies), ("HGETALL", rounds_key(self.topic))]
        *partition_replies, (stored_policies, opened) = ask_each(
            self.replies, [*parts, topic_commands]
        )
        partitions, unreadable = {}, {}
        for number, prefix, replies in zip(numbers, prefixes, partition_replies, strict=True):
            try:
                owner, counts, marks, left_ms = map(readable, replies)
                progress = PartitionProgress(
                    parsing.owner(f"{prefix}:owner", owner),
                    parsing.watermarks(f"{prefix}:watermarks", marks),
                    parsing.counts(f"{prefix}:counts", counts),
                    parsing.age(left_ms),
                )
                progress.require_watermarks(prefix)
                partitions[number] = progress
            except StateUnreadable as error:
                unreadable[number] = error
        return TopicProgress(
            partitions,
            parsing.texts(policies, readable(stored_policies)),
            parsing.names(rounds_key(self.topic), readable(opened)),
            unreadable,
            policies,
        )

    def is_same_history(self, overview: TopicProgress) -> bool:
        """Return whether all reads since an overview belong to one history, in one round trip.

        Like :meth:`aggregator.storage.progress.TopicProgress.continues_in`, from the owners' hashes
        alone, whose size does not depend on the number of metrics.
        """
        owner_keys = [f"{tag(self.topic, number)}:owner" for number in overview.partitions]
        replies = self.replies([("HGETALL", owner_key) for owner_key in owner_keys])
        later = {}
        for number, owner_key, reply in zip(overview.partitions, owner_keys, replies, strict=True):
            with contextlib.suppress(StateUnreadable):
                later[number] = PartitionProgress(parsing.owner(owner_key, readable(reply)), {}, {})
        return overview.continues_in(TopicProgress(later, {}))

    def owner(self, partition: int) -> dict[str, str]:
        """Return the facts of a partition's owner's hash."""
        return self.hash(f"{tag(self.topic, partition)}:owner", parsing.owner)

    def watermarks(self, partition: int) -> dict[str, Watermark]:
        """Return a partition's watermarks by metric key."""
        return self.hash(f"{tag(self.topic, partition)}:watermarks", parsing.watermarks)

    def counts(self, partition: int) -> dict[str, int]:
        """Return a partition's numbers of reports by ``outcome:metric``."""
        return self.hash(f"{tag(self.topic, partition)}:counts", parsing.counts)
