"""Schedules heartbeats, which close panes in quiet partitions.

A heartbeat moves a partition without reports of a metric to the event time of the other partitions.
If it is too early, delayed reports are refused as late, but no answer becomes wrong, because a pane
is final only when the committed log of every partition has closed it. docs/decisions/0019 has the
reasons.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.publishing.partition_activity import (
    CLOCK_QUERY_SECONDS,
    BrokerClocks,
    PartitionActivity,
)
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage.progress import PartitionProgress, TopicProgress
from aggregator.storage.store import Store
from estimators import Metric, SearchMetric

REPEAT_SECONDS = 5.0
"""The time until an undelivered or ineffective heartbeat is sent again; it doubles each time."""
MAX_REPEAT_SECONDS = 60.0
INTERRUPTION_SHARE = 0.5
"""If Kafka is interrupted for more than this share of the idle time, the idle time restarts."""

Sign = tuple[int, int]
"""A metric's reports in a partition: Kafka's timestamp of the last one, and their number."""


class Beat(NamedTuple):
    """A heartbeat to send, with its event time."""

    partition: int
    metric: Metric
    time_ms: int


@dataclasses.dataclass
class Sent:
    """A heartbeat that was sent.

    Attributes
    ----------
    time_ms : int
        The heartbeat's event time, in ms since the epoch.
    offset : int or None
        The heartbeat's offset; None until it is delivered.
    at, delivered_at : float
        When the heartbeat was sent and delivered, in monotonic seconds.
    patience : float
        The seconds after which an undelivered or ineffective heartbeat is sent again.
    """

    time_ms: int
    at: float
    patience: float = REPEAT_SECONDS
    offset: int | None = None
    delivered_at: float = 0.0

    def is_under_way(self, next_offset: int, activity: PartitionActivity) -> bool:
        """Return whether the heartbeat is in the log, uncounted; False if the log was replaced."""
        if self.offset is None or next_offset > self.offset:
            return False
        return activity.asked_at <= self.delivered_at or activity.end > self.offset


class HeartbeatSchedule:
    """Schedules the heartbeats of all metrics.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics; those with rounds, or held open, have no panes to close.
    idle_ms : int
        A partition without reports of a metric for this time is quiet. The time of interruptions of
        Kafka does not count.
    clock : Clock
        Only its monotonic seconds are used.
    """

    def __init__(
        self, store: Store, metrics: Mapping[str, Metric], idle_ms: int, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._store, self._idle, self._clock = store, idle_ms / 1000, clock
        self._metrics = {
            metric_key(name, metric.revision): metric
            for name, metric in metrics.items()
            if not (isinstance(metric, SearchMetric) or metric.hold_open)
        }
        self._activity: defaultdict[int, PartitionActivity] = defaultdict(PartitionActivity)
        self._brokers = BrokerClocks()
        self._heard: dict[tuple[str, int], tuple[Sign, float]] = {}
        self._sent: dict[tuple[str, int], Sent] = {}
        self._last: dict[str, tuple[object, list[int]]] = {}

    def note_log_ends(self, asked_at: float, ends: Mapping[int, int | None]) -> None:
        """Record each partition's next offset at `asked_at`, in s; None if Kafka did not answer."""
        for number, end in ends.items():
            self._activity[number].note_log_end(asked_at, end, self._idle * INTERRUPTION_SHARE)

    def note_delivery(self, beat: Beat, offset: int | None, timestamp: int = NO_TIME) -> None:
        """Record the delivery of a heartbeat.

        `beat`: the heartbeat; `offset`: its offset; None if it was not delivered; `timestamp`: its
        timestamp by the broker's clock, in ms since the epoch.
        """
        if offset is None:
            self._brokers.asked_at = float("-inf")
            return
        now = self._clock.monotonic()
        self._brokers.note_timestamp(beat.partition, timestamp, now)
        heartbeat = self._sent.get(
            (metric_key(beat.metric.name, beat.metric.revision), beat.partition)
        )
        if heartbeat is not None and heartbeat.time_ms == beat.time_ms:
            heartbeat.offset, heartbeat.delivered_at = offset, now

    def heartbeats(self, overview: TopicProgress, partitions: int) -> Iterator[Beat]:
        """Yield the due heartbeats; none while a partition has no intact state."""
        now = self._clock.monotonic()
        progresses = overview.intact_partitions(partitions)
        for number, progress in enumerate(progresses):
            self._activity[number].note_counted(progress.next_offset)
        if progresses:
            for key, metric in self._metrics.items():
                yield from self._of_metric(key, metric, progresses, now)

    def _of_metric(
        self, key: str, metric: Metric, progresses: list[PartitionProgress], now: float
    ) -> Iterator[Beat]:
        watermarks = [progress.watermarks.get(key, Watermark()) for progress in progresses]
        if all(watermark.arrived == NO_TIME for watermark in watermarks):
            return
        counted = [progress.counts.get(f"accepted:{metric.name}", 0) for progress in progresses]
        signs = list(zip((watermark.arrived for watermark in watermarks), counted, strict=True))
        quiet = {
            number
            for number, sign in enumerate(signs)
            if self._is_quiet(key, number, sign, now) and not progresses[number].owner.get("halted")
        }
        starts = self._last_panes(key, metric, watermarks, signs, quiet)
        ends = [start + metric.pane_ms for start in starts]
        is_all_quiet = len(quiet) == len(watermarks)
        latest = max(watermark.latest for watermark in watermarks) if is_all_quiet else NO_TIME
        for number in sorted(quiet):
            closing = [end + metric.lateness_ms for end in ends if watermarks[number].closed < end]
            if closing:
                goal = self._heartbeat_time(number, closing, latest, now)
                if goal is not None and self._is_due(key, number, goal, progresses[number], now):
                    yield Beat(number, metric, goal)

    def _is_quiet(self, key: str, number: int, sign: Sign, now: float) -> bool:
        previous_sign, heard_at = self._heard.get((key, number), (None, now))
        if previous_sign != sign:
            self._heard[key, number] = sign, now
            self._brokers.note_any_timestamp(sign[0], now)
            return False
        return self._activity[number].is_quiet(heard_at, self._idle)

    def _last_panes(
        self,
        key: str,
        metric: Metric,
        watermarks: list[Watermark],
        signs: list[Sign],
        quiet: set[int],
    ) -> list[int]:
        """Return the start of the last pane to close, and of the pane before it; [] for none.

        Quiet partitions must close the panes that busy partitions have closed. If all partitions
        are quiet, they must close the last pane with reports; until its end has passed, the pane
        before it.
        """
        busy = [
            watermark.closed for number, watermark in enumerate(watermarks) if number not in quiet
        ]
        edge = min(busy) // metric.pane_ms * metric.pane_ms if busy else None
        min_closed = min((watermarks[number].closed for number in quiet), default=None)
        if min_closed is None or (edge is not None and min_closed >= edge):
            return []
        facts = (edge, signs)
        known_facts, starts = self._last.get(key, (None, []))
        if known_facts != facts:
            starts, limit = [], None if edge is None else edge - metric.pane_ms
            while len(starts) < 2:
                start = self._store.panes.latest_start(key, range(len(watermarks)), limit)
                if start is None:
                    break
                starts.append(start)
                limit = start - metric.pane_ms
            self._last[key] = facts, starts
        return starts

    def _heartbeat_time(
        self, number: int, closing: list[int], latest: int, now: float
    ) -> int | None:
        """Return the event time of the heartbeat to a partition; None if it must wait.

        The event time is the latest time in `closing` (descending) that the broker's clock has
        passed, as the partition accepts no later event time. If no such time has passed, a
        heartbeat with the event time already reached (`latest`) is sent to learn the broker's
        clock.
        """
        clock_ms = self._brokers.earliest_ms(number, now)
        passed = next((close for close in closing if clock_ms >= close), None)
        if passed is not None:
            return passed
        if latest == NO_TIME or now < self._brokers.asked_at + CLOCK_QUERY_SECONDS:
            return None
        self._brokers.asked_at = now
        return max(1, latest)  # 0 stands for Kafka's timestamp

    def _is_due(
        self, key: str, number: int, goal: int, progress: PartitionProgress, now: float
    ) -> bool:
        """Return whether a heartbeat is due; if so, record it as sent."""
        heartbeat, patience = self._sent.get((key, number)), REPEAT_SECONDS
        if heartbeat is not None:
            if heartbeat.is_under_way(progress.next_offset, self._activity[number]):
                return False
            if heartbeat.time_ms >= goal or heartbeat.offset is None:
                if now < heartbeat.at + heartbeat.patience:
                    return False
                patience = min(2 * heartbeat.patience, MAX_REPEAT_SECONDS)
        self._sent[key, number] = Sent(goal, now, patience)
        return True
