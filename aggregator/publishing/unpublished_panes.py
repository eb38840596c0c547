"""Finds closed panes without a final event, and makes their events in batches."""

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
"""Of panes' statistics in memory at a time, and of the data of a batch's events."""
BATCH_SECONDS = 1.0
"""Answers take milliseconds, or seconds: what is waiting is published after so long."""

log = structlog.get_logger("dither.publisher")


class Unpublished:
    """Looks through the panes of metrics, each once.

    Parameters
    ----------
    reader : MetricReader
    published : PublishedLog
        Knows which events there are already.
    metrics : mapping of str to Metric
        By name, some of the reader's.
    since_ms : int
        Panes that begin before are left alone.
    """

    def __init__(
        self,
        reader: MetricReader,
        published: PublishedLog,
        metrics: Mapping[str, Metric],
        since_ms: int,
    ) -> None:
        self._reader, self._published, self._metrics = reader, published, metrics
        self._since, self._begin = since_ms, dict.fromkeys(metrics, since_ms)
        self._partitions: Sequence[int] = ()
        self._overview = TopicProgress({}, {})

    def sums(
        self, overview: TopicProgress, partitions: int, postponed: Collection[int] = ()
    ) -> Iterator[tuple[Metric, int, Counts]]:
        """Yield the panes without a final event: the metric, the start and the statistic of each.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.
        postponed : collection of int
            Where panes begin that are left out this time.

        Raises
        ------
        StateUnreadable
            Where panes cannot be read: after those of the other metrics.
        """
        numbers = range(partitions)
        self._refresh(overview, numbers)
        unreadable: StateUnreadable | None = None
        for name, closed in self._reader.finality_watermarks(overview, partitions).items():
            if name not in self._metrics:
                continue
            metric = self._metrics[name]
            for starts in self._starts(metric, closed - metric.pane_ms, postponed):
                try:
                    sums = self._reader.sums.of_panes(overview, metric, numbers, starts)
                except StateUnreadable as error:
                    unreadable = error
                    break
                if sums is None:
                    log.info("state changed while it was read", metric=name)
                    return
                self._published.check()
                for start, statistic in self._published.pass_expired(metric, sums).items():
                    yield metric, start, statistic
        if unreadable is not None:
            raise unreadable

    def _refresh(self, overview: TopicProgress, partitions: Sequence[int]) -> None:
        """Look through the panes of these partitions, as an overview has found them.

        From the first one again where others may have turned up: in a new partition, or because
        Redis lost some while they were looked through.
        """
        if partitions != self._partitions or not self._overview.continues_in(overview):
            self._begin = dict.fromkeys(self._begin, self._since)
        self._partitions, self._overview = partitions, overview

    def _starts(self, metric: Metric, last: int, postponed: Collection[int]) -> Iterator[list[int]]:
        """Yield where panes begin, up to `last`, that have no final event, in batches.

        A batch is looked for again unless the next one is asked for, or it has postponed panes.
        """
        limit = max(1, min(BATCH_EVENTS, BATCH_BYTES // metric.zero().nbytes))
        key, name = metric_key(metric.name, metric.revision), metric.name
        panes = self._reader.store.panes
        begin, is_through = self._begin[name], True
        while begin <= last:
            entries = panes.first_starts(key, self._partitions, begin, last, limit)
            starts = sorted(set(entries))[:limit]
            if starts:
                there = self._published.finals(key, starts[0], starts[-1])
                missing = [start for start in starts if start not in there]
                if due := [start for start in missing if start not in postponed]:
                    yield due
                is_through = is_through and len(due) == len(missing)
            begin = last + 1 if len(starts) < limit else starts[-1] + 1
            if is_through:
                self._begin[name] = begin


def in_batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield events in batches: when there are enough, or after a second.

    Every batch is to be published, and noted, before the next one is asked for. If that fails, the
    events are to be looked for anew.

    Raises
    ------
    StateUnreadable
        As `events` does, after a batch of the events before it.
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
