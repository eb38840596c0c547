"""Draws the releases of trusted collection, one for each pane that every partition has closed.

docs/decisions/0013 has the reasons.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import structlog

from aggregator.publishing import events
from aggregator.publishing.due_events import Publication
from aggregator.publishing.events import Event
from aggregator.publishing.unpublished_panes import UnpublishedPanes, batch_events
from aggregator.reading.coverage import THIS_WINDOW
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from estimators import TrustedMetric
from estimators.estimate import Counts

log = structlog.get_logger("dither.publisher")


class ReleaseDrawer:
    """Draws the releases of closed panes that have none."""

    comes_first = True

    def __init__(self, publication: Publication) -> None:
        reader, published = publication.reader, publication.published
        self.reader, self.published, self._source = reader, published, publication.source
        self.metrics = {n: m for n, m in reader.metrics.items() if isinstance(m, TrustedMetric)}
        self._unpublished = UnpublishedPanes(reader, published, self.metrics, publication.since_ms)

    def due_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield the events of :meth:`final_events` in batches."""
        yield from batch_events(self.final_events(overview, partitions))

    def final_events(self, overview: TopicProgress, partitions: int) -> Iterator[Event]:
        """Yield the events of final panes that have no release yet."""
        for metric, start, statistic in self._unpublished.sums(overview, partitions):
            policy = self.reader.policy(overview, metric.name)
            try:
                event = self._event(TrustedMetric.require(metric), policy, start, statistic)
            except ValueError as error:  # too many reports, or foreign data in Redis
                log.warning("not released", metric=metric.name, pane=start, reason=str(error))
            else:
                yield event

    def _event(self, metric: TrustedMetric, policy: str, start: int, statistic: Counts) -> Event:
        """Return a pane's event; its release is drawn only once."""
        window = Window(
            metric=metric,
            start_ms=start,
            end_ms=start + metric.pane_ms,
            status="final",
            policy=policy,
        )

        def draw() -> bytes:
            estimate = metric.release(statistic, weights=policy)
            status = "too_few_reports" if estimate.reports < metric.minimum_reports else "final"
            return events.release_data(
                window, dataclasses.replace(estimate, status=status, covers=THIS_WINDOW)
            )

        data = self.published.draw_once(metric_key(metric.name, metric.revision), start, draw)
        return events.release_event(window, data, self._source)
