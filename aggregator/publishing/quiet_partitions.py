"""Decides which partitions get heartbeats, which close the panes of quiet ones.

A heartbeat tells a partition without reports of a metric how far event time has come elsewhere. If
it is sent too early, delayed reports are refused as late, but no answer becomes wrong: a pane is
final when the committed log of every partition has closed it. docs/decisions/0019 says why.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from aggregator.clock import SYSTEM, Clock
from aggregator.publishing.partition_activity import (
    ASK_AGAIN_SECONDS,
    BrokerClocks,
    PartitionActivity,
)
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage.progress import PartitionProgress, TopicProgress
from aggregator.storage.store import Store
from estimators import Metric, SearchMetric

REPEAT_SECONDS = 5.0
"""After so long, then twice that, what was not delivered or had no effect is sent again."""
LAST_REPEAT_SECONDS = 60.0
SHORT = 0.5
"""After so much of the idle time without an answer of Kafka, it begins anew."""

Sign = tuple[int, int]
"""Of life: Kafka's timestamp of the last counted report in a partition, and how many there are."""


class Beat(NamedTuple):
    """A heartbeat to be sent: to which partition, of which metric, for which event time."""

    partition: int
    metric: Metric
    time_ms: int


@dataclasses.dataclass
class Sent:
    """A heartbeat that was sent.

    Attributes
    ----------
    offset : int or None
        Where it is in the log; None: that is not known yet.
    at, delivered_at : float
        Monotonic seconds.
    patience : float
        Seconds until it is sent again if it was not delivered, or had no effect.
    """

    time_ms: int
    at: float
    patience: float = REPEAT_SECONDS
    offset: int | None = None
    delivered_at: float = 0.0

    def is_under_way(self, next_offset: int, activity: PartitionActivity) -> bool:
        """Return whether it is in the log and not counted yet: it will be, so nothing is missing.

        A log that ends before it is another one.
        """
        if self.offset is None or next_offset > self.offset:
            return False
        return activity.asked_at <= self.delivered_at or activity.end > self.offset


class Closing:
    """Decides which heartbeats are to be sent.

    Parameters
    ----------
    store : Store
    metrics : mapping of str to Metric
        Those that are asked in rounds, or held open, have no panes to be closed.
    idle_ms : int
        A partition is quiet for a metric that got no report of it for so long, while Kafka told the
        end of its log. Time in which it did not does not count.
    clock : Clock
        Only its monotonic seconds are used.
    """

    def __init__(
        self, store: Store, metrics: Mapping[str, Metric], idle_ms: int, clock: Clock = SYSTEM
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
        """Note the ends of partitions' logs; None: Kafka did not say.

        Parameters
        ----------
        asked_at : float
            When they were asked for, in monotonic seconds.
        ends : mapping of int to int or None
            The next offset, by partition.
        """
        for number, end in ends.items():
            self._activity[number].note_log_ends(asked_at, end, self._idle * SHORT)

    def delivered(self, beat: Beat, offset: int | None, timestamp: int = NO_TIME) -> None:
        """Note where a heartbeat is in the log, and its timestamp; None: it was not delivered.

        Parameters
        ----------
        beat : Beat
            The heartbeat.
        offset : int, optional
            Where it is.
        timestamp : int
            In ms since the epoch, by the broker's clock.
        """
        if offset is None:
            self._brokers.asked_at = float("-inf")
            return
        now = self._clock.monotonic()
        self._brokers.note_timestamp(beat.partition, timestamp, now)
        sent = self._sent.get((metric_key(beat.metric.name, beat.metric.revision), beat.partition))
        if sent is not None and sent.time_ms == beat.time_ms:
            sent.offset, sent.delivered_at = offset, now

    def heartbeats(self, overview: TopicProgress, partitions: int) -> Iterator[Beat]:
        """Yield the heartbeats that are to be sent now; none while a partition is not counted.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the topic has.
        """
        now = self._clock.monotonic()
        found = overview.intact_partitions(partitions)
        for number, progress in enumerate(found):
            self._activity[number].counted(progress.next_offset)
        if found:
            for key, metric in self._metrics.items():
                yield from self._of_metric(key, metric, found, now)

    def _of_metric(
        self, key: str, metric: Metric, found: list[PartitionProgress], now: float
    ) -> Iterator[Beat]:
        marks = [progress.watermarks.get(key, Watermark()) for progress in found]
        if all(mark.arrived == NO_TIME for mark in marks):
            return
        counted = [one.counts.get(f"accepted:{metric.name}", 0) for one in found]
        signs = list(zip((mark.arrived for mark in marks), counted, strict=True))
        quiet = {
            number
            for number, sign in enumerate(signs)
            if self._is_quiet(key, number, sign, now) and not found[number].owner.get("halted")
        }
        starts = self._last_panes(key, metric, marks, signs, quiet)
        every = len(quiet) == len(marks)
        latest = max(mark.latest for mark in marks) if every else NO_TIME
        for number in sorted(quiet):
            open_ends = [
                end for start in starts if marks[number].closed < (end := start + metric.pane_ms)
            ]
            if open_ends:
                closing = [end + metric.lateness_ms for end in open_ends]
                goal = self._goal(number, closing, latest, now)
                if goal is not None and self._is_due(key, number, goal, found[number], now):
                    yield Beat(number, metric, goal)

    def _is_quiet(self, key: str, number: int, sign: Sign, now: float) -> bool:
        known, heard_at = self._heard.get((key, number), (None, now))
        if known != sign:
            self._heard[key, number] = sign, now
            self._brokers.seen(sign[0], now)
            return False
        return self._activity[number].is_quiet(heard_at, self._idle)

    def _last_panes(
        self, key: str, metric: Metric, marks: list[Watermark], signs: list[Sign], quiet: set[int]
    ) -> list[int]:
        """Return where the last pane begins that is to be closed, then the one before it.

        Where reports come in, a partition closes its panes by itself: quiet ones follow. Where all
        are quiet, it is the last pane there is; while that is not over, those before it are closed.
        """
        busy = [mark.closed for number, mark in enumerate(marks) if number not in quiet]
        edge = min(busy) // metric.pane_ms * metric.pane_ms if busy else None
        least = min((marks[number].closed for number in quiet), default=None)
        if least is None or (edge is not None and least >= edge):
            return []
        facts = (edge, signs)
        known, starts = self._last.get(key, (None, []))
        if known != facts:
            starts, before = [], None if edge is None else edge - metric.pane_ms
            while len(starts) < 2:
                start = self._store.panes.latest_start(key, range(len(marks)), before)
                if start is None:
                    break
                starts.append(start)
                before = start - metric.pane_ms
            self._last[key] = facts, starts
        return starts

    def _goal(self, number: int, closing: list[int], latest: int, now: float) -> int | None:
        """Return the event time of a partition's heartbeat; None: it is to wait.

        It closes as much as it can of `closing`, the latest first. The partition takes no event
        time beyond its broker's clock. Where that may not have come so far, a heartbeat for what
        was reached already (`latest`) tells what time it is there.
        """
        reached = self._brokers.at_least(number, now)
        over = next((close for close in closing if reached >= close), None)
        if over is not None:
            return over
        if latest == NO_TIME or now < self._brokers.asked_at + ASK_AGAIN_SECONDS:
            return None
        self._brokers.asked_at = now
        return max(1, latest)  # 0 would stand for Kafka's timestamp

    def _is_due(
        self, key: str, number: int, goal: int, progress: PartitionProgress, now: float
    ) -> bool:
        """Return whether a heartbeat is to be sent now, and was not before; note that it is."""
        sent, patience = self._sent.get((key, number)), REPEAT_SECONDS
        if sent is not None:
            if sent.is_under_way(progress.next_offset, self._activity[number]):
                return False
            if sent.time_ms >= goal or sent.offset is None:
                if now < sent.at + sent.patience:
                    return False
                patience = min(2 * sent.patience, LAST_REPEAT_SECONDS)
        self._sent[key, number] = Sent(goal, now, patience)
        return True
