"""Reports a whole population to Kafka: its values, or its answers to the rounds of a search."""

from __future__ import annotations

import dataclasses
import threading
import time as clocks
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from estimators.exact.randomness import Bits
from estimators.metrics.metric import Metric
from estimators.metrics.search import SearchMetric
from producers.device.reporter import REPORTS_TOPIC, Reporter
from producers.device.round_follower import Rounds
from producers.device.rounds import Round
from producers.kafka.connection import Connection
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Population
from producers.populations.population_replay import Replay, ReplayProgress
from producers.populations.truth import RunningTruth, Truth

ROUND_PARTS = 20
"""The devices of a round answer in this many parts, spread over its duration."""


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
    topic: str = REPORTS_TOPIC,
    schema_id: int | None = None,
    batch_reports: int = 1000,
    batch_age: float = 1.0,
    bits: Bits | None = None,
    stop: threading.Event | None = None,
    progress: Callable[[ReplayProgress, dict[str, Truth]], object] | None = None,
    flush_timeout: float = 60.0,
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
        See :class:`producers.populations.population_replay.Replay`.
    topic, schema_id, batch_reports, batch_age, bits
        See :class:`producers.device.reporter.Reporter`.
    progress : callable, optional
        A function that is called with the progress and the truth so far, after every chunk.
    flush_timeout : float
        Seconds to wait for the last acknowledgements of each metric.

    Raises
    ------
    DeliveryError
        If reports were not acknowledged.
    ValueError
        If the population, the mix, a property or a speed cannot be used.
    """
    with Connection(config) as connection:
        reporters = {
            name: Reporter(
                metric,
                connection,
                trusted=metric.sends_true_values,
                topic=topic,
                schema_id=schema_id,
                batch_reports=batch_reports,
                batch_age=batch_age,
                bits=bits,
            )
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
        See :class:`producers.populations.population_replay.Replay`.
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
            is_answering = (
                round_numbers == current_round.number
                if metric.split == "users"
                else np.full(round_numbers.size, True)
            )
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
