"""One metric for each mechanism, of the size that the benchmarks are about."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators import LocalMetric, define
from estimators.estimate import Counts
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import MECHANISMS, mechanism_class
from estimators.mechanisms.mechanism import Levels, Reports

CATEGORIES = 128
DIMENSION = 64
LEVELS = (0.5, 1, 2, 4)
DOMAINS: dict[str, dict[str, Any]] = {
    "mean": {"range": (-60, 180)},
    "vector_mean": {"dimension": DIMENSION, "radius": 1},
    "frequency": {"categories": CATEGORIES},
    "distribution": {"range": (-60, 180)},
}
WORDS = np.array([f"word {number}" for number in range(CATEGORIES)])


def metric_of(mechanism: str, levels: tuple[float, ...] = LEVELS) -> LocalMetric:
    """Return a metric with a mechanism: a frequency if the mechanism serves several kinds."""
    kind = min(MECHANISMS[mechanism])
    randomizer = mechanism_class(mechanism, kind)
    domain = DOMAINS[kind] if randomizer.closed_vocabulary else {"categories": "open"}
    if randomizer.discovers:
        domain = domain | {"discover": True, "preset": "text"}
    return define(name=mechanism, kind=kind, mechanism=mechanism, levels=levels, **domain)


BY_MECHANISM = {name: metric_of(name) for name in MECHANISMS}

SIZES = dict.fromkeys(MECHANISMS, 50_000) | {
    "randomized_response": 1_000_000,
    "windows": 1_000_000,
    "laplace": 200_000,
    "grr": 500_000,
    "hadamard_response": 500_000,
    "recursive_hadamard": 500_000,
    "projection": 500_000,
    "projective_geometry_response": 100_000,
    **dict.fromkeys(("caps", "lifted_caps"), 2_000),
    "hemisphere": 10_000,
    "dyadic_hadamard": 200_000,
}
"""Reports that are randomized at a time, which takes about a hundred milliseconds."""


def population(metric: LocalMetric, size: int) -> tuple[NDArray[Any], Levels]:
    """Return values and levels of `size` users."""
    rng = np.random.default_rng(7)
    level = rng.integers(0, len(metric.levels), size).astype(np.uint8)
    if metric.kind == "frequency":
        if metric.categories == "open":
            return rng.choice(WORDS, size), level
        return rng.integers(0, len(metric.category_names), size), level
    if metric.kind == "vector_mean":
        return rng.normal(0, 0.5 / np.sqrt(DIMENSION), (size, DIMENSION)), level
    assert metric.range is not None  # noqa: S101
    low, high = metric.range
    return rng.uniform(low, high, size), level


def reports_of(metric: LocalMetric, size: int) -> tuple[Levels, Reports]:
    """Return levels and reports of `size` users."""
    values, level = population(metric, size)
    return level, metric.randomize(values, level, SeededBits(7))


def sums_of(metric: LocalMetric, size: int) -> Counts:
    """Return the statistic of the reports of `size` users."""
    statistic = metric.zero()
    metric.accumulate(statistic, *reports_of(metric, size))
    return statistic
