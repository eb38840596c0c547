"""Reading the last 24 hours of 1-minute panes, against fetching the same panes from Redis alone.

Panes are of 1,024 categories and 16 levels in 6 partitions. Complete hours are read as such.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from aggregator.features.reader import Reader
from aggregator.state.pane import Pane
from aggregator.state.pane_cover import spans
from aggregator.state.pane_keys import GRAINS_MS, PaneKey, metric_key
from aggregator.state.partition import Partition
from aggregator.state.watermark import Watermark
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import reports_of
from benchmarks.places import Places
from estimators import Metric, define
from estimators.estimate import Counts

PARTITIONS = 6
CATEGORIES = 1024
LEVELS = [0.25 * step for step in range(1, 17)]
REPORTS = 20_000
MINUTE_MS, HOUR_MS = 60_000, GRAINS_MS["hour"]
DAY_MS = GRAINS_MS["day"]
FROM_MS = 20_000 * DAY_MS + 12 * HOUR_MS
WINDOWS = {"to the hour": FROM_MS, "to the minute": FROM_MS + HOUR_MS // 2}
"""Both 24 hours long; the second has 60 minutes that are not in a complete hour."""


def benchmarks(places: Places) -> Iterator[Benchmark]:
    metric = define(
        name="wide",
        kind="frequency",
        mechanism="rappor",
        categories=max(2, places.sized(CATEGORIES)),
        levels=LEVELS,
        pane="1m",
    )
    with Store(connect(places.redis), "window") as store:
        level, reports = reports_of(metric, places.sized(REPORTS))
        statistic = metric.zero()
        metric.accumulate(statistic, level, reports)
        reached = FROM_MS + DAY_MS + HOUR_MS
        _fill(store, metric, statistic, reached)
        reader = Reader(store, {metric.name: metric})
        for told, start in WINDOWS.items():
            key = metric_key(metric.name, metric.revision)
            cut = [
                (number, span)
                for number in range(PARTITIONS)
                for span in spans(metric, reached, start, start + DAY_MS)
            ]
            keys = store.panes.find(key, cut)

            def ours(start: int = start) -> None:
                reader.estimate(metric.name, start / 1000, (start + DAY_MS) / 1000)

            def baseline(keys: list[tuple[int, PaneKey]] = keys) -> None:
                store.panes.statistics(keys)

            yield Benchmark(
                f"window/24 hours {told}/fetch",
                "reads/s",
                repeated(1, ours, time.perf_counter),
                repeated(1, baseline, time.perf_counter),
            )


def _fill(store: Store, metric: Metric, statistic: Counts, reached: int) -> None:
    """Write the panes of two days until `reached`: the hours, and the minutes at both ends."""
    name = metric_key(metric.name, metric.revision)
    first = FROM_MS - HOUR_MS
    minutes = [*range(first, FROM_MS + HOUR_MS, MINUTE_MS)]
    minutes += range(FROM_MS + DAY_MS - HOUR_MS, reached, MINUTE_MS)
    starts = [("pane", start) for start in minutes]
    starts += [("hour", start) for start in range(first, reached, HOUR_MS)]
    starts += [("day", first - first % DAY_MS), ("day", FROM_MS + DAY_MS - FROM_MS % DAY_MS)]
    for number in range(PARTITIONS):
        epoch = int(store.partition.acquire(number, "bench").owner["epoch"])
        partition = Partition({metric.name: metric}, 0)
        for grain, start in starts:
            key = PaneKey(grain, name, start)
            partition.panes[key] = partition.changed[key] = Pane(metric, 0, statistic, closed=True)
        partition.watermarks[name] = Watermark(reached, reached, reached)
        partition.next_offset = 1
        written = store.partition.commit(number, epoch, UNSET, partition, {})
        assert written  # noqa: S101
