"""Panes in Redis for stages that read them."""

from __future__ import annotations

from collections.abc import Mapping

from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey
from aggregator.state.partition import Partition
from aggregator.state.watermark import Watermark
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from estimators import Metric
from estimators.estimate import Counts


def write_panes(
    store: Store,
    number: int,
    panes: Mapping[PaneKey, tuple[Metric, Counts]],
    watermarks: Mapping[str, int],
    facts: Mapping[str, int] | None = None,
    accepted: Mapping[str, int] | None = None,
) -> None:
    """Write a partition's panes, closed but for running totals, its watermarks and its counts."""
    epoch = int(store.partition.acquire(number, "bench").owner["epoch"])
    partition = Partition({metric.name: metric for metric, _ in panes.values()}, 0)
    for key, (metric, statistic) in panes.items():
        pane = Pane(metric, 0, statistic, closed=key.grain != "total")
        partition.panes[key] = partition.changed[key] = pane
    for question, end_ms in watermarks.items():
        partition.watermarks[question] = Watermark(end_ms, end_ms, end_ms)
    for name, reports in (accepted or {}).items():
        partition.counts[f"accepted:{name}"] = reports
    partition.next_offset = 1
    assert store.partition.commit(number, epoch, UNSET, partition, dict(facts or {}))  # noqa: S101
