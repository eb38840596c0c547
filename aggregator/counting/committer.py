"""Commits owned partitions: checks first, then dead letters, then the sums and the next offset."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Collection, Mapping

import structlog
from confluent_kafka import KafkaException, TopicPartition

from aggregator.counting.assigned_partition import AssignedPartition, WorkerContext, limit_memory
from aggregator.counting.continuity import is_another
from aggregator.counting.takeover import store_definitions
from aggregator.dead_letters.writer import DeadLetters
from aggregator.errors import CommitTooLarge, Fenced, StateUnreadable
from aggregator.state.definition_history import CountingDefinitions
from aggregator.storage.eviction import EvictionWatch
from aggregator.tracing import BYTES_WRITTEN, REFUSED_COUNT, REPORT_COUNT, CommitTrace, Span
from estimators import Metric

DEAD_LETTER_SECONDS = 10.0
DEFINITIONS_SECONDS = 30.0
"""The time between two writes of the definitions in force, which somebody may have deleted."""
MAX_FENCE_DOUBLINGS = 5
"""After this many fences in a row, the pause, which is then 64 s at most, no longer grows."""

log = structlog.get_logger("dither.worker")


class Committer:
    """Commits the partitions of a worker."""

    def __init__(self, context: WorkerContext, trace: CommitTrace) -> None:
        settings, store, clock = context.settings, context.store, context.clock
        self._settings, self._topic = settings.aggregate, settings.topics.reports
        self._store, self._clients = store, context.clients
        self._dead_letters = DeadLetters(self._clients.producer, settings.topics.deadletters, clock)
        self.eviction = EvictionWatch(store.client, clock.monotonic)
        self._watchdog, self._clock = context.watchdog, clock
        self._keep_at, self._trace = float("-inf"), trace

    def commit_all(
        self, partitions: Collection[AssignedPartition], metrics: Mapping[str, Metric]
    ) -> None:
        """Check the preconditions of a commit, then commit all owned partitions.

        `partitions`: the owned partitions; `metrics`: the definitions in force.
        """
        with self._trace.step("check", any(owned.state.unsaved for owned in partitions)):
            limit_memory(partitions, self._settings.memory)
            self._check_servers(partitions)
            # Readers check by this number that no partition is missing.
            if total := self._clients.partitions():
                for owned in partitions:
                    owned.facts["partitions"] = total
        for owned in partitions:
            self._commit(owned)
        if partitions:
            self._store_definitions(metrics)

    def commit_revoked(self, partitions: Collection[AssignedPartition]) -> None:
        """Commit partitions that are about to be revoked."""
        self._check_servers(partitions)
        for owned in partitions:
            self._commit(owned)

    def _check_servers(self, partitions: Collection[AssignedPartition]) -> None:
        """Fence the counting partitions if the topic was deleted and created again.

        Kafka's client would silently continue. Halt the partitions if the topic is compacted, or if
        Redis may evict keys.
        """
        counting = [owned for owned in partitions if owned.is_counting]
        if not counting:
            return
        topic_id, excess = self._clients.topic_id(), self._clients.compaction() or self.eviction()
        for owned in counting:
            if excess:
                owned.refuse(excess)
            elif is_another(str(owned.facts.get("topic_id", "")), topic_id):
                owned.fence()

    def _commit(self, owned: AssignedPartition) -> None:
        """Write a partition's sums and next offset; drop them if the partition is fenced.

        A transient error loses nothing: the commit is tried again.
        """
        if owned.is_fenced:
            return
        reports, refused = owned.state.unsaved, len(owned.rejections)
        with self._trace.step("store", reports > 0 or refused > 0, owned.number) as span:
            written = self._write(owned, span)
            if written is not None:
                self._trace.add(
                    span, {REPORT_COUNT: reports, REFUSED_COUNT: refused, BYTES_WRITTEN: written}
                )
        if written is not None:
            self._commit_to_group(owned)

    def _write(self, owned: AssignedPartition, span: Span) -> int | None:
        """Write a partition's dead letters and sums.

        Returns the number of bytes in Redis, or None if the partition must not be counted further.
        """
        if not self._send_dead_letters(owned, span):
            return None
        self._watchdog.enter("committing", owned.number, owned.state.next_offset)
        started = self._clock.monotonic()
        position = TopicPartition(self._topic, owned.number)
        marks = self._clients.consumer.get_watermark_offsets(position, cached=True)
        try:
            written = owned.commit(self._store, max(owned.position, marks[1] if marks else 0))
        except Fenced as fence:
            span.note("fenced")
            self._fence(owned, fence)
            return None
        except (CommitTooLarge, StateUnreadable) as error:
            # The next acquisition halts the partition.
            if isinstance(error, CommitTooLarge):
                owned.excess = str(error)
            span.note("halted")
            owned.fence()
            return None
        seconds = self._clock.monotonic() - started
        owned.measured = owned.measured.with_commit(seconds, written)
        log_fields = {"next": owned.committed, "bytes": written, "seconds": round(seconds, 4)}
        log.debug("committed", partition=owned.number, **log_fields)
        return written

    def _send_dead_letters(self, owned: AssignedPartition, span: Span) -> bool:
        """Send the rejections since the last commit; return False if the partition is fenced."""
        rejections = owned.rejections
        if rejections:
            first, reasons = rejections[0], Counter(r.reason for r in rejections)
            log.warning(
                "refused",
                partition=owned.number,
                reasons=dict(reasons),
                first_offset=first.message.offset(),
                detail=f"{first.reason}: {first.detail}",
            )
            for rejection in rejections:
                try:
                    self._dead_letters.enqueue(rejection)
                except Exception as error:
                    owned.block_unsendable(rejection, error)
                    span.note("dead letters cannot be sent")
                    return False
            owned.rejections, owned.refused_bytes = [], 0
        self._watchdog.enter("sending dead letters", owned.number)
        self._dead_letters.flush(DEAD_LETTER_SECONDS)
        if rejections:
            span.note("dead letters sent")
        return True

    def _commit_to_group(self, owned: AssignedPartition) -> None:
        """Commit the offset to Kafka, for lag tools and in case Redis loses it."""
        if owned.committed >= 0 and not owned.halted:
            try:
                progress = dataclasses.replace(owned.progress[0], at=self._clock.now_ms())
                committed = (owned.number, progress.next, progress.metadata)
                position = TopicPartition(self._topic, *committed)
                self._clients.consumer.commit(offsets=[position], asynchronous=True)
            except KafkaException as error:
                log.debug("group commit failed", partition=owned.number, error=str(error))

    def _fence(self, owned: AssignedPartition, fence: Fenced) -> None:
        """Drop the uncommitted state; if another worker owns the partition, pause, too.

        The pause about doubles with each such fence in a row, up to 64 s.
        """
        log.warning(
            "fenced", partition=owned.number, detail=str(fence), other_owner=fence.has_other_owner
        )
        pause = 0.0
        if fence.has_other_owner:
            pause = random.uniform(1, 2) * 2 ** min(owned.fences, MAX_FENCE_DOUBLINGS)  # noqa: S311
            owned.fences += 1
        owned.fence(pause)

    def _store_definitions(self, metrics: Mapping[str, Metric]) -> None:
        """Store the definitions in force, for `dither verify`, at most every half a minute."""
        if self._clock.monotonic() < self._keep_at:
            return
        store_definitions(self._store, CountingDefinitions.current(metrics, self._settings))
        self._keep_at = self._clock.monotonic() + DEFINITIONS_SECONDS
