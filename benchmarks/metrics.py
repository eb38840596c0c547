"""One metric for each mechanism, of the size that the benchmarks are about."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators import Metric
from estimators.mechanisms.mechanism import Levels, Reports
from estimators.randomness import SeededBits

CATEGORIES = 128
LEVELS = [0.5, 1, 2, 4]

BY_MECHANISM = {
    "randomized_response": Metric(
        name="late", kind="mean", mechanism="randomized_response", range=(0, 1), levels=LEVELS
    ),
    "laplace": Metric(
        name="delay", kind="mean", mechanism="laplace", range=(-60, 180), levels=LEVELS
    ),
    "rappor": Metric(
        name="carrier",
        kind="frequency",
        mechanism="rappor",
        categories=CATEGORIES,
        levels=LEVELS,
    ),
}
#: Reports at a time: about a hundred milliseconds' work.
SIZES = {"randomized_response": 1_000_000, "laplace": 200_000, "rappor": 50_000}


def population(metric: Metric, size: int) -> tuple[NDArray[np.generic], Levels]:
    """Return values and levels of so many users."""
    rng = np.random.default_rng(7)
    level = rng.integers(0, len(metric.levels), size).astype(np.uint8)
    if metric.kind == "frequency":
        return rng.integers(0, len(metric.category_names), size), level
    assert metric.range is not None  # noqa: S101
    low, high = metric.range
    return rng.uniform(low, high, size), level


def reports_of(metric: Metric, size: int) -> tuple[Levels, Reports]:
    """Return levels and reports of so many users."""
    values, level = population(metric, size)
    return level, metric.randomize(values, level, SeededBits(7))
