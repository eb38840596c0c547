"""Which events are due: panes that have become final, running totals that have changed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import structlog

from aggregator.errors import StateUnreadable
from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.unpublished_panes import BATCH_BYTES, BATCH_EVENTS, Unpublished
from aggregator.reading.reader import Reader
from aggregator.reading.windows import Sums, Window
from aggregator.state.watermark import NEVER
from aggregator.storage.progress import TopicProgress
from estimators.metrics.trusted import TrustedMetric
from estimators.weights import DEFAULT_POLICY

BATCH_SECONDS = 1.0
"""Answers take milliseconds, or seconds: what is waiting is published after so long."""

log = structlog.get_logger("dither.publisher")


class PaneFinalizer:
    """Finds the events that are due: of metrics whose reports are private by themselves.

    Parameters
    ----------
    reader : Reader
    published : PublishedLog
        Knows which events there are already.
    source : str
        Of the events.
    since_ms : int
        Panes that begin before are not published.
    top : int
        So many categories or coordinates are published, the largest.
    """

    def __init__(
        self, reader: Reader, published: PublishedLog, source: str, since_ms: int, top: int
    ) -> None:
        self.reader, self.published = reader, published
        self._source, self._top = source, top
        self._metrics = {
            n: m for n, m in reader.metrics.items() if not isinstance(m, TrustedMetric)
        }
        self._unpublished = Unpublished(reader.store, published, self._metrics, since_ms)
        self._versions: dict[str, str] = {}

    def final_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield the events of panes that are final and have none yet, in batches over all metrics.

        Every batch is to be published, and noted, before the next one is asked for; if that fails,
        another `PaneFinalizer` is to find it again.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.
        """
        batch: list[Event] = []
        size, deadline = 0, time.monotonic() + BATCH_SECONDS
        try:
            for window in self._final_windows(overview, partitions):
                batch.append(events.final(window, self._top, self._source))
                size += len(batch[-1].data)
                is_full = len(batch) >= BATCH_EVENTS or size >= BATCH_BYTES
                if is_full or time.monotonic() > deadline:
                    yield batch
                    batch, size, deadline = [], 0, time.monotonic() + BATCH_SECONDS
        except StateUnreadable:  # of one metric: the others' panes are none the worse
            if batch:
                yield batch
            raise
        if batch:
            yield batch

    def _final_windows(self, overview: TopicProgress, partitions: int) -> Iterator[Window]:
        """Yield the panes that are final and have no event yet; then raise what was unreadable."""
        numbers = range(partitions)
        self._unpublished.refresh(overview, numbers)
        unreadable: StateUnreadable | None = None
        for name, closed in self.reader.finality_watermarks(overview, partitions).items():
            if name not in self._metrics:
                continue
            metric = self._metrics[name]
            policy = overview.policies.get(name, DEFAULT_POLICY)
            since = overview.changed_ms(name)
            for starts in self._unpublished.starts(metric, closed - metric.pane_ms):
                try:
                    sums = self.reader.sums.of_panes(overview, metric, numbers, starts)
                except StateUnreadable as error:  # the other metrics' panes are none the worse
                    unreadable = error
                    break
                if sums is None:
                    log.info("state changed while it was read", metric=name)
                    return
                self.published.check()
                for start, statistic in self.published.pass_expired(metric, sums).items():
                    end = start + metric.pane_ms
                    yield Window(
                        metric=metric,
                        start_ms=start,
                        end_ms=end,
                        status="final",
                        content=Sums(statistic),
                        policy=policy,
                        changed_ms=since,
                    )
        if unreadable is not None:
            raise unreadable

    def provisional_events(self, overview: TopicProgress) -> list[Event]:
        """Return the events of running totals that have changed."""
        totals = (self.reader.describe(overview, name) for name in self._metrics)
        changed = [
            total
            for total in totals
            if total.arrived_ms != NEVER and total.version != self._versions.get(total.metric.name)
        ]
        found = []
        for total, read in zip(changed, self.reader.read_totals(changed), strict=True):
            name = total.metric.name
            window = self.reader.read(total) if read is None else read
            event = events.provisional(window, self._top, self._source)
            if event.id != self.published.provisional(name):
                found.append(event)
            self._versions[name] = total.version
        return found
