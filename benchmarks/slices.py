"""Counting and reading with 1,000 slices, against the same without slices, and fetching alone."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from aggregator.features.reader import Reader
from aggregator.reading.query import Query
from aggregator.state.pane_keys import SLICES, PaneKey, metric_key, slices_key
from aggregator.state.slice_tables import by_chunk, empty_chunk
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.batches import TIME_MS, LogMessage, count_messages
from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import LEVELS, reports_of
from benchmarks.places import Places
from benchmarks.redis_panes import write_panes
from estimators import LocalMetric, define
from estimators.estimate import Counts
from producers.wire.batch import encode_batch

PARTITIONS, HOURS, HOUR_MS = 12, 24, 3_600_000
ATTRIBUTES = {
    "country": [f"c{i:02}" for i in range(38)],
    "version": [f"v{i:02}" for i in range(23)],
}
"""With `other` and `none` 1,000 slices."""
BATCHES = {1: 20_000, 1_000: 2_000, 10_000: 1_000}
FIELDS: dict[str, Any] = {
    "name": "late",
    "kind": "mean",
    "mechanism": "randomized_response",
    "range": (0, 1),
    "levels": LEVELS,
    "pane": "1h",
}
PLAIN = define(**FIELDS)
SLICED = define(**FIELDS, by=[*ATTRIBUTES], attributes=ATTRIBUTES)
QUERY = Query(0, HOURS * HOUR_MS / 1000, by=("country",))


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for reports, max_batches in BATCHES.items():
        batches = places.sized(max_batches)
        sides = []
        for metric in (SLICED, PLAIN):
            messages = _messages(metric, batches, reports)
            count = functools.partial(count_messages, {metric.name: metric}, messages)
            sides.append(repeated(batches * reports, count))
        yield Benchmark(f"slices/count batches of {reports}/without", "reports/s", *sides)
    with Store(connect(places.redis), "slices") as store:
        for number in range(PARTITIONS):
            end = {metric_key(SLICED.name, SLICED.revision): HOURS * HOUR_MS}
            write_panes(store, number, _day_of_panes(number), end, {"partitions": PARTITIONS})
        reader = Reader(store, {SLICED.name: SLICED})
        window = reader.window(SLICED.name, QUERY)
        key, numbers = metric_key(SLICED.name, SLICED.revision), range(PARTITIONS)
        cover = functools.partial(reader.sums.cover, window, (SLICES,))
        panes = store.panes.read_slices(
            key, numbers, lambda keys, ask: store.panes.find(cover(keys), ask)
        )
        yield Benchmark(
            f"slices/{HOURS} hours by country/fetch",
            "reads/s",
            repeated(1, functools.partial(reader.window, SLICED.name, QUERY), time.perf_counter),
            repeated(1, functools.partial(store.panes.statistics, panes), time.perf_counter),
        )


def _messages(metric: LocalMetric, batches: int, reports: int) -> list[LogMessage]:
    """Return batches of devices whose attributes go through all declared values."""
    level, answers = reports_of(metric, reports)
    messages = []
    for number in range(batches):
        attributes = {name: values[number % len(values)] for name, values in ATTRIBUTES.items()}
        batch_id = number.to_bytes(16, "big")
        payload = encode_batch(metric, level, answers, TIME_MS, batch_id, attributes=attributes)
        messages.append(LogMessage(number, payload))
    return messages


def _day_of_panes(seed: int) -> dict[PaneKey, tuple[LocalMetric, Counts]]:
    """Return hourly tables with every slice, and the metric's own hours."""
    assert SLICED.slicing is not None  # noqa: S101
    rng, size = np.random.default_rng(seed), SLICED.slicing.size
    panes = {}
    for start in range(0, HOURS * HOUR_MS, HOUR_MS):
        rows = np.sort(rng.integers(0, 100, (size, SLICED.zero().size)))
        rows[:, ::2], rows[:, 1::2] = rows[:, 1::2], rows[:, ::2].copy()
        key = PaneKey("pane", metric_key(SLICED.name, SLICED.revision), start)
        panes[key] = SLICED, rows.sum(axis=0)
        for chunk, positions, chunk_rows in by_chunk(SLICED, np.arange(size), rows):
            table = empty_chunk(SLICED)
            table[positions] = chunk_rows
            panes[PaneKey(SLICES, slices_key(SLICED, chunk), start)] = SLICED, table
    return panes
