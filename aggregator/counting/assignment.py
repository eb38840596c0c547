"""Acquires, seeks and releases the owned partitions, which the group assigns to a worker."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from aggregator.counting.assigned_partition import AssignedPartition, WorkerContext, limit_memory
from aggregator.counting.backoff import TRANSIENT_ERRORS, Backoff
from aggregator.counting.log_inspector import LogInspector
from aggregator.counting.rival_deployments import OriginCheck
from aggregator.counting.takeover import acquire_partition
from aggregator.errors import DitherError
from estimators import Metric

UNREADABLE_RETRY_SECONDS = 15.0
"""The time between two reads of an unreadable stored state, which a person may repair."""
LEADER_RETRY_SECONDS = 15.0
"""The time until a partition without a leader is tried again."""
IDLE_CHECK_SECONDS = 15.0
"""The time between two checks, by a worker without partitions, for partitions without an owner."""

log = structlog.get_logger("dither.worker")


class Assignment:
    """Acquires the assigned partitions, and fetches each from its next offset.

    Parameters
    ----------
    context : WorkerContext
        The settings, the store and the clients that the parts of a worker share.
    metrics : mapping of str to Metric
        The definitions by which partitions are acquired; they may be replaced.
    """

    def __init__(self, context: WorkerContext, metrics: Mapping[str, Metric]) -> None:
        settings, clients, clock = context.settings, context.clients, context.clock
        self.owned: dict[int, AssignedPartition] = {}
        self.metrics, self.backoff = metrics, Backoff(clock)
        self._settings, self._store, self._worker = settings.aggregate, context.store, context.name
        self._topic, self._topic_id = settings.topics.reports, clients.topic_id
        self._consumer = clients.consumer
        self._inspector = LogInspector(clients.inspector, settings, clock.monotonic)
        self._origins = OriginCheck(self._store, self._inspector, settings.aggregate, clock)
        self._watchdog, self._clock = context.watchdog, clock
        self._pending: dict[int, float] = {}  # assigned, not yet acquired: when to try (again)
        self._partitions, self._unowned = clients.partitions, clients.unowned
        self._look_at = float("inf")
        self._is_idle = self._has_rejoined = False

    def subscribe(self, commit: Callable[[Collection[AssignedPartition]], None]) -> None:
        """Join the group; `commit` is called with partitions that are about to be revoked."""
        self._commit = commit
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def rejoin_if_idle(self) -> None:
        """Join the group again if this worker has no partitions, and some have no owner.

        A group leader that has seen a topic without partitions may never assign any. Raises
        DitherError if this worker has already joined again and still has no partitions.
        """
        now = self._clock.monotonic()
        if self.owned or self._pending:
            self._look_at = float("inf")
            self._is_idle = self._has_rejoined = False
            return
        if self._look_at == float("inf"):
            self._look_at = now + IDLE_CHECK_SECONDS
        if now < self._look_at:
            return
        self._look_at = now + IDLE_CHECK_SECONDS
        self._watchdog.enter("looking for partitions without an owner")
        total = self._partitions()
        unowned = self._unowned(range(total)) if total else None
        if unowned and self._has_rejoined:
            raise DitherError(
                f"this worker owns nothing, although the partitions {unowned} have no owner, and "
                "joining its consumer group again did not help. Start it again; if that does not "
                "help either, restart all workers of the group"
            )
        if unowned:
            log.warning(
                "owns no partitions, joining the group again", partitions_without_owner=unowned
            )
            self._consumer.unsubscribe()
            self.subscribe(self._commit)
            self._has_rejoined = True
        elif unowned is not None and not self._is_idle:
            log.info("owns no partitions, all have owners", partitions=total)
            self._is_idle = True

    def close(self) -> None:
        """Leave the group, after committing the owned partitions."""
        self._consumer.close()
        self._inspector.close()

    def acquire_pending(self) -> None:
        """Acquire assigned partitions that have a leader; the others wait without delaying them.

        If the store or Kafka fails, the error is raised; the next call acquires the rest.
        """
        now = self._clock.monotonic()
        due = sorted(number for number, retry_at in self._pending.items() if now >= retry_at)
        if not due:
            return
        positions, failure = [], None
        try:
            for number in self._with_leader(due):
                self.owned[number] = self._acquire(number)
                del self._pending[number]
                positions.append(TopicPartition(self._topic, number, self.owned[number].position))
        except TRANSIENT_ERRORS as error:
            failure = error
        self._consumer.incremental_assign(positions)
        halted = [p for p in positions if self.owned[p.partition].halted]
        # A partition that was paused when it was revoked returns paused.
        self._consumer.pause(halted)
        self._consumer.resume([p for p in positions if p not in halted])
        if failure is not None:
            raise failure

    def reacquire_fenced(self) -> None:
        """Acquire fenced partitions again, unless the group revoked them."""
        now = self._clock.monotonic()
        fenced = [each for each in self.owned.values() if each.is_fenced and now >= each.retry_at]
        for number in self._with_leader([owned.number for owned in fenced]):
            self._reacquire(self.owned[number])

    def fence_beside_rival(self) -> None:
        """Fence counting partitions if another deployment commits offsets in the group."""
        if self.owned and self._origins.finds_rival():
            for owned in self.owned.values():
                if owned.is_counting:
                    owned.fence()

    def pause(self, numbers: Collection[int]) -> None:
        """Stop fetching these partitions until :meth:`resume`."""
        self._consumer.pause([TopicPartition(self._topic, number) for number in numbers])

    def resume(self) -> None:
        """Fetch the partitions that were paused while Redis was unreachable."""
        for owned in self.owned.values():
            if owned.is_counting:
                self._consumer.resume([TopicPartition(self._topic, owned.number)])
                self.seek(owned)

    def seek(self, owned: AssignedPartition) -> None:
        """Make Kafka's client fetch a partition from its next offset."""
        position = TopicPartition(self._topic, owned.number, owned.position)
        # An idle partition has no message that shows a wrong position: a failed seek is repeated.
        owned.must_seek = False
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            log.debug("seek failed", partition=owned.number, error=str(error))
            owned.recheck_offset()
            owned.must_seek = True

    def seek_due(self) -> None:
        """Move Kafka's client to the next offset of each counting partition where this is due."""
        for owned in self.owned.values():
            if owned.must_seek and owned.is_counting:
                self.seek(owned)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Acquire partitions, or try again later if Redis does not answer."""
        self._pending |= dict.fromkeys((assigned.partition for assigned in partitions), -math.inf)
        try:
            self.acquire_pending()
        except TRANSIENT_ERRORS as error:
            self.backoff.fail(error)
        if partitions:
            log.info("assigned", partitions=[p.partition for p in partitions])

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [p.partition for p in partitions]
        try:
            self._commit([self.owned[n] for n in numbers if n in self.owned])
        except TRANSIENT_ERRORS as error:
            self.backoff.fail(error)
            log.warning("revoked uncommitted", partitions=numbers)  # they will be read again
        self._drop(partitions)
        if partitions:
            log.info("revoked", partitions=numbers)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._drop(partitions)
        log.warning("lost", partitions=[p.partition for p in partitions])

    def _drop(self, partitions: list[TopicPartition]) -> None:
        fetched = [p for p in partitions if p.partition not in self._pending]
        for dropped in partitions:
            self._pending.pop(dropped.partition, None)
            self.owned.pop(dropped.partition, None)
        self._consumer.incremental_unassign(fetched)

    def _with_leader(self, numbers: Sequence[int]) -> list[int]:
        """Return the partitions that a broker leads; the others are tried again some time later."""
        leaderless = self._inspector.leaderless_partitions() if numbers else set()
        for number in leaderless.intersection(numbers):
            log.warning("no broker leads the partition, so it is not counted", partition=number)
            if number in self._pending:
                self._pending[number] = self._clock.monotonic() + LEADER_RETRY_SECONDS
            else:
                self.owned[number].fence(LEADER_RETRY_SECONDS)
        return [number for number in numbers if number not in leaderless]

    def _acquire(self, number: int) -> AssignedPartition:
        self._watchdog.enter("taking over", number)
        previous_owned = self.owned.get(number)
        owned = acquire_partition(
            self._store,
            number,
            self._worker,
            dataclasses.replace(
                self._inspector.log(number, previous_owned.progress if previous_owned else ()),
                topic_id=self._topic_id(),
                origin=functools.partial(self._origins.check, number),
            ),
            self.metrics,
            self._settings,
            previous_owned.excess if previous_owned else "",
            self._clock,
        )
        if owned.halted and (previous_owned is None or previous_owned.halted != owned.halted):
            log.error("halted", partition=number, reason=owned.halted)
        if owned.is_unreadable:
            owned.fence(UNREADABLE_RETRY_SECONDS)
        limit_memory((self.owned | {number: owned}).values(), self._settings.memory)
        return owned

    def _reacquire(self, owned: AssignedPartition) -> None:
        fresh = self._acquire(owned.number)
        fresh.fences, fresh.trouble = owned.fences, owned.trouble
        self.owned[owned.number] = fresh
        position = [TopicPartition(self._topic, owned.number)]
        if fresh.halted:
            self._consumer.pause(position)
        else:
            self._consumer.resume(position)
            self.seek(fresh)
