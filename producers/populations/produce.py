"""Reports a population to Kafka at a speed: values in order of event time, or answers to rounds."""

from __future__ import annotations

import dataclasses
import threading
import time as clocks
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.categories import Categories
from estimators.metrics.metric import Metric
from estimators.metrics.search import SearchMetric
from producers.device.reporter import Reporter
from producers.device.round_follower import Rounds
from producers.device.rounds import Round
from producers.kafka.connection import Connection
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Population
from producers.populations.truth import RunningTruth, Truth

ROUND_PARTS = 20
"""The devices of a round answer in this many parts, spread over its duration."""
MAX_CHUNK = 10_000  # the most devices between two calls of `progress`
TICK_SECONDS = 0.05  # devices that are due within this time report together


@dataclasses.dataclass(frozen=True)
class ReplayProgress:
    """Devices and reports so far, and the last event time (ms; 0 at the start)."""

    devices: int
    reports: int
    time_ms: int


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
        stop: threading.Event | None = None,
        timer: Callable[[], float] = clocks.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        for reporter in reporters.values():
            mix.check(reporter.metric)
        self.population, self.reporters = population, reporters
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
                end = min(due, done + MAX_CHUNK)
                reports += self._report(done, end)
                done = end
                if progress is not None:
                    progress(self._progress(done, reports))
            if done >= due and done < len(self.population):
                self._sleep(max(TICK_SECONDS, self._offset(done) - (self._timer() - started)))
        return self._progress(done, reports)

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

    def _progress(self, done: int, reports: int) -> ReplayProgress:
        reached = int(self.population.time_ms[done - 1]) if done else 0
        return ReplayProgress(done, reports, reached)


def _speed(population: Population, speed: float | None, seconds: float | None) -> float | None:
    if speed is not None and seconds is not None:
        raise ValueError(f"speed = {speed} and seconds = {seconds}: expected one of the two")
    for name, number in (("speed", speed), ("seconds", seconds)):
        if number is not None and not 0 < number < float("inf"):
            raise ValueError(f"{name} = {number}: expected a number above 0")
    if seconds is not None:
        return population.seconds / seconds or None
    return speed


@dataclasses.dataclass(frozen=True)
class Produced:
    """The totals of a run, all of whose reports Kafka has acknowledged.

    `bytes` is counted before compression, and `seconds` until the last acknowledgement.
    """

    devices: int
    reports: int
    batches: int
    bytes: int
    seconds: float
    truth: dict[str, Truth]


def produce(
    metrics: Mapping[str, Metric],
    population: Population,
    config: Mapping[str, Any],
    mix: LevelDistribution,
    *,
    speed: float | None = None,
    seconds: float | None = None,
    seed: int = 0,
    stop: threading.Event | None = None,
    progress: Callable[[ReplayProgress, dict[str, Truth]], object] | None = None,
    flush_timeout: float = 60.0,
    **options: Any,
) -> Produced:
    """Report a population to Kafka, and wait for all acknowledgements.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics; the population has a column for each.
    population : Population
        The devices and their values.
    config : mapping
        librdkafka's properties.
    mix, speed, seconds, seed, stop
        See :class:`producers.populations.produce.Replay`.
    progress : callable, optional
        A function that is called with the progress and the truth so far, after every chunk.
    flush_timeout : float
        Seconds to wait for the last acknowledgements of each metric.
    **options
        Options of each :class:`producers.device.reporter.Reporter`.

    Raises
    ------
    DeliveryError
        If reports were not acknowledged.
    ValueError
        If the population, the mix, a property or a speed cannot be used.
    """
    with Connection(config) as connection:
        reporters = {
            name: Reporter(metric, connection, trusted=metric.sends_true_values, **options)
            for name, metric in metrics.items()
        }
        replay = Replay(
            population, reporters, mix, speed=speed, seconds=seconds, seed=seed, stop=stop
        )
        started = clocks.monotonic()
        tell = None if progress is None else lambda reached: progress(reached, replay.truths())
        end = replay.run(tell)
        for reporter in reporters.values():
            reporter.flush(flush_timeout)
        seconds_taken = clocks.monotonic() - started
        delivered = [reporter.delivered for reporter in reporters.values()]
    return Produced(
        devices=end.devices,
        reports=sum(delivery.reports for delivery in delivered),
        batches=sum(delivery.batches for delivery in delivered),
        bytes=sum(delivery.bytes for delivery in delivered),
        seconds=seconds_taken,
        truth=replay.truths(),
    )


def respond(
    metric: SearchMetric,
    population: Population,
    config: Mapping[str, Any],
    mix: LevelDistribution,
    *,
    topic: str,
    rounds_topic: str,
    schema_id: int | None = None,
    round_seconds: float = 0.0,
    seed: int = 0,
    stop: threading.Event | None = None,
    progress: Callable[[Round, int], object] | None = None,
) -> Produced:
    """Let each device answer the round that it draws, or all rounds, until the search ends.

    Unlike a real device, a simulated device has no ledger with its answers.

    Parameters
    ----------
    metric : SearchMetric
        The population must have a column for this metric.
    population : Population
        The devices; their event times are ignored.
    config : mapping
        librdkafka's properties.
    mix, seed
        See :class:`producers.populations.produce.Replay`.
    topic, rounds_topic : str
        The topics of reports and of rounds.
    schema_id : int, optional
        See :class:`producers.device.reporter.Reporter`.
    round_seconds : float
        The time over which the devices of a round answer.
    stop : threading.Event, optional
        Once it is set, no more rounds are answered.
    progress : callable, optional
        A function that is called with a round and the number of answers to it so far.

    Raises
    ------
    DeliveryError
        If answers were not acknowledged.
    ValueError
        If the mix or a property cannot be used.
    """
    mix.check(metric)
    over = threading.Event() if stop is None else stop
    values = population.columns[metric.name][population.has_value(metric.name)]
    epsilons = mix.assign(len(values), np.random.default_rng([seed, 1]))
    round_numbers = 1 + metric.search.own_round(len(values))
    truth, started = RunningTruth(metric), clocks.monotonic()
    with (
        Reporter(metric, config, topic=topic, schema_id=schema_id) as reporter,
        Rounds(config, rounds_topic) as rounds,
    ):
        for current_round in rounds.follow(metric, stop=over):
            is_answering = (round_numbers == current_round.number) | (metric.split != "users")
            answers = 0
            for part in np.array_split(np.flatnonzero(is_answering), ROUND_PARTS):
                if over.is_set():
                    break
                answers += reporter.answer(current_round, values[part], epsilons[part])
                truth.add(values[part], metric.level_of(epsilons[part]))
                reporter.flush()
                if progress is not None:
                    progress(current_round, answers)
                over.wait(round_seconds / ROUND_PARTS)
        reporter.flush()
        sent = reporter.delivered
    seconds = clocks.monotonic() - started
    truths = {metric.name: truth.now()}
    return Produced(len(values), sent.reports, sent.batches, sent.bytes, seconds, truths)
