"""Which events are due: panes that have become final, running totals that have changed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

from aggregator import events
from aggregator.events import Event
from aggregator.keys import PaneKey, metric_key
from aggregator.partition import NEVER
from aggregator.published import Published
from aggregator.reader import Reader, Window
from aggregator.store import Overview
from estimators import Metric
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY

BATCH_EVENTS = 500
BATCH_SECONDS = 1.0
"""Answers take milliseconds, or seconds: what is waiting is published after so long."""
BATCH_BYTES = 32_000_000
"""Of panes' statistics in memory at a time."""


@dataclasses.dataclass
class Sweep:
    """How far the panes of a metric were looked through.

    Attributes
    ----------
    start : int
        Panes that begin before it, in ms since the epoch, need not be looked at again,
    known : int
        unless there are more of them now, over all partitions, than this.
    """

    start: int
    known: int = 0


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
        self._source, self._since, self._top = source, since_ms, top
        self._metrics = {n: m for n, m in reader.metrics.items() if m.trust == "local"}
        self._sweeps = {name: Sweep(since_ms) for name in self._metrics}
        self._versions: dict[str, str] = {}

    def finals(self, overview: Overview) -> Iterator[list[Event]]:
        """Yield the events of panes that are final and have none yet, in batches.

        Every batch is to be published, and noted, before the next one is asked for.
        """
        for name, settled in self.reader.settled(overview).items():
            if name not in self._metrics:
                continue
            metric = self._metrics[name]
            policy = overview.policies.get(name, DEFAULT_POLICY)
            partitions = [*overview.partitions]
            for windows in self._unpublished(metric, partitions, settled - metric.pane_ms, policy):
                yield from self._events(windows)

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
        """Return the events of running totals that have changed.

        Looks, too, for panes that have turned up where panes were final already: a partition that
        held nothing back can still get a report of an old time. :meth:`finals` finds them then.
        """
        found = []
        for name in self._metrics:
            frame = self.reader.frame(overview, name)
            if frame.arrived_ms == NEVER or frame.version == self._versions.get(name):
                continue
            self._look_back(frame.metric, [*overview.partitions])
            window = frame.filled(self.reader.sum(frame))
            event = events.provisional(window, self._top, self._source)
            if event.id != self.published.provisional(name):
                found.append(event)
            self._versions[name] = frame.version
        return found

    def _unpublished(
        self, metric: Metric, partitions: list[int], last: int, policy: str
    ) -> Iterator[list[Window]]:
        """Yield the windows of panes that begin up to `last` and have no event, in batches."""
        sweep, store = self._sweeps[metric.name], self.reader.store
        limit = max(1, min(BATCH_EVENTS, BATCH_BYTES // metric.zero().nbytes))
        key = metric_key(metric.name, metric.revision)
        while sweep.start <= last:
            entries = store.first_panes(key, partitions, sweep.start, last, limit)
            starts = sorted(set(entries))[:limit]
            if starts:
                there = self.published.finals(key, starts[0], starts[-1])
                missing = [start for start in starts if start not in there]
                if windows := self._windows(metric, partitions, missing, policy):
                    yield windows
                sweep.known += sum(start <= starts[-1] for start in entries)
            sweep.start = last + 1 if len(starts) < limit else starts[-1] + 1

    def _look_back(self, metric: Metric, partitions: list[int]) -> None:
        """Look through a metric's panes from the first on, if there are more than were seen."""
        sweep, key = self._sweeps[metric.name], metric_key(metric.name, metric.revision)
        there = self.reader.store.count_panes(key, partitions, self._since, sweep.start)
        if there > sweep.known:
            self._sweeps[metric.name] = Sweep(self._since)

    def _windows(
        self, metric: Metric, partitions: list[int], starts: list[int], policy: str
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
