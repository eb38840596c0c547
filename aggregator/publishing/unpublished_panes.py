"""Which panes have no final event yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aggregator.publishing.published_log import PublishedLog
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from estimators import Metric

BATCH_EVENTS = 500
BATCH_BYTES = 32_000_000
"""Of panes' statistics in memory at a time."""


class Unpublished:
    """Looks through the panes of metrics, each once.

    Parameters
    ----------
    store : Store
    published : PublishedLog
        Knows which events there are already.
    metrics : iterable of str
        Their names.
    since_ms : int
        Panes that begin before are left alone.
    """

    def __init__(
        self, store: Store, published: PublishedLog, metrics: Iterable[str], since_ms: int
    ) -> None:
        self._store, self._published, self._since = store, published, since_ms
        self._begin = dict.fromkeys(metrics, since_ms)
        self._partitions: Sequence[int] = ()
        self._overview = TopicProgress({}, {})

    def refresh(self, overview: TopicProgress, partitions: Sequence[int]) -> None:
        """Look through the panes of these partitions, as an overview has found them.

        From the first one again where others may have turned up: in a new partition, or because
        Redis lost some while they were looked through.
        """
        if partitions != self._partitions or not self._overview.continues_in(overview):
            self._begin = dict.fromkeys(self._begin, self._since)
        self._partitions, self._overview = partitions, overview

    def starts(self, metric: Metric, last: int) -> Iterator[list[int]]:
        """Yield where panes begin, up to `last`, that have no final event, in batches.

        A batch is looked for again unless the next one is asked for.
        """
        limit = max(1, min(BATCH_EVENTS, BATCH_BYTES // metric.zero().nbytes))
        key, name = metric_key(metric.name, metric.revision), metric.name
        while (begin := self._begin[name]) <= last:
            entries = self._store.panes.first(key, self._partitions, begin, last, limit)
            starts = sorted(set(entries))[:limit]
            if starts:
                there = self._published.finals(key, starts[0], starts[-1])
                if missing := [start for start in starts if start not in there]:
                    yield missing
            self._begin[name] = last + 1 if len(starts) < limit else starts[-1] + 1
