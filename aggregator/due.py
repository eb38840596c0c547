"""Which events are due: panes that have become final, running totals that have changed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence

import structlog

from aggregator import events
from aggregator.events import Event
from aggregator.keys import PaneKey, metric_key
from aggregator.partition import NEVER
from aggregator.published import Published
from aggregator.reader import Reader
from aggregator.store import Overview
from aggregator.unpublished import Unpublished
from aggregator.windows import Window
from estimators import Metric
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY

BATCH_SECONDS = 1.0
"""Answers take milliseconds, or seconds: what is waiting is published after so long."""

log = structlog.get_logger("dither.publisher")


class Due:
    """Finds the events that are due: of metrics whose reports are private by themselves.

    Parameters
    ----------
    reader : Reader
    published : Published
        Knows which events there are already.
    source : str
        Of the events.
    since_ms : int
        Panes that begin before are not published.
    top : int
        So many categories or coordinates are published, the largest.
    """

    def __init__(
        self, reader: Reader, published: Published, source: str, since_ms: int, top: int
    ) -> None:
        self.reader, self.published = reader, published
        self._source, self._top = source, top
        self._metrics = {n: m for n, m in reader.metrics.items() if m.trust == "local"}
        self._unpublished = Unpublished(reader.store, published, self._metrics, since_ms)
        self._versions: dict[str, str] = {}

    def finals(self, overview: Overview, partitions: int) -> Iterator[list[Event]]:
        """Yield the events of panes that are final and have none yet, in batches.

        Every batch is to be published, and noted, before the next one is asked for.

        Parameters
        ----------
        partitions : int
            How many the reports topic has.
        """
        numbers = range(partitions)
        self._unpublished.look(overview, numbers)
        for name, closed in self.reader.closed(overview, partitions).items():
            if name not in self._metrics:
                continue
            metric = self._metrics[name]
            policy = overview.policies.get(name, DEFAULT_POLICY)
            since = overview.changed_ms(name)
            for starts in self._unpublished.starts(metric, closed - metric.pane_ms):
                windows = self._windows(metric, numbers, starts, policy)
                if not overview.goes_on_in(self.reader.store.overview()):
                    log.info("counted anew while it was read", metric=name)
                    return
                self.published.check()
                told = [dataclasses.replace(one, changed_ms=since) for one in windows]
                yield from self._events(told)

    def _events(self, windows: list[Window]) -> Iterator[list[Event]]:
        """Yield the windows' events, some of them after a while where answers take their time."""
        batch: list[Event] = []
        deadline = time.monotonic() + BATCH_SECONDS
        for window in windows:
            batch.append(events.final(window, self._top, self._source))
            if time.monotonic() > deadline:
                yield batch
                batch, deadline = [], time.monotonic() + BATCH_SECONDS
        if batch:
            yield batch

    def provisionals(self, overview: Overview) -> list[Event]:
        """Return the events of running totals that have changed."""
        found = []
        for name in self._metrics:
            frame = self.reader.frame(overview, name)
            if frame.arrived_ms == NEVER or frame.version == self._versions.get(name):
                continue
            window = frame.filled(self.reader.sum(frame))
            event = events.provisional(window, self._top, self._source)
            if event.id != self.published.provisional(name):
                found.append(event)
            self._versions[name] = frame.version
        return found

    def _windows(
        self, metric: Metric, partitions: Sequence[int], starts: list[int], policy: str
    ) -> list[Window]:
        """Return single panes, summed over partitions; without those that have expired."""
        name = metric_key(metric.name, metric.revision)
        keys = [(p, PaneKey("pane", name, start)) for start in starts for p in partitions]
        sums: dict[int, Counts] = {}
        for key, statistic in self.reader.panes(metric, keys):
            own = sums.setdefault(key.start, metric.zero())
            own += statistic
        return [
            Window(metric, statistic, start, start + metric.pane_ms, "final", NEVER, policy)
            for start, statistic in sums.items()
        ]
