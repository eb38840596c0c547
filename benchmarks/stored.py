"""Stages that write to Redis and read from it: commits, windows, slices, scrapes, takeovers."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.features.reader import Reader
from aggregator.monitoring.collector import Exporter
from aggregator.monitoring.families import Collected, text_of
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, METRIC, METRICS, TIME_MS, LogMessage, count_messages
from benchmarks.measure import Benchmark, Figure, Outcome, compared, stage
from benchmarks.metrics import LEVELS, reports_of, sums_of
from benchmarks.places import Places
from benchmarks.redis_panes import Panes, commit_ids, delete_partition, write_panes
from estimators import LocalMetric, define
from producers.wire.batch import encode_batch

CELLS = 4_096


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
        partition.changed[key] = pane
        partition.next_offset += 1
        owned.commit(store, partition.next_offset)

    baseline = functools.partial(client.set, "bench", value)
    name = f"commit/{CELLS} cells/set"
    yield compared(name, "commits/s", 1, ours, baseline, time.perf_counter)


READ_PARTITIONS = 6
READ_METRICS = (20, 200, 1_000)


@stage("reading")
def reading(places: Places) -> Iterator[Benchmark]:
    """An estimate of one of many metrics, its bounds cached, against fetching its sums alone."""
    for count in READ_METRICS:
        names = [f"m{number}" for number in range(places.sized(count))]
        metrics = {name: dataclasses.replace(METRIC, name=name) for name in names}
        question = metric_key("m0", metrics["m0"].revision)
        with Store(connect(places.redis), f"reading-{count}") as store:
            _write_totals(store, metrics)
            reader = Reader(store, metrics)
            keys = [(n, PaneKey("total", question, 0)) for n in range(READ_PARTITIONS)]
            yield compared(
                *(f"reading/an estimate, {count} metrics/fetch", "reads/s", 1),
                functools.partial(reader.estimate, "m0"),
                functools.partial(store.panes.statistics, keys),
            )


def _write_totals(store: Store, metrics: Mapping[str, LocalMetric]) -> None:
    """Write a running total of each metric to each partition."""
    panes: Panes = {
        PaneKey("total", metric_key(name, metric.revision), 0): (metric, sums_of(metric, 2_000))
        for name, metric in metrics.items()
    }
    write_panes(store, range(READ_PARTITIONS), panes, {key.metric: 1 for key in panes})


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


@stage("slices")
def slices(places: Places) -> Iterator[Benchmark]:
    """Counting messages with 1,000 slices, against the same without slices."""
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
    store = Store(connect(places.redis), "scrape")
    _write_totals(store, metrics)
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


@stage("takeover")
def takeover(places: Places) -> Iterator[Outcome]:
    """Seconds until the next worker counts on: ids of batches are most of what it reads."""
    for ids in TAKEN_IDS:
        with Store(connect(places.redis), "takeover") as store:
            try:
                *_, committed = commit_ids(store, places.sized(ids), IDS_A_COMMIT)
                began = time.perf_counter()
                state = store.partition.acquire(0, "heir").partition(METRICS, FUTURE_MS)
                seconds = time.perf_counter() - began
                read = sum(len(pane.batch_ids) for pane in state.panes.values())
                assert read == committed  # noqa: S101
            finally:
                delete_partition(store, "takeover")
        yield Figure(f"takeover/{ids:.0e} batch ids".replace("e+0", "e"), seconds, "s")
