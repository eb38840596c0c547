"""Finds the events that are due: panes that became final, running totals that changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import structlog

from aggregator.errors import StateUnreadable
from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.unpublished_panes import Unpublished
from aggregator.reading.grouping import Groupings, queries
from aggregator.reading.reader import Reader
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.windows import Sums, Window
from aggregator.state.watermark import NEVER
from aggregator.storage.progress import TopicProgress
from estimators.metrics.trusted import TrustedMetric
from estimators.weights import DEFAULT_POLICY

log = structlog.get_logger("dither.publisher")


class PaneFinalizer:
    """Finds the events that are due, of metrics with local privacy.

    Parameters
    ----------
    reader : Reader
    published : PublishedLog
        Knows which events there are already.
    source : str
        The CloudEvents attribute `source` of the events.
    since_ms : int
        Panes that begin before are not published.
    top : int
        So many categories or coordinates are published, the largest.
    groupings : mapping
        By which attributes of devices final events have slices, by metric.
    """

    def __init__(
        self,
        reader: Reader,
        published: PublishedLog,
        source: str,
        since_ms: int,
        top: int,
        groupings: Groupings | None = None,
    ) -> None:
        self.reader, self.published = reader, published
        self._source, self._top, self._groupings = source, top, groupings or {}
        self._metrics = {
            n: m for n, m in reader.metrics.items() if not isinstance(m, TrustedMetric)
        }
        self._unpublished = Unpublished(reader, published, self._metrics, since_ms)
        self._versions: dict[str, str] = {}

    def final_events(self, overview: TopicProgress, partitions: int) -> Iterator[Event]:
        """Yield the events of panes that are final and have none yet.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.

        Raises
        ------
        StateUnreadable
            Where panes or slices cannot be read: after the events of the other metrics.
        """
        unreadable: dict[str, StateUnreadable] = {}
        for metric, start, statistic in self._unpublished.sums(overview, partitions):
            window = Window(
                metric=metric,
                start_ms=start,
                end_ms=start + metric.pane_ms,
                status="final",
                content=Sums(statistic),
                policy=overview.policies.get(metric.name, DEFAULT_POLICY),
                changed_ms=overview.changed_ms(metric.name),
            )
            if metric.name in unreadable:
                continue
            try:
                slices = self._slices(overview, window)
            except StateUnreadable as error:
                unreadable[metric.name] = error
                continue
            if slices is None:
                log.info("state changed while it was read", metric=metric.name)
                return
            yield events.final(window, self._top, self._source, slices)
        for why in unreadable.values():
            raise why

    def _slices(self, overview: TopicProgress, pane: Window) -> list[Slices] | None:
        """Return the slices of the stretch that ends with a pane; None if they changed meanwhile.

        No slices with any other pane: its stretch is not final yet, or was published already.
        """
        slicing, end_ms = pane.metric.slicing, pane.end_ms
        if slicing is None or end_ms is None or end_ms % slicing.pane_ms:
            return []
        edges = {"start": (end_ms - slicing.pane_ms) / 1000, "end": end_ms / 1000}
        found = []
        for query in queries(self._groupings, pane.metric, **edges):
            stretch = self.reader.describe(overview, pane.metric.name, query)
            window = self.reader.read(
                dataclasses.replace(stretch, status="final", arrived_ms=NEVER)
            )
            if window.status != "final":
                return None
            found.append(self.reader.answer_slices(window, query))
        return found

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
