"""Reports a whole population to Kafka."""

from __future__ import annotations

import dataclasses
import threading
import time as clocks
from collections.abc import Callable, Mapping
from typing import Any

from estimators.exact.randomness import Bits
from estimators.metrics.metric import Metric
from producers.device.reporter import REPORTS_TOPIC, Reporter
from producers.kafka.connection import Connection
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Population
from producers.populations.population_replay import Replay, ReplayProgress
from producers.populations.truth import Truth


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
