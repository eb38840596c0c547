"""Which panes have no final event yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from aggregator.keys import metric_key
from aggregator.published import Published
from aggregator.store import Store
from estimators import Metric

BATCH_EVENTS = 500
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
        unless there are not as many of them now, over all partitions.
    """

    start: int
    known: int = 0


class Unpublished:
    """Looks through the panes of metrics, each once.

    Parameters
    ----------
    store : Store
    published : Published
        Knows which events there are already.
    metrics : iterable of str
        Their names.
    since_ms : int
        Panes that begin before are left alone.
    """

    def __init__(
        self, store: Store, published: Published, metrics: Iterable[str], since_ms: int
    ) -> None:
        self._store, self._published, self._since = store, published, since_ms
        self._sweeps = {name: Sweep(since_ms) for name in metrics}

    def starts(self, metric: Metric, partitions: Sequence[int], last: int) -> Iterator[list[int]]:
        """Yield where panes begin, up to `last`, that have no final event, in batches.

        A batch is looked for again unless the next one is asked for.
        """
        sweep = self._sweeps[metric.name]
        limit = max(1, min(BATCH_EVENTS, BATCH_BYTES // metric.zero().nbytes))
        key = metric_key(metric.name, metric.revision)
        while sweep.start <= last:
            entries = self._store.first_panes(key, partitions, sweep.start, last, limit)
            starts = sorted(set(entries))[:limit]
            if starts:
                there = self._published.finals(key, starts[0], starts[-1])
                if missing := [start for start in starts if start not in there]:
                    yield missing
                sweep.known += sum(start <= starts[-1] for start in entries)
            sweep.start = last + 1 if len(starts) < limit else starts[-1] + 1

    def look_back(self, metric: Metric, partitions: Sequence[int]) -> None:
        """Look through a metric's panes from the first on, if they are others than those seen.

        To be called between two sweeps: one that is under way may have passed by a new pane.
        """
        sweep, key = self._sweeps[metric.name], metric_key(metric.name, metric.revision)
        if self._store.count_panes(key, partitions, self._since, sweep.start) != sweep.known:
            self._sweeps[metric.name] = Sweep(self._since)
