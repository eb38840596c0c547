"""Randomizing and estimating, against other libraries for local privacy.

Both sides have the same values and one epsilon; estimates are without bounds, as theirs are. A look
at a confidence sequence counts a thousand new reports and reads a bound that holds at all times.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Benchmark, Outcome, Side, repeated, stage
from benchmarks.metrics import CATEGORIES, SIZES, metric_of
from benchmarks.peers.process import Peer, figure, outcomes
from benchmarks.places import Places
from estimators import LocalMetric
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.mechanism import Levels

Values = NDArray[np.int64]
EPSILON = 1.0
COMPILED_MECHANISMS = ("grr", "rappor", "oue", "subset_selection")
TASK_NAMES = ("randomize", "aggregate", "half")
"""The last task estimates the share of a category that half of the users hold."""
TASKS: dict[str, dict[str, tuple[str, ...]]] = {
    "pure-ldp": dict.fromkeys(TASK_NAMES, ("grr", "rappor", "oue", "hadamard_response")),
    "multi-freq-ldpy": dict.fromkeys(TASK_NAMES, COMPILED_MECHANISMS),
    "opendp": {
        "randomize": ("randomized_response", "laplace", "grr", "rappor"),
        "aggregate": ("rappor",),
    },
    "diffprivlib": {"randomize": ("randomized_response", "laplace")},
    "nprr": {"randomize": ("randomized_response",), "sequence": ("randomized_response",)},
}
SEQUENCE_REPORTS = 100_000
LOOK_REPORTS = 1_000
UNITS = {"randomize": "reports/s", "aggregate": "reports/s", "sequence": "looks/s"}


@stage("peers")
def libraries(places: Places) -> Iterator[Outcome]:
    """Randomizing and estimating, against other libraries for local privacy."""
    with tempfile.TemporaryDirectory() as folder:
        values = np.random.default_rng(7).integers(0, CATEGORIES, max(SIZES.values()))
        file = Path(folder) / "values.npy"
        np.save(file, values[:SEQUENCE_REPORTS])
        reports = places.sized(SEQUENCE_REPORTS)
        population = {"values": str(file), "epsilon": EPSILON, "categories": CATEGORIES}
        for peer, tasks in TASKS.items():
            names = [
                (name, task, mechanism)
                for task, mechanisms in tasks.items()
                for mechanism in mechanisms
                if places.wants(name := f"peers/{task}/{mechanism}/{peer}")
            ]
            if not names:
                continue
            yield from outcomes(
                peer,
                {**population, "reports": reports},
                [name for name, *_ in names],
                functools.partial(_measured, places, values, names),
            )


def _measured(
    places: Places, values: Values, names: Sequence[tuple[str, str, str]], peer: Peer
) -> Iterator[Outcome]:
    for name, task, mechanism in names:
        theirs = peer.side(f"{task} {mechanism}")
        if task == "half":
            yield figure(name, theirs, "mean estimate")
        else:
            yield Benchmark(name, UNITS[task], OURS[task](places, mechanism, values), theirs)


def _population(
    places: Places, mechanism: str, values: Values
) -> tuple[LocalMetric, Levels, Values]:
    metric = metric_of(mechanism, (EPSILON,))
    held = values[: places.sized(SIZES[mechanism])]
    if metric.range is not None:
        held = np.where(held % 2, *metric.range)
    return metric, np.zeros(held.size, dtype=np.uint8), held


def _randomize(places: Places, mechanism: str, values: Values) -> Side:
    metric, level, held = _population(places, mechanism, values)
    return repeated(held.size, functools.partial(metric.randomize, held, level))


def _aggregate(places: Places, mechanism: str, values: Values) -> Side:
    metric, level, held = _population(places, mechanism, values)
    reports = metric.randomize(held, level, SeededBits(7))

    def action() -> None:
        statistic = metric.zero()
        metric.accumulate_checked(statistic, level, reports)
        metric.estimate(statistic, bound="normal")

    return repeated(held.size, action)


def _sequence(_: Places, mechanism: str, values: Values) -> Side:
    metric = metric_of(mechanism, (EPSILON,))
    assert metric.range is not None  # noqa: S101
    level = np.zeros(LOOK_REPORTS, dtype=np.uint8)
    held = np.where(values[:LOOK_REPORTS] % 2, *metric.range)
    reports = metric.randomize(held, level, SeededBits(7))
    statistic = metric.zero()

    def action() -> None:
        metric.accumulate_checked(statistic, level, reports)
        metric.estimate(statistic, bound="anytime")

    return repeated(1, action)


OURS: dict[str, Callable[[Places, str, Values], Side]] = {
    "randomize": _randomize,
    "aggregate": _aggregate,
    "sequence": _sequence,
}
