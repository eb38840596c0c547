"""Finds closed panes without a final event, and groups events into batches."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import structlog

from aggregator.errors import StateUnreadable
from aggregator.publishing.due_events import TURN_SECONDS, Publication
from aggregator.publishing.events import Event
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from estimators import Metric
from estimators.estimate import Counts

BATCH_EVENTS = 500
BATCH_BYTES = 32_000_000
"""The most bytes of the panes' statistics in memory, and of the data of a batch."""
BATCH_SECONDS = 1.0
"""After this time a batch is published as it is, since a single answer may take seconds."""

log = structlog.get_logger("dither.publisher")


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
            starts, begin = self._starts(metric, last, postponed)
            try:
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
        position = following = self._begin[metric.name]
        while position <= last:
            entries = self._reader.store.panes.first_starts(
                key, self._partitions, position, last, limit
            )
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
        sums, is_same_history = list[Counts | None](), True
        try:
            for _, sums_of_group, is_same in self._reader.sums.read_steps(windows, metric.pane_ms):
                sums += sums_of_group
                is_same_history = is_same  # compared with all reads, at the end
        except StateUnreadable:
            if self._reader.store.is_same_history(overview):
                raise
            return None
        if not is_same_history:
            return None
        self._published.verify_intact()
        expired = [start for start, total in zip(starts, sums, strict=True) if total is None]
        if expired:
            self._published.note_expired(metric, expired)
        complete = zip(windows, sums, strict=True)
        return [window.with_sums(total) for window, total in complete if total is not None]


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
            is_full = len(batch) >= BATCH_EVENTS or size >= BATCH_BYTES
            if is_full or time.monotonic() > deadline:
                yield batch
                batch, size, deadline = [], 0, time.monotonic() + BATCH_SECONDS
    except StateUnreadable as error:
        unreadable = error
    if batch:
        yield batch
    if unreadable is not None:
        raise unreadable
