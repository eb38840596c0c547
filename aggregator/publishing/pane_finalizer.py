"""Which events are due: panes that have become final, running totals that have changed."""

from __future__ import annotations

from collections.abc import Iterator

from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.unpublished_panes import Unpublished
from aggregator.reading.reader import Reader
from aggregator.reading.windows import Sums, Window
from aggregator.state.watermark import NEVER
from aggregator.storage.progress import TopicProgress
from estimators.metrics.trusted import TrustedMetric
from estimators.weights import DEFAULT_POLICY


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
    """

    def __init__(
        self, reader: Reader, published: PublishedLog, source: str, since_ms: int, top: int
    ) -> None:
        self.reader, self.published = reader, published
        self._source, self._top = source, top
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
        """
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
            yield events.final(window, self._top, self._source)

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
