"""What every peer's script shares: its input, and doing what it is asked, as often as it takes.

Runs in the peers' environments: it imports the standard library and numpy alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Task = Callable[[], float]
"""Does something once, and returns how many units of it."""


@dataclass(frozen=True)
class Given:
    """The population that both sides randomize.

    Attributes
    ----------
    values : ndarray of int64, shape (n,)
        Categories; in [0, categories).
    epsilon : float
    categories : int
    """

    values: Any
    epsilon: float
    categories: int

    @property
    def bits(self) -> Any:
        """Values of two kinds, for mechanisms that know only these."""
        return self.values % 2


def arguments() -> dict[str, Any]:
    """Return what the process was started with."""
    given = json.loads(sys.argv[1])
    assert isinstance(given, dict)  # noqa: S101
    return given


def given() -> Given:
    """Return the population."""
    import numpy as np

    told = arguments()
    return Given(np.load(told["values"]), told["epsilon"], told["categories"])


HALF_REPORTS, HALF_RUNS = 10_000, 20


def half(randomize: Callable[[list[int]], Any], estimate: Callable[[Any], Any]) -> float:
    """Return minus the mean estimate of the share of a category that half of all hold.

    The others hold another one. A mean of so many runs shows whether estimates are biased.
    """
    values = [index % 2 for index in range(HALF_REPORTS)]
    runs = [float(estimate(randomize(values))[0]) for _ in range(HALF_RUNS)]
    return -sum(runs) / HALF_RUNS


def answer(tasks: Mapping[str, Task]) -> None:
    """Read tasks from standard input, one a line; write how many units a second were done.

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
