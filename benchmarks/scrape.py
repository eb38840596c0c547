"""A scrape of 50 metrics with 2,000 series, against encoding the same series alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from aggregator.features.reader import Reader
from aggregator.monitoring.collector import Exporter
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from benchmarks.redis_panes import write_panes
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits

PARTITIONS, MEANS, FREQUENCIES = 6, 30, 20
CATEGORIES, SHOWN_CATEGORIES = 30, 20
REPORTS = 2_000


def benchmarks(places: Places) -> Iterator[Benchmark]:
    mean: dict[str, Any] = {"kind": "mean", "mechanism": "laplace", "range": (0, 1)}
    frequency: dict[str, Any] = {"kind": "frequency", "mechanism": "rappor"}
    frequency["categories"] = CATEGORIES
    metrics: dict[str, LocalMetric] = {}
    for number in range(MEANS):
        metrics[f"m{number}"] = define(name=f"m{number}", levels=[0.5, 1, 2, 4], **mean)
    for number in range(FREQUENCIES):
        metrics[f"f{number}"] = define(name=f"f{number}", levels=[1, 4], **frequency)
    panes = {}
    for seed, metric in enumerate(metrics.values()):
        level = np.arange(REPORTS) % len(metric.levels)
        held = np.arange(REPORTS) % (CATEGORIES if metric.kind == "frequency" else 2)
        statistic = metric.zero()
        metric.accumulate(statistic, level, metric.randomize(held, level, SeededBits(seed)))
        key = PaneKey("total", metric_key(metric.name, metric.revision), 0)
        panes[key] = metric, statistic
    store, watermarks = Store(connect(places.redis), "scrape"), {key.metric: 1 for key in panes}
    for number in range(PARTITIONS):
        accepted = dict.fromkeys(metrics, REPORTS)
        write_panes(store, number, panes, watermarks, {"updated": 1}, accepted)
    reader = Reader(store, metrics)
    warm = Exporter(reader, SHOWN_CATEGORIES)
    families = list(warm.collect())
    for name, scrape in (
        ("nothing new", lambda: _encode(warm)),
        ("everything new", lambda: _encode(Exporter(reader, SHOWN_CATEGORIES))),
    ):
        yield Benchmark(
            f"scrape/{name}/encode",
            "scrapes/s",
            repeated(1, scrape, time.perf_counter),
            repeated(1, lambda: _encode(Collected(families)), time.perf_counter),
        )


class Collected:
    """Families that were collected before."""

    def __init__(self, families: Iterable[object]) -> None:
        self.collect = families.__iter__


def _encode(exporter: object) -> object:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)  # type: ignore[arg-type]
    return generate_latest(registry)
