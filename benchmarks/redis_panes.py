"""Panes in Redis for stages that read them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from aggregator.state.batch_ids import as_ids
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey
from aggregator.state.partition import Partition
from aggregator.state.watermark import Watermark
from aggregator.storage.progress import UNSET
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, METRICS, LogMessage, payloads
from estimators import Metric
from estimators.estimate import Counts
from producers.wire.batch import BATCH_ID_BYTES

Panes = dict[PaneKey, tuple[Metric, Counts]]
"""The metric and the statistic of each pane."""


def write_panes(
    store: Store,
    numbers: Iterable[int],
    panes: Mapping[PaneKey, tuple[Metric, Counts]],
    watermarks: Mapping[str, int],
) -> None:
    """Write panes, all closed except running totals, and watermarks to each partition."""
    metrics = {metric.name: metric for metric, _ in panes.values()}
    for number in numbers:
        epoch = int(store.partition.acquire(number, "bench").owner["epoch"])
        partition = Partition(metrics, 0)
        for key, (metric, statistic) in panes.items():
            pane = Pane(metric, 0, statistic, closed=key.grain != "total")
            partition.panes[key] = partition.changed[key] = pane
        for question, end_ms in watermarks.items():
            partition.watermarks[question] = Watermark(end_ms, end_ms, end_ms)
        partition.counts.update({f"accepted:{name}": 1_000 for name in metrics})
        partition.next_offset = 1
        facts = {"partitions": 1, "updated": 1}
        assert store.partition.commit(number, epoch, UNSET, partition, facts)  # noqa: S101


def commit_ids(store: Store, ids: int, ids_a_commit: int) -> Iterator[int]:
    """Commit a batch, then further ids of its pane; yield after each commit how many there are."""
    snapshot = store.partition.acquire(0, "first")
    epoch, following = int(snapshot.owner["epoch"]), snapshot.next_offset
    state = snapshot.partition(METRICS, FUTURE_MS)
    state.count([LogMessage(0, payload) for payload in payloads(1, 1)])
    ((key, pane),) = ((key, pane) for key, pane in state.panes.items() if pane.batch_ids)
    while True:
        store.partition.commit(0, epoch, following, state, {})
        following = state.next_offset
        yield len(pane.batch_ids)
        if not (left := ids - len(pane.batch_ids)):
            return
        new = os.urandom(BATCH_ID_BYTES * min(ids_a_commit, left))
        pane.batch_ids.add(as_ids(new))
        pane.unsaved.append(new)
        state.changed[key] = pane
        state.advance_to(following + ids_a_commit)


def delete_partition(store: Store, topic: str) -> None:
    """Delete all keys of a topic's first partition."""
    for key in store.client.scan_iter(f"{tag(topic, 0)}:*", count=1_000):
        store.client.unlink(key)
