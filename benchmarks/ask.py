"""Asking an open vocabulary for strings, against reading as many cells of the same statistic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import CountSketch, ProjectiveSketch

STRINGS = 1000


def metric_of(mechanism: str, levels: list[float], **options: int) -> LocalMetric:
    """Return a metric of strings."""
    definition: dict[str, Any] = {"kind": "frequency", "categories": "open", "levels": levels}
    found = define(name="words", mechanism=mechanism, options=options, **definition)
    return LocalMetric.require(found)


METRICS = (
    metric_of("count_sketch", [0.5, 1, 1.5, 2, 3, 4, 5, 6], rows=512, buckets=128),
    metric_of("projective_sketch", [0.5, 1, 2, 6]),
)
"""A million cells at eight levels; 1.5 million at four, of about 1,024 rows."""


def rows_of(metric: LocalMetric) -> int:
    """Return the number of cells that one string reads."""
    mechanism = metric.randomizer
    if isinstance(mechanism, ProjectiveSketch):
        return sum(each.rows for each in mechanism.hashed_rows)
    assert isinstance(mechanism, CountSketch)  # noqa: S101
    return len(metric.levels) * mechanism.rows


def benchmarks(places: Places) -> Iterator[Benchmark]:
    strings = places.sized(STRINGS)
    names = [f"word {index}" for index in range(strings)]
    for metric in METRICS:
        level = np.repeat(np.arange(len(metric.levels)), 1000)
        statistic = metric.zero()
        reports = metric.randomize(["a"] * level.size, level, SeededBits(7))
        metric.accumulate(statistic, level, reports)
        cells = np.random.default_rng(7).integers(0, statistic.size, strings * rows_of(metric))
        for bound in ("fixed", "anytime"):

            def ours(bound: str = bound, metric: Any = metric, statistic: Any = statistic) -> None:
                metric.estimate(statistic, bound=bound, categories=names)

            def read(statistic: Any = statistic, cells: Any = cells) -> None:
                statistic.take(cells)

            yield Benchmark(
                f"ask/{metric.mechanism} {bound}/take",
                "strings/s",
                repeated(strings, ours),
                repeated(strings, read),
            )
