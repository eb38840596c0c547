"""Replays a population in order of event time, at a chosen speed."""

from __future__ import annotations

import dataclasses
import threading
import time as clocks
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.categories import Categories
from producers.device.reporter import Reporter
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Population
from producers.populations.truth import RunningTruth, Truth

TICK_SECONDS = 0.05  # devices that are due within this time report together


@dataclasses.dataclass(frozen=True)
class ReplayProgress:
    """Devices and reports so far, the last event time (ms; 0 at the start), and elapsed seconds."""

    devices: int
    reports: int
    time_ms: int
    seconds: float


class Replay:
    """Lets the devices of a population report.

    Parameters
    ----------
    population : Population
        The devices and their values.
    reporters : mapping of str to Reporter
        A reporter for each metric that the population has a column for. Reports are sent with the
        attributes that their metric uses.
    mix : LevelDistribution
        The distribution of epsilons; a device uses its epsilon for all metrics.
    speed : float, optional
        Seconds of event time that are replayed in a second.
    seconds : float, optional
        The duration of the replay. Without `speed` and `seconds` it runs as fast as possible.
    seed : int
        The seed for drawing epsilons; reports are random in any case.
    chunk : int
        The most devices between two calls of `progress`.
    stop : threading.Event, optional
        Once it is set, the replay ends after the current devices.
    timer, sleep : callable
        The first returns monotonic seconds, the second pauses for some seconds; by default a pause
        ends early if `stop` is set.

    Attributes
    ----------
    truth : dict of str to RunningTruth
        The truth of what was reported, by metric; any thread may read it.
    """

    def __init__(
        self,
        population: Population,
        reporters: Mapping[str, Reporter],
        mix: LevelDistribution,
        *,
        speed: float | None = None,
        seconds: float | None = None,
        seed: int = 0,
        chunk: int = 10_000,
        stop: threading.Event | None = None,
        timer: Callable[[], float] = clocks.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        for name, reporter in reporters.items():
            if name not in population.columns:
                raise ValueError(
                    f"metric {name!r}: the population has only {sorted(population.columns)}"
                )
            mix.check(reporter.metric)
        self.population, self.reporters, self.chunk = population, reporters, chunk
        self.speed = _speed(population, speed, seconds)
        self.stop = threading.Event() if stop is None else stop
        self.truth = {name: RunningTruth(r.metric) for name, r in reporters.items()}
        self._slices = {
            name: population.slices(reporter.metric.slicing)
            for name, reporter in reporters.items()
            if reporter.metric.slicing is not None
        }
        # A separate stream, so that epsilons are independent of simulated values.
        self._epsilons = mix.assign(len(population), np.random.default_rng([seed, 1]))
        self._timer, self._sleep = timer, self.stop.wait if sleep is None else sleep

    def run(self, progress: Callable[[ReplayProgress], object] | None = None) -> ReplayProgress:
        """Let all devices report, until `stop` is set.

        Raises DeliveryError if a reporter accepts no more reports because too many batches have
        failed.
        """
        started, done, reports = self._timer(), 0, 0
        while done < len(self.population) and not self.stop.is_set():
            due = self._due(self._timer() - started)
            if due > done:
                end = min(due, done + self.chunk)
                reports += self._report(done, end)
                done = end
                if progress is not None:
                    progress(self._progress(done, reports, started))
            if done >= due and done < len(self.population):
                self._sleep(max(TICK_SECONDS, self._offset(done) - (self._timer() - started)))
        return self._progress(done, reports, started)

    def truths(self) -> dict[str, Truth]:
        """Return the truth of the reports so far, by metric."""
        return {name: truth.now() for name, truth in self.truth.items()}

    def _due(self, elapsed: float) -> int:
        if self.speed is None:
            return len(self.population)
        reached = self.population.time_ms[0] + elapsed * self.speed * 1000
        return int(np.searchsorted(self.population.time_ms, reached, side="right"))

    def _offset(self, row: int) -> float:
        assert self.speed is not None  # noqa: S101
        return float(self.population.time_ms[row] - self.population.time_ms[0]) / 1000 / self.speed

    def _report(self, begin: int, end: int) -> int:
        part, epsilons, reports = self.population.part(begin, end), self._epsilons[begin:end], 0
        for name, reporter in self.reporters.items():
            present, column = np.flatnonzero(part.has_value(name)), part.columns[name]
            domain, values = reporter.metric.domain, column[present]
            if isinstance(domain, Categories) and values.dtype.kind == "i":
                values = domain.from_indices(values)
            reporter.report_groups(
                values,
                epsilons[present],
                part.time_ms[present].view("datetime64[ms]"),
                self._by_slice(name, begin, present),
            )
            self.truth[name].add(column[present], reporter.metric.level_of(epsilons[present]))
            reports += len(present)
        return reports

    def _by_slice(
        self, name: str, begin: int, rows: NDArray[np.intp]
    ) -> Iterator[tuple[NDArray[np.intp], dict[str, str]]]:
        """Yield groups of rows with equal pane and attributes, groups of earlier panes first."""
        metric = self.reporters[name].metric
        slicing = metric.slicing
        if slicing is None or not rows.size:
            yield np.arange(rows.size), {}
            return
        slices = self._slices[name][begin + rows]
        panes = self.population.time_ms[begin + rows] // metric.pane_ms
        order = np.lexsort((slices, panes))
        edges = np.flatnonzero(np.diff(slices[order]) | np.diff(panes[order])) + 1
        for group in np.split(order, edges):
            values = slicing.slice(int(slices[group[0]]))
            yield group, {name: value for name, value in values.items() if value is not None}

    def _progress(self, done: int, reports: int, started: float) -> ReplayProgress:
        reached = int(self.population.time_ms[done - 1]) if done else 0
        seconds = self._timer() - started
        return ReplayProgress(done, reports, reached, seconds)


def _speed(population: Population, speed: float | None, seconds: float | None) -> float | None:
    if speed is not None and seconds is not None:
        raise ValueError(f"speed = {speed} and seconds = {seconds}: expected one of the two")
    for name, number in (("speed", speed), ("seconds", seconds)):
        if number is not None and not 0 < number < float("inf"):
            raise ValueError(f"{name} = {number}: expected a number above 0")
    if seconds is not None:
        return population.seconds / seconds or None
    return speed
