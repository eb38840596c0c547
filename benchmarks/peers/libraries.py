"""Randomizing and estimating, against other libraries for local privacy.

Both sides have the same values and one epsilon; estimates are without bounds, as theirs are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Benchmark, Outcome, Side, repeated, stage
from benchmarks.metrics import SIZES, metric_of
from benchmarks.peers.answering import EPSILON, VALUES
from benchmarks.peers.process import serving
from benchmarks.places import Places
from estimators.exact.randomness import SeededBits

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
                    yield Benchmark(name, "reports/s", _ours(places, task, mechanism), theirs)


def _ours(places: Places, task: str, mechanism: str) -> Side:
    metric = metric_of(mechanism, (EPSILON,))
    held = np.resize(VALUES, places.sized(SIZES[mechanism]))
    if metric.range is not None:
        held = np.where(held % 2, *metric.range)
    level = np.zeros(held.size, dtype=np.uint8)
    reports = metric.randomize(held, level, SeededBits(7))

    def aggregate() -> None:
        statistic = metric.zero()
        metric.accumulate_checked(statistic, level, reports)
        metric.estimate(statistic, bound="normal")

    randomize = functools.partial(metric.randomize, held, level)
    return repeated(held.size, randomize if task == "randomize" else aggregate)
