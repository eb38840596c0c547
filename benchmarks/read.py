"""Reading estimates with bounds that hold, against the same with the normal law's."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from estimators import define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import mechanisms_for

CATEGORIES = 1024
LEVELS = [0.1 * step for step in range(1, 65)]
REPORTS = 20_000
COPIES = 50
"""Of every report: a million in all."""


def benchmarks(places: Places) -> Iterator[Benchmark]:
    categories = max(2, places.sized(CATEGORIES))
    level = np.arange(REPORTS) % len(LEVELS)
    held = np.floor(categories * np.random.default_rng(7).random(REPORTS) ** 3).astype(np.int64)
    for name, mechanism in mechanisms_for("frequency").items():
        if not mechanism.closed_vocabulary:
            continue
        metric = define(
            name="m",
            kind="frequency",
            mechanism=name,
            categories=categories,
            levels=[round(epsilon, 1) for epsilon in LEVELS],
        )
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
