"""A worker: consume, count, commit. One process, one core, any number of partitions."""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from aggregator.clock import SYSTEM, Clock
from aggregator.config.live_metrics import UNUSABLE, LiveMetrics, current
from aggregator.config.settings import Settings
from aggregator.counting.assignment import AssignedPartition, take
from aggregator.counting.backoff import AWAY, Backoff
from aggregator.counting.isolation import Careful
from aggregator.counting.log_questions import Asker
from aggregator.counting.watchdog import Watchdog
from aggregator.dead_letters.writer import DeadLetters
from aggregator.errors import CommitTooLarge, Fenced, StateUnreadable
from aggregator.kafka import worker_clients
from aggregator.kafka.obstacles import is_of_data
from aggregator.state.definition_history import Definitions, rules
from aggregator.storage.eviction import EvictionWatch
from aggregator.storage.store import Store
from estimators import Metric
from estimators.durations import milliseconds
from producers.kafka.kafka_errors import explained

DEAD_LETTER_SECONDS = 10.0
LEAVE_RETRY_SECONDS = 0.2
LEAVE_SECONDS = 20.0
OTHER_DEFINITIONS = frozenset({"unknown_metric", "wrong_revision"})
"""Reasons to look, before a message becomes a dead letter, whether the definitions have changed."""
LOOK_AGAIN_SECONDS = 15.0
"""At a partition whose stored state could not be read: somebody may have mended it."""

KEEP_SECONDS = 30.0
"""The definitions in force are written again so often: somebody may have deleted them."""

OUT_OF_LOG = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
"""The log is not what it was: to be looked at again before anything more is counted."""

SLICE_MESSAGES, MANY_PANES = 16_000, 10_000
"""Messages are counted in slices; beyond so many changed panes a commit comes before the next one.

Three panes a message (its own, an hour and a day) of 15 words each then fit into a commit.
"""
CHANGED_SHARE = 8
"""What changed takes an eighth of `aggregate.memory` at most before a commit comes.

One slice can add as much to it again.
"""

log = structlog.get_logger("dither.worker")


class Worker:
    """Counts the partitions that the consumer group hands to it.

    Parameters
    ----------
    settings : Settings
    metrics : mapping of str to Metric
        Those of :class:`LiveMetrics` may change while it runs.
    store : Store
    name : str
        Shown as the owner of its partitions.
    clients : worker_clients.Clients, optional
        Those of the settings' cluster if left out.
    clock : Clock
    end : callable
        Ends the process if the worker is stuck for good.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Mapping[str, Metric],
        store: Store,
        name: str,
        clients: worker_clients.Clients | None = None,
        clock: Clock = SYSTEM,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self.settings, self.metrics, self.store, self.name = settings, metrics, store, name
        self._defined = current(metrics)
        self._slice = slice_messages(self._defined, settings.aggregate.memory)
        self.topic = settings.topics.reports
        self.owned: dict[int, AssignedPartition] = {}
        self._untaken: set[int] = set()  # assigned by the group, while the store was away
        self._stopping = False  # no Event: its lock is not safe in a signal handler
        self._leave_by = float("inf")
        self._interval = milliseconds(settings.aggregate.commit_interval) / 1000
        self._clock = clock
        self._next_commit = clock.monotonic() + self._interval
        self._keep_at = float("-inf")
        clients = clients or worker_clients.Clients.of(settings)
        self._consumer = clients.consumer
        self._asker = Asker(clients.asker, settings, clock.monotonic)
        self._deadletters = DeadLetters(clients.producer, settings.topics.deadletters, clock)
        self._topic_id, self._count_partitions = clients.topic_id, clients.partitions
        self._compaction = clients.compaction
        self._eviction = EvictionWatch(store.client, clock.monotonic)
        self._careful = Careful(settings.aggregate, clock, clients.probe)
        self._outage = Backoff(clock)
        after, end_after = (
            milliseconds(text) / 1000
            for text in (settings.aggregate.stuck_after, settings.aggregate.stuck_exit)
        )
        self._watchdog = Watchdog(after, end_after, self._tell_stuck, end)

    def stop(self) -> None:
        """Ask the worker to drain, commit and leave; safe in a signal handler."""
        self._leave_by = self._clock.monotonic() + LEAVE_SECONDS
        self._stopping = True

    def run(self) -> None:
        """Count until :meth:`stop`; then commit what was counted and leave the group."""
        self._consumer.subscribe(
            [self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        log.info("started", worker=self.name, topic=self.topic, metrics=len(self.metrics))
        with self._watchdog:
            try:
                while not self._stopping:
                    self._step()
                self._leave()
            except BaseException:
                self.owned.clear()  # leaving commits what is owned, and this may be half done
                raise
            finally:
                self._watchdog.at("leaving")
                self._consumer.close()
                self._asker.close()
                log.info("stopped", worker=self.name)

    def _step(self) -> None:
        self._watchdog.at("consuming")
        next_look = self._outage.retry_at if self._outage.is_on else self._next_commit
        patience = max(0.0, next_look - self._clock.monotonic())
        self._count(worker_clients.gather(self._consumer, min(patience, 1.0)))
        self._seek_again()
        if self._outage.is_due:
            self._tend()

    def _tend(self) -> None:
        """Do what needs Redis; while that is away, only listen to the group."""
        try:
            if self._untaken:
                self._take_untaken()
            self._retake_fenced()
            is_time = self._clock.monotonic() >= self._next_commit
            if is_time or self._outage.is_on or self._is_full():
                self._commit_all()
                self._refresh_definitions()
                self._retake_fenced()
        except AWAY as error:
            self._outage.failed(error)
            self._consumer.pause(self._positions())
        else:
            if self._outage.is_on:
                self._outage.passed()
                self._eviction.look_again()
                self._go_on()

    def _is_full(self) -> bool:
        """Whether what was counted, or refused, since the last commit should be saved."""
        aggregate, every = self.settings.aggregate, self.owned.values()
        return (
            sum(owned.state.unsaved for owned in every) >= aggregate.commit_reports
            or sum(owned.refused_bytes for owned in every) * worker_clients.QUEUE_SHARE
            >= aggregate.memory
            or any(self._is_filled(owned) for owned in every)
        )

    def _is_filled(self, owned: AssignedPartition) -> bool:
        """Whether what changed in a partition is to be committed before more is counted."""
        limit = self.settings.aggregate.memory // CHANGED_SHARE
        return owned.state.has_changed(MANY_PANES) or owned.state.changed_bytes > limit

    def _go_on(self) -> None:
        """Fetch again, from where counting stands, what was paused while Redis was away."""
        for owned in self.owned.values():
            if owned.is_counting:
                self._consumer.resume([TopicPartition(self.topic, owned.number)])
                self._seek(owned)

    def _positions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in self.owned]

    def _leave(self) -> None:
        """Commit for the last time; what cannot be committed in time will be read again."""
        while True:
            try:
                self._commit_all()
            except AWAY as error:
                self._outage.failed(error)
            else:
                return
            if self._clock.monotonic() > self._leave_by:
                self.owned.clear()
                log.warning("stopped while waiting: uncommitted reports will be read again")
                return
            self._watchdog.at("waiting to leave")
            self._clock.sleep(LEAVE_RETRY_SECONDS)

    def _tell_stuck(self, step: str, seconds: float) -> None:
        with contextlib.suppress(redis.RedisError):
            self.store.registry.tell_stuck(self.name, step, seconds, self._clock.now_ms())

    # -- Counting -----------------------------------------------------------------------------

    def _count(self, events: Sequence[Any]) -> None:
        errors = [event for event in events if event.error() is not None]
        for event in errors:
            self._note(event)
        ends = worker_clients.ends(events) if errors else {}
        messages = [event for event in events if event.error() is None] if errors else events
        for number, batch in worker_clients.by_partition(messages).items():
            if not self._follows(number, batch[0].offset(), batch[-1].offset()):
                ends.pop(number, None)
                continue
            if not self._count_batch(self.owned[number], batch):
                ends.pop(number, None)
        for number, end in ends.items():
            if self._follows(number, end, end):
                self.owned[number].state.reach(end)

    def _count_batch(self, owned: AssignedPartition, batch: Sequence[Any]) -> bool:
        """Count what came of a partition; return whether all of it was counted.

        What is left is fetched again, once the panes that changed so far are committed.
        """
        for first in range(0, len(batch), self._slice):
            if self._is_filled(owned):
                self._seek(owned)
                return False
            part = batch[first : first + self._slice]
            self._watchdog.at("counting", owned.number, part[0].offset())
            known = len(owned.refusals)
            is_counted = self._careful.count(owned, part)
            if any(refusal.reason in OTHER_DEFINITIONS for refusal in owned.refusals[known:]):
                self._refresh_definitions()
            if not is_counted and owned.trouble.is_wall:
                self._consumer.pause([TopicPartition(self.topic, owned.number)])
            if not is_counted or owned.is_fenced:
                return False
        return True

    def _refresh_definitions(self) -> None:
        """Where the definitions have changed, count on from the last commit by the new ones."""
        if isinstance(self.metrics, LiveMetrics):
            self.metrics.refresh()
            for owned in self.owned.values():
                owned.facts[UNUSABLE] = self.metrics.unusable
        if current(self.metrics) is self._defined:
            return
        self._defined = current(self.metrics)
        self._slice = slice_messages(self._defined, self.settings.aggregate.memory)
        for owned in self.owned.values():
            if owned.is_counting or owned.excess:
                owned.excess = ""
                owned.fence(self._clock.monotonic())

    def _follows(self, number: int, first: int, last: int) -> bool:
        """Whether what came of a partition may be counted; it is sought again if it jumped."""
        owned = self.owned.get(number)
        if owned is None or not owned.is_counting:
            return False
        if owned.jumped(first, last):
            self._seek(owned)
            return False
        return True

    def _note(self, message: Any) -> None:
        error, number = message.error(), message.partition()
        if error.code() in OUT_OF_LOG and number in self.owned:
            owned = self.owned[number]
            if owned.is_counting:
                owned.fence(self._clock.monotonic())
        elif error.fatal():
            raise KafkaException(error)
        elif number in self.owned and is_of_data(error, message.offset()):
            owned = self.owned[number]
            if owned.is_counting and self._careful.stalled(owned, message):
                self._seek(owned)
        elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT):
            log.warning("kafka", partition=number, error=explained(error))

    # -- Committing ---------------------------------------------------------------------------

    def _commit_all(self) -> None:
        self._bound_memory()
        self._look_at_topic()
        self._look_at_store()
        self._learn_partitions()
        for owned in list(self.owned.values()):
            self._commit(owned)
        self._keep_definitions()
        now = self._clock.monotonic()
        self._next_commit = _next_beat(self._next_commit, now, self._interval)

    def _bound_memory(self) -> None:
        """Halt the partition with the largest open panes if all together are too large."""
        sizes = {number: owned.open_bytes for number, owned in self.owned.items()}
        allowed = (
            self.settings.aggregate.memory
            * (worker_clients.QUEUE_SHARE - 1)
            // worker_clients.QUEUE_SHARE
        )
        if (total := sum(sizes.values())) > allowed:
            largest = self.owned[max(sizes, key=lambda number: sizes[number])]
            if largest.is_counting:
                largest.excess = (
                    f"the open panes of this worker take {total >> 20} MB, and aggregate.memory "
                    f"leaves {allowed >> 20} MB for them. Start more workers, let devices send "
                    "larger batches or the metric have narrower panes or a shorter lateness, or "
                    "allow more memory; then restart the workers"
                )
                largest.fence(self._clock.monotonic())

    def _commit(self, owned: AssignedPartition) -> None:
        """Write a partition's sums and next offset; on a fence drop them.

        Raises
        ------
        AWAY
            If Redis, or the dead-letter topic, does not answer: nothing is lost, try again.
        """
        if owned.is_fenced:
            return
        if not self._send_deadletters(owned):
            return
        self._watchdog.at("committing", owned.number, owned.state.next_offset)
        started = self._clock.monotonic()
        try:
            written = owned.commit(self.store, self._high(owned), self._clock)
        except Fenced as fence:
            self._fenced(owned, fence)
            return
        except (CommitTooLarge, StateUnreadable) as error:  # halted when it is taken again
            if isinstance(error, CommitTooLarge):
                owned.excess = str(error)
            owned.fence(self._clock.monotonic())
            return
        seconds = self._clock.monotonic() - started
        owned.measured = owned.measured.committed(seconds, written)
        log.debug(
            "committed",
            partition=owned.number,
            next=owned.committed,
            bytes=written,
            seconds=round(seconds, 4),
        )
        self._tell_kafka(owned)

    def _keep_definitions(self) -> None:
        """Have the store keep the definitions in force, for `dither verify`."""
        if not self.owned or self._clock.monotonic() < self._keep_at:
            return
        definitions = Definitions(self._defined, rules(self.settings.aggregate))
        try:
            self.store.registry.keep_definitions(definitions.digest, definitions.encode())
        except StateUnreadable as error:  # counting goes on
            log.warning("definitions not kept", error=str(error))
        self._keep_at = self._clock.monotonic() + KEEP_SECONDS

    def _send_deadletters(self, owned: AssignedPartition) -> bool:
        """Send what was refused since the last commit, and wait until it is safe.

        Returns whether all of it could be sent: else the partition is fenced.
        """
        if owned.refusals:
            first, reasons = owned.refusals[0], Counter(r.reason for r in owned.refusals)
            log.warning(
                "refused",
                partition=owned.number,
                reasons=dict(reasons),
                first_offset=first.message.offset(),
                detail=f"{first.reason}: {first.detail}",
            )
            for refusal in owned.refusals:
                try:
                    self._deadletters.send(refusal)
                except Exception as error:
                    self._careful.not_put_aside(owned, refusal, error)
                    return False
            owned.refusals, owned.refused_bytes = [], 0
        self._watchdog.at("sending dead letters", owned.number)
        self._deadletters.flush(DEAD_LETTER_SECONDS)
        return True

    def _tell_kafka(self, owned: AssignedPartition) -> None:
        """Write Kafka's own committed offset: for lag tools, and should Redis forget."""
        if owned.committed >= 0 and not owned.halted:
            try:
                (known,) = owned.remembered
                position = TopicPartition(self.topic, owned.number, known.next, known.metadata)
                self._consumer.commit(offsets=[position], asynchronous=True)
            except KafkaException as error:
                log.debug("kafka commit", error=str(error))

    def _high(self, owned: AssignedPartition) -> int:
        marks = self._consumer.get_watermark_offsets(
            TopicPartition(self.topic, owned.number), cached=True
        )
        return max(marks[1], owned.position) if marks else owned.position

    def _learn_partitions(self) -> None:
        """Note how many partitions the topic has: who reads must know whether all are there."""
        if partitions := self._count_partitions():
            for owned in self.owned.values():
                owned.facts["partitions"] = partitions

    # -- Ownership ----------------------------------------------------------------------------

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Take partitions over; those for which Redis does not answer now, as soon as it does."""
        for assigned in partitions:
            self._untaken.add(assigned.partition)
        try:
            self._take_untaken()
        except AWAY as error:
            self._outage.failed(error)
        if partitions:
            log.info("assigned", partitions=[p.partition for p in partitions])

    def _take_untaken(self) -> None:
        """Take over what the group has assigned, and have it fetched from where counting stands."""
        positions, failure = [], None
        for number in sorted(self._untaken):
            try:
                owned = self._take(number)
            except AWAY as error:
                failure = error
                break
            self.owned[number] = owned
            positions.append(TopicPartition(self.topic, number, owned.position))
        self._untaken -= {position.partition for position in positions}
        self._consumer.incremental_assign(positions)
        halted = [p for p in positions if self.owned[p.partition].halted]
        if halted:
            self._consumer.pause(halted)
        counting = [p for p in positions if p not in halted]
        if counting:  # paused when it was taken away, a partition comes back paused
            self._consumer.resume(counting)
        if failure is not None:
            raise failure

    def _take(self, number: int) -> AssignedPartition:
        self._watchdog.at("taking over", number)
        known = self.owned.get(number)
        owned = take(
            self.store,
            number,
            self.name,
            self._asker.log(number, known.remembered if known else ()),
            self._topic_id(),
            self._defined,
            self.settings.aggregate,
        )
        if known is not None and known.excess:
            owned.excess, owned.halted = known.excess, owned.halted or known.excess
        if owned.halted and (known is None or known.halted != owned.halted):
            log.error("halted", partition=number, reason=owned.halted)
        if owned.is_unreadable:
            owned.fence(self._clock.monotonic() + LOOK_AGAIN_SECONDS)
        return owned

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [p.partition for p in partitions]
        fetched = [p for p in partitions if p.partition not in self._untaken]
        try:
            if not self.owned.keys().isdisjoint(numbers):
                self._look_at_topic()
            for owned in [self.owned[n] for n in numbers if n in self.owned]:
                self._commit(owned)
        except AWAY as error:
            self._outage.failed(error)
            log.warning("left uncommitted, to be read again", partitions=numbers)
        for number in numbers:
            self._untaken.discard(number)
            self.owned.pop(number, None)
        self._consumer.incremental_unassign(fetched)
        if partitions:
            log.info("revoked", partitions=numbers)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        fetched = [p for p in partitions if p.partition not in self._untaken]
        for lost in partitions:
            self._untaken.discard(lost.partition)
            self.owned.pop(lost.partition, None)
        self._consumer.incremental_unassign(fetched)
        log.warning("lost", partitions=[p.partition for p in partitions])

    def _fenced(self, owned: AssignedPartition, fence: Fenced) -> None:
        log.warning("fenced", detail=str(fence), other_owner=fence.has_other_owner)
        if self.owned.get(owned.number) is not owned:
            return
        if fence.has_other_owner:
            owned.fence(self._clock.monotonic() + random.uniform(1, 2) * 2**owned.fences)  # noqa: S311
        else:
            owned.fence(self._clock.monotonic())

    def _look_at_topic(self) -> None:
        """Fence what was counted if the topic was made anew, before it is committed.

        Kafka's client goes on in the new topic as if it were the same: whatever it brought was
        brought before this look. A topic that is compacted by now halts its partitions.
        """
        if not any(owned.is_counting for owned in self.owned.values()):
            return
        identity, compacted = self._topic_id(), self._compaction()
        for owned in self.owned.values():
            if compacted and owned.is_counting:
                owned.excess = compacted
                owned.fence(self._clock.monotonic())
            known = owned.facts.get("topic_id")
            if known and identity and known != identity and owned.is_counting:
                owned.fence(self._clock.monotonic())

    def _look_at_store(self) -> None:
        """Halt what is counted if Redis may evict it by now."""
        counting = [owned for owned in self.owned.values() if owned.is_counting]
        if counting and (why := self._eviction()):
            for owned in counting:
                owned.excess = why
                owned.fence(self._clock.monotonic())

    def _retake_fenced(self) -> None:
        """Take back what another owner took, unless the group has told us meanwhile to let go."""
        for owned in list(self.owned.values()):
            if owned.is_fenced and self._clock.monotonic() >= owned.retake_at:
                self._retake(owned)

    def _retake(self, owned: AssignedPartition) -> None:
        fresh = self._take(owned.number)
        fresh.fences, fresh.trouble = owned.fences + 1, owned.trouble
        self.owned[owned.number] = fresh
        position = [TopicPartition(self.topic, owned.number)]
        if fresh.halted:
            self._consumer.pause(position)
        else:
            self._consumer.resume(position)
            self._seek(fresh)

    def _seek(self, owned: AssignedPartition) -> None:
        position = TopicPartition(self.topic, owned.number, owned.position)
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            log.debug("seek", partition=owned.number, error=str(error))
            owned.unconfirm()
            owned.must_seek = True
        else:
            owned.must_seek = False

    def _seek_again(self) -> None:
        """Repeat what failed: an idle partition has no message that would show the wrong place."""
        for owned in self.owned.values():
            if owned.must_seek and owned.is_counting:
                self._seek(owned)


def _next_beat(due: float, now: float, interval: float) -> float:
    """Return when to commit again, after a commit that was due then and is done now.

    Examples
    --------
    On the beat, whatever a commit takes, but counting has half of the time at least:

    >>> _next_beat(10.0, 10.2, 1.0), _next_beat(10.0, 10.9, 1.0)
    (11.0, 11.4)

    After one that came early, because much had been counted, an interval later:

    >>> _next_beat(10.0, 9.25, 1.0)
    10.25
    """
    return max(min(due, now) + interval, now + interval / 2)


def slice_messages(metrics: Mapping[str, Metric], memory: int) -> int:
    """Return how many messages are counted between two looks at what they changed.

    Each may open a pane of the metric that has the largest ones.

    Examples
    --------
    >>> slice_messages({}, 2**31)
    16000
    """
    largest = max((metric.zero().nbytes for metric in metrics.values()), default=1)
    return max(1, min(SLICE_MESSAGES, memory // CHANGED_SHARE // largest))
