"""Reading the last 24 hours of 1-minute panes, against fetching the same panes from Redis alone.

Panes are of 1,024 categories and 16 levels in 6 partitions. Complete hours are read as such.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

from aggregator.features.reader import Reader
from aggregator.reading.query import Query
from aggregator.state.pane_cover import spans
from aggregator.state.pane_keys import GRAINS_MS, PaneKey, metric_key
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import reports_of
from benchmarks.places import Places
from benchmarks.redis_panes import write_panes
from estimators import define

PARTITIONS = 6
CATEGORIES = 1024
LEVELS = [0.25 * step for step in range(1, 17)]
REPORTS = 20_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, GRAINS_MS["hour"], GRAINS_MS["day"]
FROM_MS = 20_000 * DAY_MS + 12 * HOUR_MS
REACHED_MS = FROM_MS + DAY_MS + HOUR_MS
WINDOWS = {"to the hour": FROM_MS, "to the minute": FROM_MS + HOUR_MS // 2}
"""Both 24 hours long; the second has 60 minutes that are not in a complete hour."""
MINUTES = (
    *range(FROM_MS - HOUR_MS, FROM_MS + HOUR_MS, MINUTE_MS),
    *range(FROM_MS + DAY_MS - HOUR_MS, REACHED_MS, MINUTE_MS),
)
PANES = [
    *(("pane", start) for start in MINUTES),
    *(("hour", start) for start in range(FROM_MS - HOUR_MS, REACHED_MS, HOUR_MS)),
    *(("day", start - start % DAY_MS) for start in (FROM_MS, FROM_MS + DAY_MS)),
]
"""Of two days: the hours, and the minutes at both ends."""


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
        statistic = metric.zero()
        metric.accumulate(statistic, *reports_of(metric, places.sized(REPORTS)))
        question = metric_key(metric.name, metric.revision)
        panes = {PaneKey(grain, question, start): (metric, statistic) for grain, start in PANES}
        for number in range(PARTITIONS):
            write_panes(store, number, panes, {question: REACHED_MS})
        reader = Reader(store, {metric.name: metric})
        for name, start in WINDOWS.items():
            end = start + DAY_MS
            cover = [
                (number, question, span)
                for number in range(PARTITIONS)
                for span in spans(metric, REACHED_MS, start, end)
            ]
            keys = store.panes.find(cover)
            ours = functools.partial(
                _estimate, reader, metric.name, Query(start / 1000, end / 1000)
            )
            yield Benchmark(
                f"window/24 hours {name}/fetch",
                "reads/s",
                repeated(1, ours, time.perf_counter),
                repeated(1, functools.partial(store.panes.statistics, keys), time.perf_counter),
            )


def _estimate(reader: Reader, name: str, query: Query) -> None:
    """Read and estimate a window; no answer comes from the cache."""
    reader.answer(reader.window(name, query), query)
