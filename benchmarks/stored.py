"""Stages that write to Redis and read from it: commits, windows, slices, scrapes, takeovers."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.features.reader import Reader
from aggregator.monitoring.collector import Exporter
from aggregator.monitoring.families import Collected, text_of
from aggregator.reading.query import Query
from aggregator.state.pane import Pane
from aggregator.state.pane_cover import COVER_GRAINS, spans
from aggregator.state.pane_keys import GRAINS_MS, SLICES, PaneKey, metric_key, slices_key, width_ms
from aggregator.state.partition import Partition
from aggregator.state.slice_tables import by_chunk, empty_chunk
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, METRICS, TIME_MS, LogMessage, count_messages
from benchmarks.measure import Benchmark, Figure, Outcome, compared, stage
from benchmarks.metrics import LEVELS, reports_of, sums_of
from benchmarks.places import Places
from benchmarks.redis_panes import Panes, commit_ids, delete_partition, write_panes
from estimators import LocalMetric, define
from producers.wire.batch import encode_batch

CELLS, COMMITS = 4_096, 100


@stage("commit")
def commit(places: Places) -> Iterator[Benchmark]:
    """Committing one changed pane with its offset, against a bare SET of the pane's bytes."""
    metric = define(
        name="wide", kind="frequency", mechanism="rappor", categories=CELLS - 1, levels=[1]
    )
    client = connect(places.redis)
    store = Store(client, "bench")
    epoch = int(store.partition.acquire(0, "bench").owner["epoch"])
    partition, pane = Partition({metric.name: metric}, 0), Pane(metric, 0, metric.zero())
    key = PaneKey("pane", metric_key(metric.name, metric.revision), 0)
    partition.panes[key] = pane
    owned, value = AssignedPartition(0, epoch, partition, UNSET, {}), pane.statistic.tobytes()

    def ours() -> None:
        for _ in range(COMMITS):
            partition.changed[key] = pane
            partition.next_offset += 1
            owned.commit(store, partition.next_offset)

    def baseline() -> None:
        for _ in range(COMMITS):
            client.set("bench", value)

    name = f"commit/{CELLS} cells/set"
    yield compared(name, "commits/s", COMMITS, ours, baseline, time.perf_counter)


READ_PARTITIONS = 6
WINDOW_CATEGORIES, WINDOW_REPORTS = 1024, 20_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, GRAINS_MS["hour"], GRAINS_MS["day"]
FROM_MS = 20_000 * DAY_MS + 12 * HOUR_MS
REACHED_MS = FROM_MS + DAY_MS + HOUR_MS
WINDOWS = {"to the hour": FROM_MS, "to the minute": FROM_MS + HOUR_MS // 2}
"""Both 24 hours long; the second has 60 minutes that are not in a complete hour."""
STARTS = {
    "pane": (
        *range(FROM_MS - HOUR_MS, FROM_MS + HOUR_MS, MINUTE_MS),
        *range(FROM_MS + DAY_MS - HOUR_MS, REACHED_MS, MINUTE_MS),
    ),
    "hour": range(FROM_MS - HOUR_MS, REACHED_MS, HOUR_MS),
    "day": [start - start % DAY_MS for start in (FROM_MS, FROM_MS + DAY_MS)],
}
"""Panes of two days, by grain: the hours, and the minutes at both ends."""


@stage("window")
def window(places: Places) -> Iterator[Benchmark]:
    """Reading the last 24 hours of 1-minute panes, against fetching the same panes from Redis.

    Panes are of 1,024 categories and 16 levels in 6 partitions. Complete hours are read as such.
    """
    metric = define(
        name="wide", kind="frequency", mechanism="rappor",
        categories=max(2, places.sized(WINDOW_CATEGORIES)),
        levels=[0.25 * step for step in range(1, 17)], pane="1m",
    )  # fmt: skip
    with Store(connect(places.redis), "window") as store:
        pane = metric, sums_of(metric, places.sized(WINDOW_REPORTS))
        question, numbers = metric_key(metric.name, metric.revision), range(READ_PARTITIONS)
        panes = {PaneKey(grain, question, at): pane for grain, x in STARTS.items() for at in x}
        write_panes(store, numbers, panes, {question: REACHED_MS})
        reader = Reader(store, {metric.name: metric})
        widths_ms = {grain: width_ms(grain, metric) for grain in COVER_GRAINS}
        for name, start in WINDOWS.items():
            cover = [*spans(REACHED_MS, start, start + DAY_MS, widths_ms)]
            keys = store.panes.find([(n, question, span) for n in numbers for span in cover])
            query = Query(start / 1000, (start + DAY_MS) / 1000)
            yield compared(
                *(f"window/24 hours {name}/fetch", "reads/s", 1),
                functools.partial(_read_and_estimate, reader, metric.name, query),
                functools.partial(store.panes.statistics, keys),
                time.perf_counter,
            )


def _read_and_estimate(reader: Reader, name: str, query: Query) -> None:
    """Read and estimate a window; no answer comes from the cache."""
    reader.answer(reader.window(name, query), query)


SLICE_PARTITIONS, HOURS = 12, 24
ATTRIBUTES = {
    "country": [f"c{i:02}" for i in range(38)],
    "version": [f"v{i:02}" for i in range(23)],
}
"""With `other` and `none` they make 1,000 slices."""
SLICED_BATCHES = {1: 20_000, 1_000: 2_000, 10_000: 1_000}
FIELDS: dict[str, Any] = {
    "name": "late", "kind": "mean", "mechanism": "randomized_response", "range": (0, 1),
    "levels": LEVELS, "pane": "1h",
}  # fmt: skip
PLAIN = define(**FIELDS)
SLICED = define(**FIELDS, by=[*ATTRIBUTES], attributes=ATTRIBUTES)
BY_COUNTRY = Query(0, HOURS * HOUR_MS / 1000, by=("country",))


@stage("slices")
def slices(places: Places) -> Iterator[Benchmark]:
    """Counting and reading with 1,000 slices, against the same without slices, and fetching."""
    for reports, max_batches in SLICED_BATCHES.items():
        batches = places.sized(max_batches)
        ours, baseline = (
            functools.partial(
                count_messages, {metric.name: metric}, _sliced_log(metric, batches, reports)
            )
            for metric in (SLICED, PLAIN)
        )
        name = f"slices/count batches of {reports}/without"
        yield compared(name, "reports/s", batches * reports, ours, baseline)
    with Store(connect(places.redis), "slices") as store:
        key, numbers = metric_key(SLICED.name, SLICED.revision), range(SLICE_PARTITIONS)
        for number in numbers:
            panes = _day_of_panes(number)
            write_panes(store, [number], panes, {key: HOURS * HOUR_MS}, len(numbers))
        reader = Reader(store, {SLICED.name: SLICED})
        cover = functools.partial(
            reader.sums.cover, reader.window(SLICED.name, BY_COUNTRY), (SLICES,)
        )
        fetched = store.panes.read_slices(
            key, numbers, lambda keys, ask: store.panes.find(cover(keys), ask)
        )
        yield compared(
            *(f"slices/{HOURS} hours by country/fetch", "reads/s", 1),
            lambda: reader.window(SLICED.name, BY_COUNTRY),
            lambda: store.panes.statistics(fetched),
            time.perf_counter,
        )


def _sliced_log(metric: LocalMetric, batches: int, reports: int) -> list[LogMessage]:
    """Return batches of devices whose attributes go through all declared values."""
    level, answers = reports_of(metric, reports)
    messages = []
    for number in range(batches):
        attributes = {name: values[number % len(values)] for name, values in ATTRIBUTES.items()}
        batch_id = number.to_bytes(16, "big")
        payload = encode_batch(metric, level, answers, TIME_MS, batch_id, attributes=attributes)
        messages.append(LogMessage(number, payload))
    return messages


def _day_of_panes(seed: int) -> Panes:
    """Return hourly tables with every slice, and the metric's own hours."""
    assert SLICED.slicing is not None  # noqa: S101
    rng, size = np.random.default_rng(seed), SLICED.slicing.size
    panes: Panes = {}
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


SCRAPED_MEANS, SCRAPED_FREQUENCIES = 30, 20
SCRAPED_CATEGORIES, SHOWN_CATEGORIES = 30, 20


@stage("scrape")
def scrape(places: Places) -> Iterator[Benchmark]:
    """A scrape of 50 metrics with 2,000 series, against encoding the same series alone."""
    mean: dict[str, Any] = {"kind": "mean", "mechanism": "laplace", "range": (0, 1)}
    mean["levels"] = [0.5, 1, 2, 4]
    frequency: dict[str, Any] = {"kind": "frequency", "mechanism": "rappor", "levels": [1, 4]}
    frequency["categories"] = SCRAPED_CATEGORIES
    kinds = [mean] * SCRAPED_MEANS + [frequency] * SCRAPED_FREQUENCIES
    metrics = {f"m{i}": define(name=f"m{i}", **fields) for i, fields in enumerate(kinds)}
    panes: Panes = {
        PaneKey("total", metric_key(name, metric.revision), 0): (metric, sums_of(metric, 2_000))
        for name, metric in metrics.items()
    }
    store = Store(connect(places.redis), "scrape")
    write_panes(store, range(READ_PARTITIONS), panes, {key.metric: 1 for key in panes})
    reader = Reader(store, metrics)
    warm = Exporter(reader, SHOWN_CATEGORIES)
    families = list(warm.collect())
    for name, exporter in (
        ("nothing new", lambda: warm),
        ("everything new", lambda: Exporter(reader, SHOWN_CATEGORIES)),
    ):
        yield compared(
            *(f"scrape/{name}/encode", "scrapes/s", 1),
            functools.partial(_encode, exporter),
            lambda: generate_latest(Collected(families)),
            time.perf_counter,
        )


def _encode(exporter: Callable[[], Exporter]) -> bytes:
    return text_of(exporter(), generate_latest, CONTENT_TYPE_LATEST)


TAKEN_IDS = (100_000, 1_000_000, 10_000_000)
IDS_A_COMMIT = 20_000
ASKING = """
import sys, threading, time
from aggregator.storage.connection import connect
client, ended, longest = connect(sys.argv[1]), threading.Event(), 0.0
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("asking", flush=True)
while not ended.wait(0.002):
    began = time.perf_counter()
    client.ping()
    longest = max(longest, time.perf_counter() - began)
print(longest)
"""


@stage("takeover")
def takeover(places: Places) -> Iterator[Outcome]:
    """Seconds until the next worker counts on, and how long Redis answers nobody else.

    Ids of batches are most of what a worker reads when it takes a partition over. They are
    committed, read back and deleted with their pane, while another client asks Redis every 2 ms.
    """
    for ids in TAKEN_IDS:
        name = f"takeover/{ids:.0e} batch ids".replace("e+0", "e")
        with Store(connect(places.redis), "takeover") as store:
            try:
                seconds, busy, waits = _taken_over(places, store, places.sized(ids))
            finally:
                delete_partition(store, "takeover")
        yield Figure(name, seconds, "s")
        yield Figure(f"{name}/processor", busy, "s")
        for phase, wait in waits.items():
            yield Figure(f"{name}/another's longest wait for Redis, {phase}", 1_000 * wait, "ms")


def _taken_over(places: Places, store: Store, ids: int) -> tuple[float, float, dict[str, float]]:
    """Return a takeover's seconds and processor seconds, and another client's waits by phase."""
    waits: dict[str, float] = {}
    with _asking(places, waits, "commits"):
        *_, committed = commit_ids(store, ids, IDS_A_COMMIT)
    with _asking(places, waits, "takeover"):
        began, busy = time.perf_counter(), time.process_time()
        snapshot = store.partition.acquire(0, "heir")
        state = snapshot.partition(METRICS, FUTURE_MS)
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
    assert sum(len(pane.batch_ids) for pane in state.panes.values()) == committed  # noqa: S101
    with _asking(places, waits, "closing"):
        following = state.next_offset
        for pane in state.panes.values():
            pane.closed = True
        state.changed.update(state.panes)
        state.advance_to(following + 1)
        store.partition.commit(0, int(snapshot.owner["epoch"]), following, state, {})
    return seconds, busy, waits


@contextlib.contextmanager
def _asking(places: Places, waits: dict[str, float], phase: str) -> Iterator[None]:
    """Let another client ask Redis meanwhile, and store its longest wait under `phase`."""
    command = [sys.executable, "-c", ASKING, places.redis]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as client:
        assert client.stdout is not None  # noqa: S101
        client.stdout.readline()
        yield
        waits[phase] = float(client.communicate()[0])
