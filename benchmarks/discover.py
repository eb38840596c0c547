"""A search for frequent strings at four levels, against the reads of its tables alone."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Benchmark, Figure, repeated
from benchmarks.metrics import metric_of
from benchmarks.places import Places
from estimators.discovery.prefix_search import BEAM_WIDTH
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import PrefixTree

LEVELS = (1.0, 2.0, 3.0, 4.0)
"""Each has more than 1% of the information, so that none is left out of the search."""
REPORTS = 500_000
STRINGS = 2_000
"""So many different ones, with frequencies like 1, 1/2, 1/3."""


def benchmarks(places: Places) -> Iterator[Benchmark | Figure]:
    metric = metric_of("prefix_tree", LEVELS)
    mechanism = metric.randomizer
    assert isinstance(mechanism, PrefixTree)  # noqa: S101
    rng = np.random.default_rng(7)
    size = places.sized(REPORTS)
    chances = 1 / np.arange(1, STRINGS + 1)
    held = rng.choice(STRINGS, size, p=chances / chances.sum())
    names = np.array([f"page {number}" for number in range(STRINGS)])
    level = rng.integers(0, len(LEVELS), size)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(names[held], level, SeededBits(7)))
    layout = mechanism.layout
    reads = [BEAM_WIDTH << width for width in layout.widths[1:]]
    tables = [rng.random(tree.points) for tree in layout.trees]
    places_of = [rng.integers(0, table.size, max(reads)) for table in tables]
    yield Benchmark(
        "discover/four levels/gather",
        "searches/s",
        repeated(1, functools.partial(metric.discover, statistic)),
        repeated(1, functools.partial(gather, tables, places_of, reads)),
    )
    began = time.process_time()
    metric.discover(statistic)
    yield Figure("discover/four levels", time.process_time() - began, "s of a core")


def gather(tables: list[Floats], places: list[NDArray[np.int64]], reads: list[int]) -> None:
    """Read as many numbers as a search does: each level's at each continuation of a prefix."""
    for table, at in zip(tables, places, strict=True):
        for size in reads:
            table.take(at[:size]).sum()
