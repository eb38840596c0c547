"""What the scripts of all peers share: the values, and doing the requested tasks.

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
from typing import Any

import numpy as np

Task = Callable[[], float]
"""Does its work once, and returns the number of units done."""
Randomize = Callable[[Any], Any]
"""Takes an array of values and returns what estimates each, in an array of the same shape."""

EPSILON, CATEGORIES = 1.0, 128
VALUES: Any = np.random.default_rng(7).integers(0, CATEGORIES, 100_000)
"""The users' categories, which both sides randomize at `EPSILON`."""
NOISE_EPSILONS = (0.5, 1, 2, 4, 6, 8)
DATA = {
    "a mean, worst": ((0.0,), (0.5,), (1.0,)),
    "a mean, uniform": (tuple((2 * i - 999) / 999 for i in range(1_000)),),
}
"""Numbers in [-1, 1], a tuple for each population; the population with the largest variance
counts."""
DIMENSION = 64
VECTORS = f"a vector of {DIMENSION}"


def noises(
    numbers: Mapping[str, Callable[[float], Randomize]],
    vectors: Mapping[str, Callable[[float], Randomize]] | None = None,
) -> dict[str, Task]:
    """Return the tasks that measure the noise of mechanisms, each at the epsilon that is asked for.

    Parameters
    ----------
    numbers : mapping of str to callable
        For each name, a function from an epsilon to a mechanism for numbers in [-1, 1].
    vectors : mapping of str to callable, optional
        The same for vectors in the unit ball.
    """
    mechanisms = dict.fromkeys(DATA, numbers) | {VECTORS: vectors or {}}
    return {
        f"noise {data} {name} {epsilon:g}": functools.partial(noise, build, epsilon, held)
        for data, held in populations(int(sys.argv[1])).items()
        for name, build in mechanisms[data].items()
        for epsilon in NOISE_EPSILONS
    }


def populations(size: int) -> dict[str, list[tuple[Any, Any]]]:
    """Return `size` numbers of each kind of data, by population, each with its truth.

    The truth is the population's mean for numbers, and the user's own vector for vectors.
    """
    held: dict[str, list[tuple[Any, Any]]] = {}
    for data, points in DATA.items():
        values = [np.resize(some, size // len(points)) for some in points]
        held[data] = [(array, array.mean()) for array in values]
    drawn = np.random.default_rng(7).normal(size=(size // DIMENSION // 4, DIMENSION))
    directions = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return held | {VECTORS: [(directions, directions)]}


def noise(
    build: Callable[[float], Randomize], epsilon: float, held: list[tuple[Any, Any]]
) -> float:
    """Return minus the largest mean squared error of one report, of all populations."""
    randomize = build(epsilon)
    errors = [np.asarray(randomize(values)) - truth for values, truth in held]
    return -max(float((error**2).sum()) / len(error) for error in errors)


def to_ends(values: Any) -> Any:
    """Round numbers in [-1, 1] at random to an end, without bias; return 0 for -1, 1 for 1."""
    return (np.random.default_rng().random(values.size) < (1 + values) / 2).astype(np.int64)


def from_ends(bits: Any, epsilon: float) -> Any:
    """Return unbiased estimates of the numbers before `to_ends`, from its randomized bits."""
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
