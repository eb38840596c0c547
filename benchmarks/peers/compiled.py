"""What the peers share that randomize one value, and estimate from a list of reports."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks.peers.answering import Given, Task, answer, half

Protocol = tuple[Callable[[int], Any], Callable[[list[Any]], Any]]
"""Randomizes a value; estimates from reports."""

MOST = {"grr": 20_000, "rappor": 5_000, "oue": 5_000, "subset_selection": 2_000}


def serve(protocols: Callable[[Given], dict[str, Protocol]], population: Given) -> None:
    tasks: dict[str, Task] = {}
    for name, (randomize, estimate) in protocols(population).items():
        values = population.values[: MOST[name]].tolist()
        reports = functools.cache(functools.partial(_randomized, randomize, values))
        tasks[f"half {name}"] = functools.partial(
            half, functools.partial(_randomized, randomize), estimate
        )
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
