"""A worker: consume, count, commit. One process, one core, any number of partitions."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import redis
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from aggregator import kafka
from aggregator.clock import SYSTEM, Clock
from aggregator.deadletters import DeadLetters, DeadLettersUndelivered
from aggregator.errors import BrokerUnreachable, Fenced
from aggregator.ownership import Owned, take
from aggregator.settings import Settings
from aggregator.store import Store
from estimators import Metric
from estimators.durations import milliseconds

CONSUME_MESSAGES = 1_000
DEAD_LETTER_SECONDS = 10.0
FIRST_RETRY_SECONDS = 0.2
LAST_RETRY_SECONDS = 5.0
LEAVE_SECONDS = 20.0
LOOK_SECONDS = 10.0

T = TypeVar("T")
log = structlog.get_logger("dither.worker")


class Stopped(Exception):  # noqa: N818
    """The worker was asked to stop while it was waiting for Redis or Kafka to come back."""


class Worker:
    """Counts the partitions that the consumer group hands to it.

    Parameters
    ----------
    settings : Settings
    metrics : mapping of str to Metric
    store : Store
    name : str
        Shown as the owner of its partitions.
    clients : kafka.Clients, optional
        Those of the settings' cluster if left out.
    clock : Clock
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Mapping[str, Metric],
        store: Store,
        name: str,
        clients: kafka.Clients | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.settings, self.metrics, self.store, self.name = settings, metrics, store, name
        self.topic = settings.topics.reports
        self.owned: dict[int, Owned] = {}
        self._stopping = False  # no Event: its lock is not safe in a signal handler
        self._leave_by = float("inf")
        self._interval = milliseconds(settings.aggregate.commit_interval) / 1000
        self._clock = clock
        self._next_commit = clock.monotonic() + self._interval
        clients = clients or kafka.Clients.of(settings)
        self._consumer, self._asker = clients.consumer, clients.asker
        self._deadletters = DeadLetters(clients.producer, settings.topics.deadletters, clock)
        self._ask_topic_id = clients.topic_id
        self._topic_id = self._ask_topic_id()
        self._next_look = clock.monotonic() + LOOK_SECONDS

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
        try:
            while not self._stopping:
                self._step()
            self._commit_all()
        except Stopped:
            self.owned.clear()
            log.warning("stopped while waiting: uncommitted reports will be read again")
        finally:
            self._consumer.close()
            self._asker.close()
            log.info("stopped", worker=self.name)

    def _step(self) -> None:
        patience = max(0.0, self._next_commit - self._clock.monotonic())
        self._count(self._consumer.consume(CONSUME_MESSAGES, timeout=min(patience, 1.0)))
        unsaved = sum(owned.state.unsaved for owned in self.owned.values())
        full = unsaved >= self.settings.aggregate.commit_reports
        if full or self._clock.monotonic() >= self._next_commit:
            self._commit_all()
        self._retake_fenced()
        self._look_at_topic()

    # -- Counting -----------------------------------------------------------------------------

    def _count(self, messages: Sequence[Any]) -> None:
        by_partition: defaultdict[int, list[Any]] = defaultdict(list)
        for message in messages:
            if message.error() is None:
                by_partition[message.partition()].append(message)
            else:
                self._note(message.error(), message.partition())
        for number, batch in by_partition.items():
            owned = self.owned.get(number)
            if owned is None or not owned.is_counting:
                continue
            if owned.jumped(batch[0].offset(), batch[-1].offset()):
                self._seek(owned)
                continue
            for refusal in owned.state.count(batch):
                log.warning(
                    "refused",
                    partition=number,
                    offset=refusal.message.offset(),
                    reason=refusal.reason,
                    detail=refusal.detail,
                )
                self._deadletters.send(refusal)
                owned.measured = owned.measured.refused(refusal.reason)

    def _note(self, error: KafkaError, number: int | None) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET and number in self.owned:
            owned = self.owned[number]
            if owned.is_counting:
                self._retake(owned)
        elif error.fatal():
            raise KafkaException(error)
        elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT):
            log.warning("kafka", partition=number, error=error.str())

    # -- Committing ---------------------------------------------------------------------------

    def _commit_all(self) -> None:
        for owned in list(self.owned.values()):
            self._commit(owned)
        self._next_commit = self._clock.monotonic() + self._interval

    def _commit(self, owned: Owned) -> None:
        """Write a partition's sums and next offset; on a fence drop them, never fail."""
        if owned.is_fenced:
            return
        self._patiently(lambda: self._deadletters.flush(DEAD_LETTER_SECONDS))
        started = self._clock.monotonic()
        try:
            written = self._patiently(
                lambda: owned.commit(self.store, self._high(owned), self._clock)
            )
        except Fenced as fence:
            self._fenced(owned, fence)
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

    def _tell_kafka(self, owned: Owned) -> None:
        """Write Kafka's own committed offset, for lag tools only."""
        if owned.committed >= 0:
            try:
                position = TopicPartition(self.topic, owned.number, owned.committed)
                self._consumer.commit(offsets=[position], asynchronous=True)
            except KafkaException as error:
                log.debug("kafka commit", error=str(error))

    def _high(self, owned: Owned) -> int:
        marks = self._consumer.get_watermark_offsets(
            TopicPartition(self.topic, owned.number), cached=True
        )
        return max(marks[1], owned.state.next_offset) if marks else owned.state.next_offset

    def _patiently(self, action: Callable[[], T]) -> T:
        """Do something that needs Redis or Kafka, however long they are away."""
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                return action()
            except (redis.RedisError, DeadLettersUndelivered) as error:
                log.warning("waiting", error=str(error), again_in=delay)
                if self._clock.monotonic() > self._leave_by:
                    raise Stopped from error
                self._clock.sleep(delay)
                delay = min(2 * delay, LAST_RETRY_SECONDS)

    # -- Ownership ----------------------------------------------------------------------------

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= self._take_all([assigned.partition for assigned in partitions])
        for assigned in partitions:
            assigned.offset = self.owned[assigned.partition].state.next_offset
        self._consumer.incremental_assign(partitions)
        halted = [
            TopicPartition(self.topic, p.partition)
            for p in partitions
            if self.owned[p.partition].halted
        ]
        if halted:
            self._consumer.pause(halted)
        if partitions:
            log.info("assigned", partitions=[p.partition for p in partitions])

    def _take_all(self, numbers: list[int]) -> dict[int, Owned]:
        taken = {number: self._take(number) for number in numbers}
        while numbers and self._is_new_topic():
            taken = {number: self._take(number) for number in numbers}
        return taken

    def _take(self, number: int) -> Owned:
        owned = self._patiently(
            lambda: take(
                self.store,
                number,
                self.name,
                lambda: self._log_range(number),
                self._topic_id,
                self.metrics,
                self.settings.aggregate,
            )
        )
        if owned.halted:
            log.error("halted", partition=number, reason=owned.halted)
        return owned

    def _log_range(self, number: int) -> tuple[int, int]:
        partition = TopicPartition(self.topic, number)
        while True:
            try:
                low, high = self._asker.get_watermark_offsets(
                    partition, timeout=kafka.ANSWER_SECONDS
                )
            except KafkaException as error:
                log.warning("waiting", error=error.args[0].str(), partition=number)
                if self._stopping:
                    raise Stopped from error
                self._clock.sleep(FIRST_RETRY_SECONDS)
            else:
                return low, high

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for revoked in partitions:
            owned = self.owned.pop(revoked.partition, None)
            if owned is not None:
                self._commit(owned)
        self._consumer.incremental_unassign(partitions)
        if partitions:
            log.info("revoked", partitions=[p.partition for p in partitions])

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for lost in partitions:
            self.owned.pop(lost.partition, None)
        self._consumer.incremental_unassign(partitions)
        log.warning("lost", partitions=[p.partition for p in partitions])

    def _fenced(self, owned: Owned, fence: Fenced) -> None:
        log.warning("fenced", detail=str(fence), other_owner=fence.has_other_owner)
        if owned.number not in self.owned:
            return
        if fence.has_other_owner:
            owned.fence(self._clock.monotonic() + random.uniform(1, 2) * 2**owned.fences)  # noqa: S311
        else:
            self._retake(owned)

    def _is_new_topic(self) -> bool:
        """Whether the topic was deleted and created again since this was asked last."""
        before = self._topic_id
        with contextlib.suppress(BrokerUnreachable):
            self._topic_id = self._ask_topic_id() or before
        return self._topic_id != before

    def _look_at_topic(self) -> None:
        """Stop if the topic was made anew: Kafka's client goes on in it as if it were the same."""
        if self._clock.monotonic() < self._next_look:
            return
        self._next_look = self._clock.monotonic() + LOOK_SECONDS
        if self._is_new_topic():
            for owned in list(self.owned.values()):
                if not owned.is_fenced:
                    self._retake(owned)

    def _retake_fenced(self) -> None:
        """Take back what another owner took, unless the group has told us meanwhile to let go."""
        for owned in list(self.owned.values()):
            if owned.is_fenced and self._clock.monotonic() >= owned.retake_at:
                self._retake(owned)

    def _retake(self, owned: Owned) -> None:
        fresh = self._take_all([owned.number])[owned.number]
        fresh.fences = owned.fences + 1
        self.owned[owned.number] = fresh
        position = [TopicPartition(self.topic, owned.number)]
        if fresh.halted:
            self._consumer.pause(position)
        else:
            self._consumer.resume(position)
            self._seek(fresh)

    def _seek(self, owned: Owned) -> None:
        position = TopicPartition(self.topic, owned.number, owned.state.next_offset)
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            log.debug("seek", partition=owned.number, error=str(error))
            owned.unconfirm()
