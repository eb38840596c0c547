"""Draws the releases of trusted collection, one for each pane that every partition has closed.

docs/decisions/0013 has the reasons.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import structlog

from aggregator.feature import EventType
from aggregator.publishing import events
from aggregator.publishing.due_events import Publication, UnpublishedPanes, batch_events
from aggregator.publishing.events import Event
from aggregator.reading.coverage import THIS_WINDOW
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from estimators import TrustedMetric

log = structlog.get_logger("dither.publisher")


class ReleaseDrawer:
    """Draws the releases of closed panes that have none."""

    comes_first = True

    def __init__(self, publication: Publication) -> None:
        self.published, self._source = publication.published, publication.source
        metrics = publication.reader.metrics.items()
        self.metrics = {n: m for n, m in metrics if isinstance(m, TrustedMetric)}
        self._unpublished = UnpublishedPanes(publication, self.metrics)

    def due_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield the events of final panes that have no release yet, in batches."""
        return batch_events(self._final_events(overview, partitions))

    def _final_events(self, overview: TopicProgress, partitions: int) -> Iterator[Event]:
        for windows in self._unpublished.windows(overview, partitions):
            for window in windows:
                try:
                    event = self._release_event(window, TrustedMetric.require(window.metric))
                except ValueError as error:  # too many reports, or foreign data in Redis
                    name, pane = window.metric.name, window.start_ms
                    log.warning("not released", metric=name, pane=pane, reason=str(error))
                else:
                    yield event

    def _release_event(self, window: Window, metric: TrustedMetric) -> Event:
        """Return the event of a pane; its release is drawn unless it was drawn before."""
        assert window.start_ms is not None  # noqa: S101

        def draw() -> bytes:
            estimate = metric.release(window.sums, weights=window.policy)
            status = "too_few_reports" if estimate.reports < metric.minimum_reports else "final"
            return events.release_data(
                window, dataclasses.replace(estimate, status=status, covers=THIS_WINDOW)
            )

        key = metric_key(metric.name, metric.revision)
        data = self.published.draw_once(key, window.start_ms, draw)
        return events.release_event(window, data, self._source)


EVENT_TYPES: tuple[EventType, ...] = ()
find_due_events = ReleaseDrawer
