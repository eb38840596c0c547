"""Redis as the store of one topic's sums."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, TypeVar

import redis

from aggregator.errors import StateUnreadable
from aggregator.state.watermark import Watermark
from aggregator.storage import parsing, redis_keys
from aggregator.storage.commands import Commands, ask_each, readable
from aggregator.storage.pane_index import MAX_SCANNED_NAMES, PaneIndex
from aggregator.storage.progress import ProgressRequest, TopicProgress
from estimators import Metric
from estimators.weights import DEFAULT_POLICY

if TYPE_CHECKING:
    from aggregator.storage.partition_store import PartitionStore

T = TypeVar("T")
STUCK_MS = 60_000
"""The maximum age of a stuck worker's note; the worker of an older note has ended."""


class Store(Commands):
    """The sums of a reports topic in Redis; a context manager, which closes its connections.

    Attributes
    ----------
    panes : PaneIndex
        Lists and reads panes.
    registry : TopicRegistry
        Reads and writes weights, rounds, definitions and the state of workers.
    """

    def __init__(self, client: redis.Redis, topic: str) -> None:
        super().__init__(client)
        self.topic = topic
        self._partitions_key = redis_keys.partitions_key(topic)
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
            topic_facts, *facts = ask_each(self.read, request.reads(numbers))
            self._partitions = readable(topic_facts[0])
            if self._partitions == numbers:
                break
        by_partition = dict(zip(numbers, facts, strict=True))
        progress = request.progress(topic_facts[1], topic_facts[2], by_partition)
        for number, partition in [*progress.partitions.items()]:
            for name in partition.unmarked:
                if not self._has_earlier_watermark(number, name):
                    expected = f"a field of {name}, whose reports were counted"
                    key = f"{redis_keys.tag(self.topic, number)}:watermarks"
                    progress.unreadable[number] = StateUnreadable(key, "nothing", expected)
                    progress.partitions.pop(number, None)
        return progress

    def _has_earlier_watermark(self, number: int, name: str) -> bool:
        """Return whether a partition has a watermark of any definition of a metric."""
        pattern = ("MATCH", f"{name}@*", "COUNT", MAX_SCANNED_NAMES)
        key = f"{redis_keys.tag(self.topic, number)}:watermarks"
        ((_, marks),) = self.ask([("HSCAN", key, 0, *pattern)])
        return bool(marks)

    def is_same_history(self, overview: TopicProgress) -> bool:
        """Return whether all reads since an overview belong to one history, in one round trip."""
        return overview.is_continued(self.read(overview.history_reads(self.topic)))

    def owner(self, partition: int) -> dict[str, str]:
        """Return the fields of a partition's owner's hash."""
        return self.hash(f"{redis_keys.tag(self.topic, partition)}:owner", parsing.owner)

    def watermarks(self, partition: int) -> dict[str, Watermark]:
        """Return a partition's watermarks by metric key."""
        return self.hash(f"{redis_keys.tag(self.topic, partition)}:watermarks", parsing.watermarks)

    def counts(self, partition: int) -> dict[str, int]:
        """Return a partition's numbers of reports by ``outcome:metric``."""
        return self.hash(f"{redis_keys.tag(self.topic, partition)}:counts", parsing.counts)


class TopicRegistry:
    """Reads and writes the facts about a topic as a whole."""

    def __init__(self, commands: Commands, topic: str) -> None:
        self._commands, self._topic = commands, topic

    def policies(self) -> dict[str, str]:
        """Return the weight policies that were set, by metric name."""
        policies = self._commands.hash(redis_keys.policies_key(self._topic), parsing.texts)
        suffix = redis_keys.CHANGED_SUFFIX
        return {name: policy for name, policy in policies.items() if not name.endswith(suffix)}

    def set_policy(self, metric: str, policy: str, now_ms: int | None = None) -> None:
        """Set a metric's weight policy, in force from the next read, and the time of its change.

        `metric`: the metric's name; `policy`: the name of the policy; `now_ms`: the time of the
        change, in ms since the epoch; now by default.
        """
        words: list[str | int] = [metric, policy]
        if self.policies().get(metric, DEFAULT_POLICY) != policy:
            now = time.time_ns() // 10**6 if now_ms is None else now_ms
            words += [redis_keys.changed_field(metric), now]
        self._commands.ask([("HSET", redis_keys.policies_key(self._topic), *words)])

    def rounds(self) -> dict[str, bytes]:
        """Return the last published rounds, by metric key."""
        return self._commands.hash(redis_keys.rounds_key(self._topic), parsing.names)

    def definitions(self) -> dict[str, bytes]:
        """Return all definitions by which anything was counted, by digest."""
        return self._commands.hash(redis_keys.definitions_key(self._topic), parsing.names)

    def store_definitions(self, digest: str, document: bytes) -> None:
        """Store definitions, before anything is counted by them."""
        key = redis_keys.definitions_key(self._topic)
        self._commands.ask([("HSET", key, digest, document.decode())])

    def publisher_status(self) -> tuple[bool, dict[str, int]]:
        """Return whether a publisher holds the lease, and the number of events by type.

        The types are ``final``, ``provisional``, ``alarm`` and ``decided``.
        """
        key = redis_keys.publisher_key(self._topic)
        reads = [("EXISTS", f"{key}:lease"), ("HGETALL", f"{key}:events")]
        held, events = self._commands.ask(reads)
        counts = parsing.counts(f"{key}:events", events)
        events_by_type = {name.rpartition(".")[2]: count for name, count in counts.items()}
        return bool(held), {"final": 0, "provisional": 0} | events_by_type

    def expired_panes(self, metrics: Sequence[str]) -> list[int]:
        """Return, for each metric key, how many panes expired before their final event."""
        publisher = redis_keys.publisher_key(self._topic)
        keys = [redis_keys.expired_key(publisher, metric) for metric in metrics]
        return [int(number) for number in self._commands.ask([("ZCARD", key) for key in keys])]

    def failed_searches(self) -> dict[str, int]:
        """Return, by metric, the number of panes whose search failed and waits for a retry."""
        key = redis_keys.failed_searches_key(redis_keys.publisher_key(self._topic))
        return self._commands.hash(key, parsing.counts)

    def leaders(self) -> list[bool]:
        """Return whether a publisher, and whether a coordinator, holds its lease.

        A value that never expires is nobody's lease.
        """
        keys = redis_keys.publisher_key(self._topic), redis_keys.coordinator_key(self._topic)
        times_left = self._commands.ask([("PTTL", f"{key}:lease") for key in keys])
        return [time_left > 0 for time_left in times_left]

    def worker_deaths(self) -> int:
        """Return the number of workers that died and were restarted."""
        key = redis_keys.deaths_key(self._topic)
        (deaths,) = self._commands.ask([("GET", key)])
        return parsing.integer(key, deaths or b"0", 0)

    def add_worker_death(self) -> None:
        """Count a worker that died."""
        self._commands.client.incr(redis_keys.deaths_key(self._topic))

    def stuck_workers(self, now_ms: int) -> dict[str, tuple[str, float]]:
        """Return the step of each stuck worker, and the seconds that it has been in the step."""
        stuck_workers = {}
        notes = self._commands.hash(redis_keys.stuck_key(self._topic), parsing.texts)
        for worker, text in notes.items():
            since_ms, _, remainder = text.partition(":")
            seconds, _, step = remainder.partition(":")
            if since_ms.isdecimal() and now_ms - int(since_ms) < STUCK_MS and seconds.isdecimal():
                stuck_workers[worker] = step, float(seconds)
        return stuck_workers

    def note_stuck(self, worker: str, step: str, seconds: float, now_ms: int) -> None:
        """Store how long a worker has been stuck in a step; 0 seconds delete its note.

        `worker`, `step`: the names of the worker and of the step; `seconds`: how long the worker
        has been stuck; `now_ms`: the time of the observation, in ms since the epoch.
        """
        key = redis_keys.stuck_key(self._topic)
        note = ("HSET", key, worker, f"{now_ms}:{seconds:.0f}:{step}")
        self._commands.ask([note if seconds else ("HDEL", key, worker), ("PEXPIRE", key, STUCK_MS)])
