"""Which events are due: panes that have become final, running totals that have changed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import numpy as np

from aggregator import events
from aggregator.events import Event
from aggregator.keys import PaneKey, metric_key
from aggregator.partition import NEVER
from aggregator.published import Published
from aggregator.reader import Reader, Window
from estimators import Metric
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY

BATCH_EVENTS = 500
BATCH_SECONDS = 5.0
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
    """Finds the events that are due.

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
        self._sweeps = {name: Sweep(since_ms) for name in reader.metrics}
        self._totals: dict[str, tuple[bytes, str]] = {}

    def finals(self) -> Iterator[list[Event]]:
        """Yield the events of panes that are final and have none yet, in batches.

        Every batch is to be published, and noted, before the next one is asked for.
        """
        settled = self.reader.settled()
        for name, metric in self.reader.metrics.items():
            if name in settled:
                for windows in self._unpublished(metric, settled[name] - metric.pane_ms):
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

    def provisionals(self) -> list[Event]:
        """Return the events of running totals that have changed.

        Looks, too, for panes that have turned up where panes were final already: a partition that
        held nothing back can still get a report of an old time. :meth:`finals` finds them then.
        """
        found = []
        for name in self.reader.metrics:
            window = self.reader.window(name)
            if window.arrived_ms == NEVER:
                continue
            self._look_back(window.metric)
            content = (window.statistic.tobytes(), window.policy)
            if content == self._totals.get(name):
                continue
            event = events.provisional(window, self._top, self._source)
            if event.id != self.published.provisional(name):
                found.append(event)
            self._totals[name] = content
        return found

    def _unpublished(self, metric: Metric, last: int) -> Iterator[list[Window]]:
        """Yield the windows of panes that begin up to `last` and have no event, in batches."""
        sweep = self._sweeps[metric.name]
        size = BATCH_BYTES // (metric.zero().nbytes or 1)
        limit = max(1, min(BATCH_EVENTS, size))
        key = metric_key(metric.name, metric.revision)
        while sweep.start <= last:
            entries = self._entries(key, sweep.start, last, limit)
            starts = sorted(set(entries))[:limit]
            if starts:
                there = self.published.finals(key, starts[0], starts[-1])
                missing = [start for start in starts if start not in there]
                if windows := self._windows(metric, key, missing):
                    yield windows
                sweep.known += sum(start <= starts[-1] for start in entries)
            sweep.start = last + 1 if len(starts) < limit else starts[-1] + 1

    def _look_back(self, metric: Metric) -> None:
        """Look through a metric's panes from the first on, if there are more than were seen."""
        sweep, store = self._sweeps[metric.name], self.reader.store
        key = metric_key(metric.name, metric.revision)
        there = (store.count_panes(p, key, self._since, sweep.start) for p in store.partitions())
        if sum(there) > sweep.known:
            self._sweeps[metric.name] = Sweep(self._since)

    def _entries(self, key: str, first: int, last: int, limit: int) -> list[int]:
        """Return where the first panes of each partition begin, in [first, last]."""
        store = self.reader.store
        found = (store.pane_starts(p, key, first, last, limit) for p in store.partitions())
        return [start for starts in found for start in starts]

    def _windows(self, metric: Metric, key: str, starts: list[int]) -> list[Window]:
        """Return single panes, summed over partitions; without those that have expired."""
        store = self.reader.store
        policy = store.policies().get(metric.name, DEFAULT_POLICY)
        sums: dict[int, Counts] = {}
        for partition in store.partitions():
            found = store.statistics(partition, [PaneKey("pane", key, start) for start in starts])
            for start, statistic in zip(starts, found, strict=True):
                if statistic is not None:
                    own = sums.setdefault(start, metric.zero())
                    own += np.frombuffer(statistic, dtype="<i8")
        return [
            Window(metric, sums[start], start, start + metric.pane_ms, "final", NEVER, policy)
            for start in sorted(sums)
        ]
