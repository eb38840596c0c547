"""Counting and reading with 1,000 slices, against the same without slices, and fetching alone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from aggregator.features.reader import Reader
from aggregator.reading.query import Query
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import SLICES, PaneKey, metric_key, slices_key
from aggregator.state.partition import Partition
from aggregator.state.slice_tables import by_chunk, empty_chunk
from aggregator.state.watermark import Watermark
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, TIME_MS, LogMessage
from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import LEVELS, reports_of
from benchmarks.places import Places
from estimators import LocalMetric, Metric, define
from producers.wire.batch import encode_batch

PARTITIONS, HOURS, HOUR_MS = 12, 24, 3_600_000
COUNTRIES, VERSIONS = 38, 23
"""With `other` and `none` 1,000 slices."""
BATCHES = {1: 20_000, 1_000: 2_000, 10_000: 1_000}


def _metric(**fields: object) -> LocalMetric:
    return LocalMetric.require(
        define(
            name="late",
            kind="mean",
            mechanism="randomized_response",
            range=(0, 1),
            levels=LEVELS,
            pane="1h",
            **fields,
        )
    )


PLAIN = _metric()
SLICED = _metric(
    by=["country", "version"],
    attributes={
        "country": [f"c{i:02}" for i in range(COUNTRIES)],
        "version": [f"v{i:02}" for i in range(VERSIONS)],
    },
)


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for reports, most in BATCHES.items():
        batches = places.sized(most)
        sides = []
        for metric in (SLICED, PLAIN):
            messages = _messages(metric, batches, reports)

            def count(messages: list[LogMessage] = messages, metric: Metric = metric) -> None:
                partition = Partition({metric.name: metric}, FUTURE_MS)
                for start in range(0, len(messages), 1_000):
                    partition.count(messages[start : start + 1_000])

            sides.append(repeated(batches * reports, count))
        yield Benchmark(f"slices/count batches of {reports}/without", "reports/s", *sides)
    with Store(connect(places.redis), "slices") as store:
        _fill(store)
        reader = Reader(store, {SLICED.name: SLICED})
        start, end = 0, HOURS * HOUR_MS / 1000
        window = reader.window(SLICED.name, Query(start, end, by=("country",)))
        keys = store.panes.slice_keys(metric_key(SLICED.name, SLICED.revision), range(PARTITIONS))
        found = [one for key in keys for one in reader.sums.find_panes(window, (SLICES,), key)]

        def ours() -> None:
            reader.window(SLICED.name, Query(start, end, by=("country",)))

        yield Benchmark(
            f"slices/{HOURS} hours by country/fetch",
            "reads/s",
            repeated(1, ours, time.perf_counter),
            repeated(1, lambda: store.panes.statistics(found), time.perf_counter),
        )


def _messages(metric: LocalMetric, batches: int, reports: int) -> list[LogMessage]:
    """Return batches of devices whose attributes go through all declared values."""
    level, answers = reports_of(metric, reports)
    return [
        LogMessage(
            number,
            encode_batch(
                metric,
                level,
                answers,
                TIME_MS,
                number.to_bytes(16, "big"),
                attributes={
                    "country": f"c{number % COUNTRIES:02}",
                    "version": f"v{number % VERSIONS:02}",
                },
            ),
        )
        for number in range(batches)
    ]


def _fill(store: Store) -> None:
    """Write a day of tables with every slice, and the metric's own hours."""
    assert SLICED.slicing is not None  # noqa: S101
    rng, size = np.random.default_rng(0), SLICED.slicing.size
    for number in range(PARTITIONS):
        epoch = int(store.partition.acquire(number, "bench").owner["epoch"])
        partition = Partition({SLICED.name: SLICED}, 0)
        for hour in range(HOURS):
            rows = np.sort(rng.integers(0, 100, (size, SLICED.zero().size)))
            rows[:, ::2], rows[:, 1::2] = rows[:, 1::2], rows[:, ::2].copy()
            whole = PaneKey("pane", metric_key(SLICED.name, SLICED.revision), hour * HOUR_MS)
            partition.panes[whole] = partition.changed[whole] = Pane(
                SLICED, 0, rows.sum(axis=0), closed=True
            )
            for chunk, places, those in by_chunk(SLICED, np.arange(size), rows):
                key = PaneKey(SLICES, slices_key(SLICED, chunk), hour * HOUR_MS)
                table = empty_chunk(SLICED)
                table[places] = those
                partition.panes[key] = partition.changed[key] = Pane(SLICED, 0, table, closed=True)
        reached = HOURS * HOUR_MS
        partition.watermarks[metric_key(SLICED.name, SLICED.revision)] = Watermark(
            reached, reached, reached
        )
        partition.next_offset = 1
        written = store.partition.commit(
            number, epoch, UNSET, partition, {"partitions": PARTITIONS}
        )
        assert written  # noqa: S101
