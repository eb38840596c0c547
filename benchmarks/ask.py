"""Asking an open vocabulary for strings, against reading as many cells of the same statistic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from estimators import define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import CountSketch

STRINGS = 1000
METRIC = define(
    name="words",
    kind="frequency",
    mechanism="count_sketch",
    categories="open",
    levels=[0.5, 1, 1.5, 2, 3, 4, 5, 6],
    options={"rows": 512, "buckets": 128},
)
"""A million cells at eight levels."""


def benchmarks(places: Places) -> Iterator[Benchmark]:
    assert isinstance(METRIC.randomizer, CountSketch)  # noqa: S101
    level = np.repeat(np.arange(len(METRIC.levels)), 1000)
    statistic = METRIC.zero()
    reports = METRIC.randomize(["a"] * level.size, level, SeededBits(7))
    METRIC.accumulate(statistic, level, reports)
    strings = places.sized(STRINGS)
    names = [f"word {index}" for index in range(strings)]
    cells = np.random.default_rng(7).integers(
        0, statistic.size, len(METRIC.levels) * strings * METRIC.randomizer.rows
    )
    for bound in ("fixed", "anytime"):

        def ours(bound: str = bound) -> None:
            METRIC.estimate(statistic, bound=bound, categories=names)

        yield Benchmark(
            f"ask/count_sketch {bound}/take",
            "strings/s",
            repeated(strings, ours),
            repeated(strings, lambda: statistic.take(cells)),
        )
