"""Shared by the estimators' tests: scripted randomness, and a small metric of each mechanism."""

import functools
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from estimators import LocalMetric, Metric, define
from estimators.estimate import Counts
from estimators.exact.randomness import SeededBits, Words
from estimators.mechanisms import MECHANISMS, mechanism_class

#: From strong privacy to almost none; 64 is the largest level that a metric may offer.
MANY_LEVELS = (0.0001, 0.0099, 0.25, 0.5, 1.0, 2.5, 4.0, 8.0, 16.0, 45.0, 64.0)
LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
CATEGORIES = 10
DIMENSION = 10
DOMAINS: dict[str, dict[str, Any]] = {
    "mean": {"range": (-1, 1)},
    "vector_mean": {"dimension": DIMENSION, "radius": 1},
    "frequency": {"categories": CATEGORIES},
    "distribution": {"range": (0, 1), "bins": CATEGORIES},
}

NAMES = tuple("abcdefghij")
#: The domain of a mechanism without a list of categories, which watches the same ten.
OPEN: dict[str, Any] = {"categories": "open", "watch": NAMES}

#: Further settings of a mechanism that discovers strings, with a small table.
DISCOVERED: dict[str, Any] = {
    "discover": True,
    "preset": "bytes",
    "options": {"last": 16, "rows": 8},
}

#: Further settings of a projective sketch, with a small table.
SKETCHED: dict[str, Any] = {"options": {"rows": 256, "points": 64}}

#: Every mechanism with each of its kinds, by name: the mechanism's, and the kind if it has two.
CASES = {
    name if len(by_kind) == 1 else f"{name}_{kind}": (name, kind)
    for name, by_kind in MECHANISMS.built_in.items()
    for kind in by_kind
}


class ScriptedBits:
    """Returns given words, and fails after them: a test states every bit that is used."""

    def __init__(self, *words: Iterable[int]) -> None:
        self.words = [word for part in words for word in part]

    def integers(self, n: int) -> Words:
        taken, self.words = self.words[:n], self.words[n:]
        assert len(taken) == n, f"{n - len(taken)} words more than the script has"
        return np.array(taken, dtype=np.uint64)


def metric_for(case: str, levels: Iterable[float] = LEVELS, **changes: Any) -> LocalMetric:
    """Return a metric with the mechanism and the kind of one of the CASES."""
    return _metric(case, tuple(levels)) if not changes else _defined(case, tuple(levels), changes)


@functools.cache
def _metric(case: str, levels: tuple[float, ...]) -> LocalMetric:
    return _defined(case, levels, {})


def _defined(case: str, levels: tuple[float, ...], changes: dict[str, Any]) -> LocalMetric:
    mechanism, kind = CASES[case]
    domain = DOMAINS[kind] if mechanism_class(mechanism, kind).closed_vocabulary else OPEN
    if mechanism_class(mechanism, kind).discovers:
        domain = domain | DISCOVERED
    if mechanism == "projective_sketch":
        domain = domain | SKETCHED
    definition = {"name": "m", "kind": kind, "mechanism": mechanism, "levels": levels}
    metric: LocalMetric = define(**{**definition, **domain, **changes})
    return metric


def values_for(metric: Metric, n: int, seed: int = 0) -> np.ndarray[Any, np.dtype[Any]]:
    """Return `n` values of a metric's domain, with unequal frequencies."""
    if metric.kind == "vector_mean":
        vectors = np.random.default_rng(seed).normal(0.1, 0.2, (n, DIMENSION))
        shortened: np.ndarray[Any, np.dtype[Any]] = vectors / np.maximum(
            np.linalg.norm(vectors, axis=1, keepdims=True), 1
        )
        return shortened
    uniform = np.random.default_rng(seed).random(n)
    if metric.kind == "mean":
        return 2 * uniform**2 - 1
    if metric.kind == "distribution":
        return uniform**2
    indices = np.floor(len(metric.category_names) * uniform**2).astype(np.int64)
    return indices if metric.categories != "open" else np.array(NAMES)[indices]


def summed(metric: Any, values: Any, level: Any = 0, seed: int = 1) -> Counts:
    """Return the statistic of one report of each value, at one level or each at its own."""
    statistic: Counts = metric.zero()
    levels = np.full(len(values), level, dtype=np.uint8)
    metric.accumulate(statistic, levels, metric.randomize(values, levels, SeededBits(seed)))
    return statistic


def exact(epsilon: float) -> Fraction:
    return Fraction(round(epsilon * 10_000), 10_000)
