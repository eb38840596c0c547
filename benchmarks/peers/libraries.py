"""Randomizing and estimating, against other libraries for local privacy.

Both sides have the same values and one epsilon; estimates are without bounds, as theirs are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Benchmark, Outcome, Side, repeated, stage
from benchmarks.metrics import SIZES, metric_of
from benchmarks.peers.answering import EPSILON, VALUES
from benchmarks.peers.process import serving
from benchmarks.places import Places
from estimators import LocalMetric
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.mechanism import Levels

TASKS: dict[str, dict[str, tuple[str, ...]]] = {
    "pure-ldp": dict.fromkeys(
        ("randomize", "aggregate"), ("grr", "rappor", "oue", "hadamard_response")
    ),
    "opendp": {
        "randomize": ("randomized_response", "laplace", "grr", "rappor"),
        "aggregate": ("rappor",),
    },
    "diffprivlib": {"randomize": ("randomized_response", "laplace")},
}


@stage("peers")
def libraries(places: Places) -> Iterator[Outcome]:
    """Randomizing and estimating, against other libraries for local privacy."""
    for peer, tasks in TASKS.items():
        names = {
            name: (task, mechanism)
            for task, mechanisms in tasks.items()
            for mechanism in mechanisms
            if places.wants(name := f"peers/{task}/{mechanism}/{peer}")
        }
        if names:
            with serving(peer, 0) as rate:
                for name, (task, mechanism) in names.items():
                    theirs = functools.partial(rate, f"{task} {mechanism}")
                    yield Benchmark(name, "reports/s", OURS[task](places, mechanism), theirs)


def _population(places: Places, mechanism: str) -> tuple[LocalMetric, Levels, NDArray[Any]]:
    metric = metric_of(mechanism, (EPSILON,))
    held = np.resize(VALUES, places.sized(SIZES[mechanism]))
    if metric.range is not None:
        held = np.where(held % 2, *metric.range)
    return metric, np.zeros(held.size, dtype=np.uint8), held


def _randomize(places: Places, mechanism: str) -> Side:
    metric, level, held = _population(places, mechanism)
    return repeated(held.size, functools.partial(metric.randomize, held, level))


def _aggregate(places: Places, mechanism: str) -> Side:
    metric, level, held = _population(places, mechanism)
    reports = metric.randomize(held, level, SeededBits(7))

    def action() -> None:
        statistic = metric.zero()
        metric.accumulate_checked(statistic, level, reports)
        metric.estimate(statistic, bound="normal")

    return repeated(held.size, action)


OURS: dict[str, Callable[[Places, str], Side]] = {"randomize": _randomize, "aggregate": _aggregate}
