"""Reading estimates with bounds that hold, against the same with the normal law's."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import mechanisms_for

CATEGORIES = 1024
LEVELS = [0.1 * step for step in range(1, 65)]
REPORTS = 20_000
COPIES = 50
"""Of every report: a million in all."""


BINS = (256, 1024, 4096)
DIMENSION = 10
VECTORS = ("hemisphere", "caps", "lifted_caps")


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for name, mechanism in mechanisms_for("frequency").items():
        if mechanism.closed_vocabulary:
            metric = define(
                name="m",
                kind="frequency",
                mechanism=name,
                categories=max(2, places.sized(CATEGORIES)),
                levels=[round(epsilon, 1) for epsilon in LEVELS],
            )
            yield from _reads(name, metric)
    for bins in BINS:
        metric = define(
            name="m", kind="distribution", range=(0, 1), bins=bins, levels=[0.5, 1, 2, 4]
        )
        yield from _reads(f"{metric.mechanism} {bins}", metric)
    for name in VECTORS:
        metric = define(
            name="m",
            kind="vector_mean",
            mechanism=name,
            dimension=DIMENSION,
            radius=1,
            levels=[0.5, 1, 2, 4],
        )
        yield from _reads(name, metric)


def _reads(name: str, metric: LocalMetric) -> Iterator[Benchmark]:
    level = np.arange(REPORTS) % len(metric.levels)
    rng = np.random.default_rng(7)
    held: Any = rng.random(REPORTS) ** 3
    if metric.kind == "vector_mean":
        held = rng.normal(size=(REPORTS, DIMENSION)) + np.arange(DIMENSION) / DIMENSION
    if metric.categories is not None:
        held = np.floor(len(metric.labels) * held).astype(np.int64)
    statistic = metric.zero()
    reports = metric.randomize(held, level, SeededBits(7))
    metric.accumulate(statistic, level, reports)
    statistic *= COPIES
    for bound in ("fixed", "anytime"):
        yield Benchmark(
            f"read/{name} {bound}/normal",
            "estimates/s",
            repeated(1, functools.partial(metric.estimate, statistic, bound=bound)),
            repeated(1, functools.partial(metric.estimate, statistic, bound="normal")),
        )
