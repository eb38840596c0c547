"""Asking an open vocabulary for strings, against reading as many cells of the same statistic."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import CountSketch, ProjectiveSketch

STRINGS = 1000
LEVEL_REPORTS = 1000


def metric_of(mechanism: str, levels: list[float], **options: int) -> LocalMetric:
    """Return a metric of strings."""
    return define(
        name="words",
        kind="frequency",
        mechanism=mechanism,
        categories="open",
        levels=levels,
        options=options,
    )


METRICS = (
    metric_of("count_sketch", [0.5, 1, 1.5, 2, 3, 4, 5, 6], rows=512, buckets=128),
    metric_of("projective_sketch", [0.5, 1, 2, 6]),
)
"""A million cells at eight levels; 1.5 million at four, of about 1,024 rows."""


def cells_of_a_string(metric: LocalMetric) -> int:
    """Return the number of cells that one string reads."""
    mechanism = metric.randomizer
    if isinstance(mechanism, ProjectiveSketch):
        return sum(table.rows for table in mechanism.hashed_rows)
    assert isinstance(mechanism, CountSketch)  # noqa: S101
    return len(metric.levels) * mechanism.rows


def benchmarks(places: Places) -> Iterator[Benchmark]:
    strings = places.sized(STRINGS)
    names = [f"word {index}" for index in range(strings)]
    for metric in METRICS:
        level = np.repeat(np.arange(len(metric.levels)), LEVEL_REPORTS)
        statistic = metric.zero()
        metric.accumulate(
            statistic, level, metric.randomize(["a"] * level.size, level, SeededBits(7))
        )
        size = strings * cells_of_a_string(metric)
        cells = np.random.default_rng(7).integers(0, statistic.size, size)
        for bound in ("fixed", "anytime"):
            ours = functools.partial(metric.estimate, statistic, bound=bound, categories=names)
            take = functools.partial(statistic.take, cells)
            sides = repeated(strings, ours), repeated(strings, take)
            yield Benchmark(f"ask/{metric.mechanism} {bound}/take", "strings/s", *sides)
