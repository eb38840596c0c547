"""Committing one changed pane with its offset, against a bare SET of the pane's bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from estimators import define

CELLS = 4_096
COMMITS = 100


def benchmarks(places: Places) -> Iterator[Benchmark]:
    metric = define(
        name="wide", kind="frequency", mechanism="rappor", categories=CELLS - 1, levels=[1]
    )
    client = connect(places.redis)
    store = Store(client, "bench")
    epoch = int(store.partition.acquire(0, "bench").owner["epoch"])
    partition = Partition({metric.name: metric}, 0)
    pane = Pane(metric, 0, metric.zero())
    key = PaneKey("pane", metric_key(metric.name, metric.revision), 0)
    partition.panes[key] = pane
    owned = AssignedPartition(0, epoch, partition, UNSET, {})

    def ours() -> None:
        for _ in range(COMMITS):
            partition.changed[key] = pane
            partition.next_offset += 1
            owned.commit(store, partition.next_offset)

    value = pane.statistic.tobytes()

    def baseline() -> None:
        for _ in range(COMMITS):
            client.set("bench", value)

    yield Benchmark(
        f"commit/{CELLS} cells/set",
        "commits/s",
        repeated(COMMITS, ours, time.perf_counter),
        repeated(COMMITS, baseline, time.perf_counter),
    )
