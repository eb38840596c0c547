"""Commands that print the tables of docs/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from estimators import LocalMetric
from estimators.estimate import Array, Counts
from estimators.exact.randomness import SeededBits


def print_table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown, each row as soon as it is there."""
    print(f"| {' | '.join(map(str, heads))} |", "|---" * len(heads) + "|", sep="\n", flush=True)
    for cells in rows:
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def sums_of(metric: LocalMetric, values: Array, reports: int) -> Counts:
    """Return the sums of reports, whose values are shuffled and spread evenly over the levels."""
    level, statistic = np.arange(reports) % len(metric.levels), metric.zero()
    held = np.random.default_rng(7).permutation(np.resize(values, reports))
    metric.accumulate(statistic, level, metric.randomize(held, level, SeededBits(7)))
    return statistic
