"""A scrape of 50 metrics with 2,000 series, against encoding the same series alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from aggregator.features.reader import Reader
from aggregator.monitoring.collector import Exporter
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.state.watermark import Watermark
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits

PARTITIONS, MEANS, FREQUENCIES = 6, 30, 20
CATEGORIES, SHOWN = 30, 20
REPORTS = 2_000


def benchmarks(places: Places) -> Iterator[Benchmark]:
    means = (
        define(name=f"m{i}", kind="mean", mechanism="laplace", range=(0, 1), levels=[0.5, 1, 2, 4])
        for i in range(MEANS)
    )
    frequencies = (
        define(
            name=f"f{i}", kind="frequency", mechanism="rappor", categories=CATEGORIES, levels=[1, 4]
        )
        for i in range(FREQUENCIES)
    )
    metrics = {metric.name: metric for metric in (*means, *frequencies)}
    store = Store(connect(places.redis), "scrape")
    _count(store, metrics)
    reader = Reader(store, metrics)
    known = Exporter(reader, SHOWN)
    families = list(known.collect())

    class Alone:
        def collect(self) -> Iterator[object]:
            yield from families

    def encoding(exporter: object) -> object:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(exporter)  # type: ignore[arg-type]
        return generate_latest(registry)

    for name, scrape in (
        ("nothing new", lambda: encoding(known)),
        ("everything new", lambda: encoding(Exporter(reader, SHOWN))),
    ):
        yield Benchmark(
            f"scrape/{name}/encode",
            "scrapes/s",
            repeated(1, scrape, time.perf_counter),
            repeated(1, lambda: encoding(Alone()), time.perf_counter),
        )


def _count(store: Store, metrics: Mapping[str, LocalMetric]) -> None:
    """Put reports of every metric into every partition."""
    for number in range(PARTITIONS):
        snapshot = store.partition.acquire(number, "bench")
        partition = snapshot.partition(metrics, 0)
        for seed, metric in enumerate(metrics.values()):
            level = np.arange(REPORTS) % len(metric.levels)
            held = np.arange(REPORTS) % (CATEGORIES if metric.kind == "frequency" else 2)
            statistic = metric.zero()
            metric.accumulate(statistic, level, metric.randomize(held, level, SeededBits(seed)))
            key = metric_key(metric.name, metric.revision)
            total = PaneKey("total", key, 0)
            partition.panes[total] = partition.changed[total] = Pane(metric, 0, statistic)
            partition.watermarks[key] = Watermark(1, 1)
            partition.counts[f"accepted:{metric.name}"] = REPORTS
        written = store.partition.commit(
            number, int(snapshot.owner["epoch"]), UNSET, partition, {"updated": 1}
        )
        assert written  # noqa: S101
