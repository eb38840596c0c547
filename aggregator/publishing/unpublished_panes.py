"""Finds closed panes without a final event, and groups events into batches."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import structlog

from aggregator.errors import StateUnreadable
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.reading.reader import MetricReader
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
    """Goes once through the panes of metrics, from those that begin at `since_ms` on."""

    def __init__(
        self,
        reader: MetricReader,
        published: PublishedLog,
        metrics: Mapping[str, Metric],
        since_ms: int,
    ) -> None:
        self._reader, self._published, self._metrics = reader, published, metrics
        self._since_ms, self._begin = since_ms, dict.fromkeys(metrics, since_ms)
        self._partitions: Sequence[int] = ()
        self._overview = TopicProgress({}, {})

    def sums(
        self, overview: TopicProgress, partitions: int, postponed: Collection[int] = ()
    ) -> Iterator[tuple[Metric, int, Counts]]:
        """Yield the metric, start and statistic of each pane without a final event.

        Parameters
        ----------
        overview : TopicProgress
        partitions : int
            The number of partitions of the reports topic.
        postponed : collection of int
            Start times of panes to skip.

        Raises
        ------
        StateUnreadable
            If panes are unreadable; raised after the panes of the other metrics.
        """
        partition_numbers = range(partitions)
        self._refresh(overview, partition_numbers)
        unreadable: StateUnreadable | None = None
        for name, closed in self._reader.finality_watermarks(overview, partitions).items():
            if name not in self._metrics:
                continue
            metric = self._metrics[name]
            for starts in self._starts(metric, closed - metric.pane_ms, postponed):
                try:
                    sums = self._reader.sums.read_panes(overview, metric, partition_numbers, starts)
                except StateUnreadable as error:
                    unreadable = error
                    break
                if sums is None:
                    log.info("state changed while it was read", metric=name)
                    return
                self._published.verify_intact()
                for start, statistic in self._published.drop_expired(metric, sums).items():
                    yield metric, start, statistic
        if unreadable is not None:
            raise unreadable

    def _refresh(self, overview: TopicProgress, partitions: Sequence[int]) -> None:
        """Begin with the first pane again if there is a new partition or Redis lost panes."""
        if partitions != self._partitions or not self._overview.continues_in(overview):
            self._begin = dict.fromkeys(self._begin, self._since_ms)
        self._partitions, self._overview = partitions, overview

    def _starts(self, metric: Metric, last: int, postponed: Collection[int]) -> Iterator[list[int]]:
        """Yield, in batches, the starts of panes up to `last` that have no final event.

        The next call yields a batch again if the caller did not go on to the batch after it, or if
        the batch has postponed panes.
        """
        limit = max(1, min(BATCH_EVENTS, BATCH_BYTES // metric.zero().nbytes))
        key, name = metric_key(metric.name, metric.revision), metric.name
        panes = self._reader.store.panes
        begin, is_through = self._begin[name], True
        while begin <= last:
            entries = panes.first_starts(key, self._partitions, begin, last, limit)
            starts = sorted(set(entries))[:limit]
            if starts:
                published = self._published.published_panes(key, starts[0], starts[-1])
                missing = [start for start in starts if start not in published]
                if due := [start for start in missing if start not in postponed]:
                    yield due
                is_through = is_through and len(due) == len(missing)
            begin = last + 1 if len(starts) < limit else starts[-1] + 1
            if is_through:
                self._begin[name] = begin


def batch_events(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield events in batches of limited size and collection time.

    The caller publishes a batch, and records that, before it takes the next.

    Raises
    ------
    StateUnreadable
        If `events` raises it; raised after a batch with the events before it.
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
