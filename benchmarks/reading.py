"""One estimate of a store with many metrics, against the same of a store with 20.

Each metric has panes of an hour in 6 partitions, the one that is asked a day of them. Its answer is
in the reader's cache: what is measured is the read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any

from aggregator.features.reader import Reader
from aggregator.state.pane_keys import GRAINS_MS, PaneKey, metric_key
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import reports_of
from benchmarks.places import Places
from benchmarks.redis_panes import write_panes
from estimators import LocalMetric, Metric, define

PARTITIONS, HOURS, REPORTS = 6, 24, 300
FEW_METRICS, MANY_METRICS = 20, (200, 1_000)
HOUR_MS = GRAINS_MS["hour"]
QUESTIONS: dict[str, dict[str, Any]] = {
    "running total": {},
    "last hour": {"start": "1h"},
    "day": {"start": 0, "end": 86_400},
}


def benchmarks(places: Places) -> Iterator[Benchmark]:
    with contextlib.ExitStack() as stack:
        few, *many = (
            (
                count,
                _reader(
                    stack.enter_context(Store(connect(places.redis), f"reading-{count}")), count
                ),
            )
            for count in (FEW_METRICS, *MANY_METRICS)
        )
        for count, reader in many:
            for name, window in QUESTIONS.items():
                sides = (
                    repeated(
                        1, functools.partial(each.estimate, "metric_0", **window), time.perf_counter
                    )
                    for each in (reader, few[1])
                )
                yield Benchmark(
                    f"reading/{name} of {count:,} metrics/{FEW_METRICS} metrics", "reads/s", *sides
                )


def _reader(store: Store, count: int) -> Reader:
    """Return a reader of so many metrics, with closed panes in each partition."""
    options: dict[str, Any] = {"range": (0, 1), "levels": [0.5, 1, 2], "pane": "1h"}
    asked = LocalMetric.require(define(name="metric_0", kind="mean", **options))
    names = [f"metric_{number}" for number in range(count)]
    metrics: dict[str, Metric] = {name: dataclasses.replace(asked, name=name) for name in names}
    keys = {name: metric_key(name, metric.revision) for name, metric in metrics.items()}
    statistic = asked.zero()
    asked.accumulate(statistic, *reports_of(asked, REPORTS))
    panes = {}
    for name, metric in metrics.items():
        for hour in range(HOURS if metric.name == asked.name else 1):
            panes[PaneKey("pane", keys[name], hour * HOUR_MS)] = metric, statistic
        panes[PaneKey("total", keys[name], 0)] = metric, statistic
    ends = dict.fromkeys(keys.values(), HOURS * HOUR_MS)
    for number in range(PARTITIONS):
        write_panes(store, number, panes, ends, {"partitions": PARTITIONS})
    return Reader(store, metrics)
