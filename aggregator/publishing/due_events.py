"""Finders of due events: their protocol, panes without a final event, and runs through panes."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import redis
import structlog

from aggregator.errors import StateUnreadable
from aggregator.feature import EventType
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.runs import Run
from aggregator.reading.reader import MetricReader
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from estimators import Metric

TURN_SECONDS = 1.0
"""A run that takes longer continues with its next panes in the next turn."""
BATCH_EVENTS = 500
BATCH_BYTES = 32_000_000
"""The most bytes of the panes' statistics in memory, and of the data of a batch."""
BATCH_SECONDS = 1.0
"""After this time a batch is published as it is, since a single answer may take seconds."""

log = structlog.get_logger("dither.publisher")


@dataclasses.dataclass(frozen=True)
class Publication:
    """The objects that every finder of due events gets."""

    reader: MetricReader
    published: PublishedLog
    source: str
    """The CloudEvents attribute `source` of the events."""
    since_ms: int
    """The start of the first published pane."""


class DueEvents(Protocol):
    """Finds the due events of one feature.

    Attributes
    ----------
    comes_first : bool
        Whether the feature's events are published before each batch of final events, not after it.
    """

    comes_first: bool

    def due_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield lists of due events; the caller publishes a list before it takes the next."""


class RunWatch:
    """Feeds the final panes of a deployment to runs of one kind, and makes their events."""

    comes_first = False

    def __init__(
        self, publication: Publication, event_type: EventType, runs: Sequence[Run[Any, Any]]
    ) -> None:
        self.publication, self._type, self._runs = publication, event_type.name, runs

    def due_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield the due events run by run; a run may take only some of its panes in a turn.

        The caller publishes each list before it takes the next: only then is the run's state
        stored.

        Raises
        ------
        Exception
            The first failure of a run, raised after the events of the other runs (a RedisError at
            once); the failed run continues from its stored state.
        """
        closed = self.publication.reader.finality_watermarks(overview, partitions)
        published = self.publication.published
        first_error: Exception | None = None
        for run in self._runs:
            start_position, events = run.position, list[Event]()
            deadline = time.monotonic() + TURN_SECONDS
            try:
                for batch in run.due(overview, closed):
                    events += [self._event(run, data) for data in batch]
                    if time.monotonic() > deadline:
                        break
            except StateUnreadable as error:
                first_error = first_error or error
            except redis.RedisError:
                raise
            except Exception as error:  # it may leave the run's state in memory inconsistent
                first_error = first_error or error
                continue
            try:
                events = [event for event in events if not published.is_known(event)]
                published.verify_intact()
            except StateUnreadable as error:  # the next leader continues from the stored state
                first_error = first_error or error
                continue
            yield events
            if run.position != start_position:
                state: Any = msgspec.msgpack.encode(run.stored())
                published.lease.write([["SET", run.state_key, state]])
            level, text = run.published
            for event in events:
                getattr(log, level)(text, **{run.kind: event.subject}, id=event.id)
        if first_error is not None:
            raise first_error

    def _event(self, run: Run[Any, Any], data: Any) -> Event:
        key, subject, encoded = run.event_key(data), run.definition.name, msgspec.json.encode(data)
        return Event(key, self._type, self.publication.source, subject, data.at, key, encoded)


class UnpublishedPanes:
    """Finds metrics' closed panes that have no final event and begin at `since_ms` or later.

    Attributes
    ----------
    is_behind : bool
        Whether the last turn has left due panes to the next turn.
    """

    def __init__(
        self, publication: Publication, metrics: Mapping[str, Metric], max_panes: int = BATCH_EVENTS
    ) -> None:
        self._reader, self._published = publication.reader, publication.published
        self._metrics, self._max_panes = metrics, max_panes
        self._since_ms = publication.since_ms
        self._begin = dict.fromkeys(metrics, self._since_ms)  # in the order of turns
        self._partitions: Sequence[int] = ()
        self._overview = TopicProgress({}, {})
        self.is_behind = False

    def windows(
        self, overview: TopicProgress, partitions: int, postponed: Collection[int] = ()
    ) -> Iterator[list[Window]]:
        """Yield, for each metric, the next panes without a final event, with their sums.

        A turn that takes longer than `TURN_SECONDS` ends early; the next turn begins with the
        metrics that are left. So no metric waits until all panes of another metric are published.
        `overview`: the progress of counting; `partitions`: the number of partitions of the reports
        topic; `postponed`: start times of panes to skip. Raises StateUnreadable if panes are
        unreadable, but only after the panes of the other metrics.
        """
        self._refresh(overview, range(partitions))
        self.is_behind, has_panes, deadline = False, False, time.monotonic() + TURN_SECONDS
        unreadable: StateUnreadable | None = None
        closed = self._reader.finality_watermarks(overview, partitions)
        for name in [name for name in self._begin if name in closed]:
            self._begin[name] = self._begin.pop(name)
            metric = self._metrics[name]
            last = (closed[name] // metric.pane_ms - 1) * metric.pane_ms
            try:
                starts, begin = self._starts(metric, last, postponed)
                windows = self._read(overview, metric, starts) if starts else []
            except StateUnreadable as error:
                unreadable = error
                continue
            if windows is None:
                log.info("state changed while it was read", metric=name)
                return
            if windows:
                yield windows
                has_panes = True
            self._begin[name] = begin
            if has_panes and time.monotonic() > deadline:
                self.is_behind = True
                break
        if unreadable is not None:
            raise unreadable

    def _refresh(self, overview: TopicProgress, partitions: Sequence[int]) -> None:
        """Begin with the first pane again if there is a new partition or Redis lost panes."""
        if partitions != self._partitions or not self._overview.continues_in(overview):
            self._begin = dict.fromkeys(self._begin, self._since_ms)
        self._partitions, self._overview = partitions, overview

    def _starts(
        self, metric: Metric, last: int, postponed: Collection[int]
    ) -> tuple[list[int], int]:
        """Return the starts of the next panes up to `last` without a final event.

        The second value is where the next turn begins once these panes have their events: at the
        latest at the first postponed pane.
        """
        limit = max(1, min(BATCH_EVENTS, BATCH_BYTES // metric.zero().nbytes))
        key, is_through = metric_key(metric.name, metric.revision), True
        panes, partitions = self._reader.store.panes, self._partitions
        position = following = self._begin[metric.name]
        while position <= last:
            entries = panes.first_starts(key, partitions, position, last, limit)
            starts = sorted(set(entries))[:limit]
            position = last + 1 if len(starts) < limit else starts[-1] + 1
            if not starts:
                return [], position if is_through else following
            published = self._published.published_panes(key, starts[0], starts[-1])
            missing = [start for start in starts if start not in published]
            due = [start for start in missing if start not in postponed][: self._max_panes]
            is_through = is_through and len(due) == len(missing)
            if is_through:
                following = position
            if due:
                self.is_behind = self.is_behind or position <= last
                return due, following
        return [], following

    def _read(
        self, overview: TopicProgress, metric: Metric, starts: Sequence[int]
    ) -> list[Window] | None:
        """Return the complete panes with their sums; None if Redis lost data meanwhile."""
        pane = Window(
            metric=metric,
            status="final",
            policy=overview.policy(metric),
            changed_ms=overview.policy_changed_ms(metric.name),
            watermarks=overview.watermarks(metric_key(metric.name, metric.revision)),
            overview=overview,
        )
        windows = [pane.between(start, start + metric.pane_ms, "final") for start in starts]
        try:
            panes = [*itertools.chain.from_iterable(self._reader.sums.read_steps(windows))]
        except StateUnreadable:
            if self._reader.store.is_same_history(overview):
                raise
            return None
        complete = [pane for pane in panes if pane.status == "final"]
        is_partial = len(complete) < len(panes)  # something has expired, or Redis lost data
        if is_partial and not self._reader.store.is_same_history(overview):
            return None
        self._published.verify_intact()
        ends = zip(starts, panes, strict=True)
        expired = [start for start, pane in ends if pane.status == "expired"]
        if expired:
            self._published.note_expired(metric, expired)
        return complete


def batch_events(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield events in batches of limited size and collection time.

    The caller publishes a batch, and records its events as published, before it takes the next
    batch. Raises StateUnreadable if `events` raises it, but only after a batch with the earlier
    events.
    """
    batch: list[Event] = []
    size, deadline = 0, time.monotonic() + BATCH_SECONDS
    unreadable: StateUnreadable | None = None
    try:
        for event in events:
            batch.append(event)
            size += len(event.data)
            if len(batch) >= BATCH_EVENTS or size >= BATCH_BYTES or time.monotonic() > deadline:
                yield batch
                batch, size, deadline = [], 0, time.monotonic() + BATCH_SECONDS
    except StateUnreadable as error:
        unreadable = error
    if batch:
        yield batch
    if unreadable is not None:
        raise unreadable
