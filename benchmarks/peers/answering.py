"""What the scripts of all peers share: reading their input, and doing the requested tasks.

This module runs in the peers' environments, so it imports the standard library and numpy alone.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Task = Callable[[], float]
"""Does its work once, and returns the number of units done."""


@dataclass(frozen=True)
class Given:
    """The population that both sides randomize.

    Attributes
    ----------
    values : ndarray of int64, shape (n,)
        The users' categories, in [0, categories).
    epsilon : float
        The level of all reports.
    categories : int
        The number of categories.
    """

    values: Any
    epsilon: float
    categories: int

    @property
    def bits(self) -> Any:
        """The values 0 and 1, for mechanisms that randomize only these."""
        return self.values % 2


def arguments() -> dict[str, Any]:
    """Return the arguments with which the process was started."""
    started_with = json.loads(sys.argv[1])
    assert isinstance(started_with, dict)  # noqa: S101
    return started_with


def given() -> Given:
    """Return the population."""
    import numpy as np

    started_with = arguments()
    return Given(
        np.load(started_with["values"]), started_with["epsilon"], started_with["categories"]
    )


HALF_REPORTS, HALF_RUNS = 10_000, 20


def half(randomize: Callable[[list[int]], Any], estimate: Callable[[Any], Any]) -> float:
    """Return minus the mean estimate of the share of a category that half of all hold.

    The other half holds another category. The mean over the runs shows whether estimates are
    biased.
    """
    values = [index % 2 for index in range(HALF_REPORTS)]
    runs = [float(estimate(randomize(values))[0]) for _ in range(HALF_RUNS)]
    return -sum(runs) / HALF_RUNS


DATA = {
    "a mean, worst": ((0.0,), (0.5,), (1.0,)),
    "a mean, uniform": (tuple((2 * i - 999) / 999 for i in range(1_000)),),
}
"""Numbers in [-1, 1], a tuple for each population; the population with the largest variance
counts."""
VECTORS = {"a vector of 2": 2, "a vector of 64": 64}
"""Vectors on the unit sphere, and their dimension."""
NUMBERS = 200_000
"""The number of reports of numbers for each library."""


def unit_vectors(n: int, dimension: int) -> Any:
    """Return random directions, shape (n, dimension)."""
    import numpy as np

    drawn = np.random.default_rng(7).normal(size=(n, dimension))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


Randomize = Callable[[Any], Any]
"""Takes an array of values and returns what estimates each, in an array of the same shape."""


def noises(
    numbers: Mapping[str, Callable[[float], Randomize]],
    vectors: Mapping[str, Callable[[float, int], Randomize]] | None = None,
) -> dict[str, Task]:
    """Return the tasks that measure the noise of mechanisms, each at the epsilon that is asked for.

    Parameters
    ----------
    numbers : mapping of str to callable
        For each name, a function from an epsilon to a mechanism for numbers in [-1, 1].
    vectors : mapping of str to callable, optional
        For each name, a function from an epsilon and a dimension to a mechanism for vectors in the
        unit ball.
    """
    size = arguments()["reports"]
    tasks: dict[str, Task] = {}
    for epsilon in (0.5, 1, 2, 4, 6, 8):
        for name, build in numbers.items():
            for data, populations in DATA.items():
                tasks[f"noise {data} {name} {epsilon:g}"] = functools.partial(
                    _noise, build, (epsilon,), size, populations
                )
        for name, build_vectors in (vectors or {}).items():
            for data, dimension in VECTORS.items():
                held = unit_vectors(max(1, size // dimension // 4), dimension)
                tasks[f"noise {data} {name} {epsilon:g}"] = functools.partial(
                    _noise, build_vectors, (epsilon, dimension), None, (held,)
                )
    return tasks


def _noise(build: Any, parameters: tuple[Any, ...], size: int | None, populations: Any) -> float:
    """Return minus the largest mean squared error of one report.

    The truth is the population's mean for numbers; for vectors, which have no `size`, it is the
    user's own vector.
    """
    import numpy as np

    randomize, squares = build(*parameters), []
    for values in populations:
        held = true = np.asarray(values)
        if size is not None:  # numbers of a population, whose mean is in question
            held, true = np.resize(held, max(1, size // len(populations))), held.mean()
        errors = np.asarray(randomize(held), dtype=np.float64) - true
        squares.append(float(np.mean(np.sum(np.atleast_2d(errors.T) ** 2, axis=0))))
    return -max(squares)


def to_ends(values: Any) -> Any:
    """Round numbers in [-1, 1] at random to an end, without bias; return 0 for -1, 1 for 1."""
    import numpy as np

    return (np.random.default_rng().random(values.size) < (1 + values) / 2).astype(np.int64)


def from_ends(bits: Any, epsilon: float) -> Any:
    """Return unbiased estimates of the numbers before `to_ends`, from its randomized bits."""
    import numpy as np

    return (2 * np.asarray(bits, dtype=np.float64) - 1) / math.tanh(epsilon / 2)


def answer(tasks: Mapping[str, Task]) -> None:
    """Read tasks from standard input, one a line; write how many units a second each did.

    Seconds are those of a core. A task that returns a negative number has measured itself: that is
    its rate.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        name, seconds = json.loads(line)
        answers.write(json.dumps(_rate(tasks[name], seconds)) + "\n")
        answers.flush()


def _rate(task: Task, seconds: float) -> float:
    done, began = 0.0, time.process_time()
    while True:
        units = task()
        if units < 0:
            return -units
        done += units
        passed = time.process_time() - began
        if passed > seconds:
            return done / passed


Protocol = tuple[Callable[[int], Any], Callable[[list[Any]], Any]]
"""Randomizes a value; estimates from reports."""


def serve(
    protocols: Mapping[str, Protocol],
    sizes: Mapping[str, int],
    more: Mapping[str, Task] | None = None,
) -> None:
    """Answer the tasks of each protocol, on as many values as `sizes` says, and those in `more`."""
    tasks: dict[str, Task] = {**(more or {})}
    for name, (randomize, estimate) in protocols.items():
        values = given().values[: sizes[name]].tolist()
        randomized = functools.partial(_randomized, randomize)
        reports = functools.cache(functools.partial(randomized, values))
        tasks[f"half {name}"] = functools.partial(half, randomized, estimate)
        tasks[f"randomize {name}"] = functools.partial(_randomize, randomize, values)
        tasks[f"aggregate {name}"] = functools.partial(_aggregate, estimate, reports)
    answer(tasks)


def _randomized(randomize: Callable[[int], Any], values: list[int]) -> list[Any]:
    return [randomize(value) for value in values]


def _randomize(randomize: Callable[[int], Any], values: list[int]) -> int:
    return len(_randomized(randomize, values))


def _aggregate(estimate: Callable[[list[Any]], Any], reports: Callable[[], list[Any]]) -> int:
    estimate(reports())
    return len(reports())
