"""A search for frequent strings at four levels, against the reads of its tables alone."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Benchmark, Figure, repeated
from benchmarks.metrics import metric_of
from benchmarks.places import Places
from estimators.discovery.prefix_search import BEAM_WIDTH
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
    rng, size = np.random.default_rng(7), places.sized(REPORTS)
    chances = 1 / np.arange(1, STRINGS + 1)
    held = rng.choice(STRINGS, size, p=chances / chances.sum())
    names = np.array([f"page {number}" for number in range(STRINGS)])
    level, statistic = rng.integers(0, len(LEVELS), size), metric.zero()
    metric.accumulate(statistic, level, metric.randomize(names[held], level, SeededBits(7)))
    reads = [BEAM_WIDTH << width for width in mechanism.layout.widths[1:]]
    tables = [rng.random(tree.points) for tree in mechanism.layout.trees]
    cells = [rng.integers(0, table.size, max(reads)) for table in tables]

    def gather() -> None:
        """Read as many numbers as a search does: each level's at each longer prefix."""
        for table, table_cells in zip(tables, cells, strict=True):
            for count in reads:
                table.take(table_cells[:count]).sum()

    search = functools.partial(metric.discover, statistic)
    sides = repeated(1, search), repeated(1, gather)
    yield Benchmark("discover/four levels/gather", "searches/s", *sides)
    began = time.process_time()
    search()
    yield Figure("discover/four levels", time.process_time() - began, "s of a core")
