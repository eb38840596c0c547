"""A worker: consume, count, commit. One process, one core, any number of partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import redis
import structlog
from confluent_kafka import KafkaError

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.config.live_metrics import UNUSABLE_FIELD, LiveMetrics, current
from aggregator.config.settings import Settings
from aggregator.counting.assigned_partition import WorkerContext
from aggregator.counting.assignment import Assignment
from aggregator.counting.backoff import TRANSIENT_ERRORS
from aggregator.counting.committer import Committer
from aggregator.counting.watchdog import Watchdog
from aggregator.errors import DitherError
from aggregator.kafka import worker_clients
from aggregator.kafka.obstacles import is_of_data
from aggregator.storage.store import Store
from aggregator.tracing import CommitTrace, Span, Tracer
from estimators import Metric
from estimators.durations import milliseconds
from producers.kafka.kafka_errors import describe_kafka_error, without_secrets

LEAVE_RETRY_SECONDS = 0.2
LEAVE_SECONDS = 20.0
OTHER_DEFINITIONS = frozenset({"unknown_metric", "wrong_revision"})
"""Before a message becomes a dead letter for these reasons, the definitions are reloaded."""
OUT_OF_LOG = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
"""Errors which mean that the log has changed: it is inspected before counting continues."""

log = structlog.get_logger("dither.worker")


class Worker:
    """Counts the partitions that the consumer group assigns to it.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The definitions; if they are :class:`LiveMetrics`, they may change while the worker runs.
    name : str
        The worker's name, shown as the owner of its partitions.
    clients : worker_clients.WorkerClients, optional
        By default the clients of the settings' cluster.
    tracer : Tracer, optional
        Records the spans of commits.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Mapping[str, Metric],
        store: Store,
        name: str,
        clients: worker_clients.WorkerClients | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer | None = None,
    ) -> None:
        self.metrics, self.store, self.name = metrics, store, name
        self.topic, self._settings = settings.topics.reports, settings.aggregate
        self._instance = str(settings.kafka.get(worker_clients.INSTANCE_PROPERTY, ""))
        self._stopping = False  # no Event: its lock is not safe in a signal handler
        self._leave_by = float("inf")
        self._interval = milliseconds(self._settings.commit_interval) / 1000
        self._clock = clock
        self._next_commit = clock.monotonic() + self._interval
        clients = clients or worker_clients.WorkerClients.of(settings)
        self._consumer, self._start_probe = clients.consumer, clients.probe
        limits = self._settings.stuck_after, self._settings.stuck_exit
        stuck_seconds, exit_seconds = (milliseconds(limit) / 1000 for limit in limits)
        self._watchdog = Watchdog(stuck_seconds, exit_seconds, self._report_stuck)
        self._trace = CommitTrace(tracer or Tracer(), self.topic)
        context = WorkerContext(settings, store, name, clients, self._watchdog, clock)
        self._committer = Committer(context, self._trace)
        self._assignment = Assignment(context, current(metrics))
        self.owned, self._backoff = self._assignment.owned, self._assignment.backoff

    def stop(self) -> None:
        """Ask the worker to drain, commit and leave; safe in a signal handler."""
        self._leave_by = self._clock.monotonic() + LEAVE_SECONDS
        self._stopping = True

    def trouble(self) -> str:
        """Return in a few words where the worker is stuck for good; "" if it is not."""
        return self._watchdog.trouble()

    def run(self) -> None:
        """Count until :meth:`stop`; then commit and leave the group."""
        self._assignment.subscribe(self._committer.commit_revoked)
        log.info("started", worker=self.name, topic=self.topic, metrics=len(self.metrics))
        with self._watchdog:
            try:
                while not self._stopping:
                    self._step()
                self._leave()
            except BaseException:
                self.owned.clear()  # else leaving would commit half-done work
                raise
            finally:
                self._watchdog.enter("leaving")
                self._assignment.close()
                log.info("stopped", worker=self.name)

    def _step(self) -> None:
        self._watchdog.enter("consuming")
        next_look = self._backoff.retry_at if self._backoff.is_waiting else self._next_commit
        patience = max(0.0, next_look - self._clock.monotonic())
        fetch = self._trace.begin("fetch")
        self._handle_events(worker_clients.gather(self._consumer, min(patience, 1.0)), fetch)
        self._assignment.seek_due()
        self._assignment.rejoin_if_idle()
        if self._backoff.is_due:
            self._sync()

    def _sync(self) -> None:
        """Do all that needs Redis; while it is unreachable, only poll to stay in the group."""
        try:
            self._assignment.acquire_pending()
            self._assignment.reacquire_fenced()
            is_time = self._clock.monotonic() >= self._next_commit
            if is_time or self._backoff.is_waiting or self._is_full():
                self._assignment.fence_beside_rival()
                self._commit_all()
                self._refresh_definitions()
                self._assignment.reacquire_fenced()
        except TRANSIENT_ERRORS as error:
            self._backoff.fail(error)
            self._assignment.pause(self.owned)
        else:
            if self._backoff.is_waiting:
                self._backoff.recover()
                self._committer.eviction.recheck()
                self._assignment.resume()

    def _commit_all(self) -> None:
        with self._trace.committing():
            self._committer.commit_all(list(self.owned.values()), self._assignment.metrics)
        now = self._clock.monotonic()
        self._next_commit = _next_commit_time(self._next_commit, now, self._interval)

    def _is_full(self) -> bool:
        """Return whether the uncommitted state is large enough to commit."""
        settings, partitions = self._settings, self.owned.values()
        return (
            sum(owned.state.unsaved for owned in partitions) >= settings.commit_reports
            or sum(owned.refused_bytes for owned in partitions) * worker_clients.QUEUE_SHARE
            >= settings.memory
            or any(owned.is_filled for owned in partitions)
        )

    def _leave(self) -> None:
        """Commit for the last time; messages that are not committed in time will be read again."""
        while True:
            try:
                self._commit_all()
            except TRANSIENT_ERRORS as error:
                self._backoff.fail(error)
            else:
                return
            if self._clock.monotonic() > self._leave_by:
                log.warning("stopped uncommitted", partitions=sorted(self.owned))  # read again
                self.owned.clear()
                return
            self._watchdog.enter("waiting to leave")
            self._clock.sleep(LEAVE_RETRY_SECONDS)

    def _report_stuck(self, step: str, seconds: float) -> None:
        with contextlib.suppress(redis.RedisError):
            self.store.registry.note_stuck(self.name, step, seconds, self._clock.now_ms())

    def _handle_events(self, events: Sequence[Any], fetch: Span) -> None:
        messages, ends, errors = worker_clients.sort_events(events)
        for event in errors:
            self._handle_error(event)
        if messages:
            self._trace.end_fetch(fetch, len(events) - len(errors))
        with self._trace.step("count", bool(messages)):
            for number, fetched in messages.items():
                if not self._hand_over(number, fetched):
                    ends.pop(number, None)
        for number, end in ends.items():
            if number in self.owned and self.owned[number].follows(end, end):
                self.owned[number].state.advance_to(end)

    def _hand_over(self, number: int, messages: Sequence[Any]) -> bool:
        """Give a partition its messages; return whether all were counted."""
        owned = self.owned.get(number)
        if owned is None or not owned.follows(messages[0].offset(), messages[-1].offset()):
            return False
        rejections_before = len(owned.rejections)
        is_counted = owned.take(messages, self._watchdog)
        rejections = owned.rejections[rejections_before:]
        if any(rejection.reason in OTHER_DEFINITIONS for rejection in rejections):
            self._refresh_definitions()
        if owned.trouble.is_blocked:
            self._assignment.pause([number])
        return is_counted and not owned.is_fenced

    def _refresh_definitions(self) -> None:
        """If the definitions changed, return to the last commit and count by the new ones."""
        if isinstance(self.metrics, LiveMetrics):
            self.metrics.refresh()
            for owned in self.owned.values():
                owned.facts[UNUSABLE_FIELD] = self.metrics.unusable
        if current(self.metrics) is self._assignment.metrics:
            return
        self._assignment.metrics = current(self.metrics)
        for owned in self.owned.values():
            if owned.is_counting or owned.excess:
                owned.refuse("")

    def _handle_error(self, message: Any) -> None:
        error, number = message.error(), message.partition()
        if error.code() in OUT_OF_LOG and number in self.owned:
            if self.owned[number].is_counting:
                self.owned[number].fence()
        elif error.fatal() or error.code() == KafkaError._FATAL:
            raise DitherError(_explain_end(without_secrets(error.str()), self._instance))
        elif number in self.owned and is_of_data(error, message.offset()):
            if self.owned[number].is_counting:
                self.owned[number].note_stall(message, self._start_probe)
        elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT):
            why = describe_kafka_error(error, message.topic())
            log.warning("kafka error", partition=number, error=why)


def _explain_end(detail: str, instance: str) -> str:
    """Return why Kafka's client has ended this worker, whose `group.instance.id` is `instance`."""
    remedy = "start the worker again"
    if instance and "group.instance.id" in detail:
        remedy = (
            f"another worker has kafka.group.instance.id = {instance!r}, too. Give each worker its "
            "own, or remove the setting"
        )
    return f"Kafka's client has ended this worker ({detail}): {remedy}"


def _next_commit_time(due: float, now: float, interval: float) -> float:
    """Return when to make the next commit, after the commit that was due at `due` is done.

    Commits follow the interval, but counting gets at least half of the time:

    >>> _next_commit_time(10.0, 10.2, 1.0), _next_commit_time(10.0, 10.9, 1.0)
    (11.0, 11.4)

    After an early commit, made because of much data, the next commit is an interval later:

    >>> _next_commit_time(10.0, 9.25, 1.0)
    10.25
    """
    return max(min(due, now) + interval, now + interval / 2)
