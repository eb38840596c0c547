"""What the peers share that randomize one value, and estimate from a list of reports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.peers.answering import Task, answer, given, half

Protocol = tuple[Callable[[int], Any], Callable[[list[Any]], Any]]
"""Randomizes a value; estimates from reports."""


def serve(
    protocols: Mapping[str, Protocol],
    sizes: Mapping[str, int],
    more: Mapping[str, Task] | None = None,
) -> None:
    """Answer the tasks of each protocol, on so many values, and more tasks."""
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
