"""Measures the rates of our side and of a baseline alternately, and returns their ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from benchmarks.places import Places

MIN_SECONDS = 0.1
"""How long one measurement runs at least: clocks and schedulers are noise below that."""

Side = Callable[[float], float]
"""Repeats its work until the given seconds have passed, at least once; returns units a second."""


class CannotRunError(click.ClickException):
    """A side cannot do its work here; the message says why."""


@dataclass(frozen=True)
class Benchmark:
    """Our side beside a baseline that does the same work with less.

    Parameters
    ----------
    name : str
        ``stage/what/baseline``.
    unit : str
        What both sides count, for instance ``reports/s``.
    ours, baseline : Side
        The two sides.
    most_rounds : int, optional
        The most rounds, of sides that take long, and need no run that is not measured.
    """

    name: str
    unit: str
    ours: Side
    baseline: Side
    most_rounds: int | None = None


@dataclass(frozen=True)
class Figure:
    """A measured number that has no baseline, such as a latency or a size."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class NotRun:
    """A benchmark that cannot run here, and why."""

    name: str
    reason: str


Outcome = Benchmark | Figure | NotRun
Stage = Callable[["Places"], Iterator[Outcome]]
STAGES: dict[str, Stage] = {}
"""The stages by their names; each prepares its benchmarks when it runs."""


def stage(name: str) -> Callable[[Stage], Stage]:
    """Register a stage; the first line of its docstring says what it measures."""
    return lambda function: STAGES.setdefault(name, function)


class Result(msgspec.Struct):
    """The medians over all rounds, in units a second; the ratio is ours over the baseline."""

    ours: float
    baseline: float
    unit: str
    ratio: float


def measure(
    benchmark: Benchmark, rounds: int, seconds: float = MIN_SECONDS
) -> tuple[Result, tuple[float, float]]:
    """Measure both sides in turns, after an unmeasured run of each; each is first equally often.

    Return the result, and the lowest and the highest ratio of all rounds.
    """
    sides = (benchmark.ours, benchmark.baseline)
    rates: tuple[list[float], list[float]] = ([], [])
    for side in () if benchmark.most_rounds else sides:
        side(0)
    for number in range(min(rounds, benchmark.most_rounds or rounds)):
        first = number % 2
        for index in (first, 1 - first):
            rates[index].append(sides[index](seconds))
    ratios = [ours / baseline for ours, baseline in zip(*rates, strict=True)]
    ours, baseline = map(statistics.median, rates)
    result = Result(ours, baseline, benchmark.unit, statistics.median(ratios))
    return result, (min(ratios), max(ratios))


def repeated(
    units: int, action: Callable[[], object], clock: Callable[[], float] = time.process_time
) -> Side:
    """Return a side that repeats an action of `units` units until it has run long enough.

    By default seconds are those of a core, whatever else the machine does; an action that waits for
    something needs a clock that continues meanwhile.
    """

    def rate(seconds: float) -> float:
        done, began = 0, clock()
        while (passed := clock() - began) <= seconds or not done:
            action()
            done += units
        return done / passed

    return rate


def compared(
    name: str,
    unit: str,
    units: int,
    ours: Callable[[], object],
    baseline: Callable[[], object],
    clock: Callable[[], float] = time.process_time,
) -> Benchmark:
    """Return a benchmark of two actions of `units` units each, see :func:`repeated`."""
    return Benchmark(name, unit, repeated(units, ours, clock), repeated(units, baseline, clock))
