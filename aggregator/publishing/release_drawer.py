"""Releases of metrics that are collected in trust: each pane's once, when it is closed everywhere.

A pane is closed when the log says so in every partition. docs/decisions/0013 says why.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping

import structlog

from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.unpublished_panes import Unpublished
from aggregator.reading.coverage import THIS_WINDOW
from aggregator.reading.reader import Reader
from aggregator.reading.windows import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from estimators import TrustedMetric
from estimators.estimate import Counts

BATCH_SECONDS = 1.0
"""The bounds of a release take a tenth of a second, or seconds."""

log = structlog.get_logger("dither.publisher")


class ReleaseDrawer:
    """Draws what is due to be released.

    Parameters
    ----------
    reader : Reader
    published : PublishedLog
        Knows which panes were released already, and what was drawn and is not published yet.
    source : str
        Of the events.
    since_ms : int
        Panes that begin before are not released.
    """

    def __init__(self, reader: Reader, published: PublishedLog, source: str, since_ms: int) -> None:
        self.reader, self.published, self._source = reader, published, source
        self.metrics = {n: m for n, m in reader.metrics.items() if isinstance(m, TrustedMetric)}
        self._unpublished = Unpublished(reader.store, published, self.metrics, since_ms)

    def final_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield the events of panes that are closed everywhere and have none yet, in batches.

        Every batch is to be published, and noted, before the next one is asked for.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.
        """
        numbers = range(partitions)
        self._unpublished.refresh(overview, numbers)
        for name, closed in self.reader.finality_watermarks(overview, partitions).items():
            if name not in self.metrics:
                continue
            metric, policy = self.metrics[name], self.reader.policy(overview, name)
            for starts in self._unpublished.starts(metric, closed - metric.pane_ms):
                sums = self.reader.sums.of_panes(overview, metric, numbers, starts)
                if sums is None:
                    log.info("state changed while it was read", metric=name)
                    return
                self.published.check()
                whole = self.published.pass_expired(metric, sums)
                yield from self._events(metric, policy, whole)

    def _events(
        self, metric: TrustedMetric, policy: str, sums: Mapping[int, Counts]
    ) -> Iterator[list[Event]]:
        """Yield the events of panes, some of them after a while."""
        batch: list[Event] = []
        deadline = time.monotonic() + BATCH_SECONDS
        for start, statistic in sums.items():
            try:
                batch.append(self._event(metric, policy, start, statistic))
            except ValueError as error:  # too many reports; or something else is in Redis
                log.warning("not released", metric=metric.name, pane=start, reason=str(error))
            if time.monotonic() > deadline:
                yield batch
                batch, deadline = [], time.monotonic() + BATCH_SECONDS
        if batch:
            yield batch

    def _event(self, metric: TrustedMetric, policy: str, start: int, statistic: Counts) -> Event:
        """Return a pane's event: the one that was drawn before, if any was."""
        window = Window(
            metric=metric,
            start_ms=start,
            end_ms=start + metric.pane_ms,
            status="final",
            policy=policy,
        )

        def draw() -> bytes:
            found = metric.release(statistic, weights=policy)
            status = "too_few_reports" if found.reports < metric.minimum_reports else "final"
            return events.drawn(
                window, dataclasses.replace(found, status=status, covers=THIS_WINDOW)
            )

        data = self.published.draw(metric_key(metric.name, metric.revision), start, draw)
        return events.released(window, data, self._source)
