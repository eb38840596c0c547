"""How the cost of a report grows from the smallest to the largest size."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from aggregator.kafka.worker_clients import GATHER_MESSAGES
from aggregator.state.partition import Partition
from benchmarks.batches import FUTURE_MS, METRIC, TIME_MS, LogMessage
from benchmarks.measure import Figure, stage
from benchmarks.metrics import LEVELS, reports_of
from benchmarks.places import Places
from estimators import LocalMetric, define
from producers.wire.batch import encode_randomized

BATCH_REPORTS = 100
COUNTED_TOGETHER = GATHER_MESSAGES
"""The number of messages that a worker counts together when it is behind."""
MESSAGES = COUNTED_TOGETHER
REPEATS = 3
Costs = Callable[[int, int], float]
"""Returns the seconds for a report, given a size and a number of messages."""


@stage("growth")
def growth(places: Places) -> Iterator[Figure]:
    """How the cost of a report grows from the smallest to the largest size."""
    messages = max(COUNTED_TOGETHER // 100, places.sized(MESSAGES))
    for dimension, (sizes, cost) in GROWTHS.items():
        first, last = (
            min(cost(size, messages) for _ in range(places.sized(REPEATS)))
            for size in (sizes[0], max(sizes[0], places.sized(sizes[1])))
        )
        yield Figure(f"growth/{dimension}/last over first", last / first, "x")


def _counting(payloads: Sequence[bytes], partition: Partition) -> float:
    """Return the seconds that a partition takes to count messages, many together."""
    first = partition.next_offset
    log = [LogMessage(first + number, payload) for number, payload in enumerate(payloads)]
    began = time.process_time()
    for start in range(0, len(log), COUNTED_TOGETHER):
        assert not partition.count(log[start : start + COUNTED_TOGETHER])  # noqa: S101
    return time.process_time() - began


def _payloads(
    metrics: Sequence[LocalMetric], messages: int, panes: int = 1, first: int = 0
) -> list[bytes]:
    """Return batches of these metrics in turn, spread over `panes` panes."""
    level, reports = reports_of(metrics[0], BATCH_REPORTS)
    payloads = []
    for number in range(messages):
        time_ms = TIME_MS + number // len(metrics) % panes * metrics[0].pane_ms
        metric, batch_id = metrics[number % len(metrics)], (first + number).to_bytes(16, "big")
        payloads.append(encode_randomized(metric, level, reports, time_ms, batch_id))
    return payloads


def _cost(metrics: Sequence[LocalMetric], messages: int, panes: int = 1) -> float:
    """Return the seconds of processor time for counting a report, after those that warm up."""
    partition = Partition({metric.name: metric for metric in metrics}, FUTURE_MS * 10**6)
    _counting(_payloads(metrics, COUNTED_TOGETHER, panes), partition)
    partition.mark_committed()
    seconds = _counting(_payloads(metrics, messages, panes, COUNTED_TOGETHER), partition)
    return seconds / (messages * BATCH_REPORTS)


def metrics(number: int, messages: int) -> float:
    """Return the cost of a report with `number` metrics, which take turns batch by batch."""
    return _cost([dataclasses.replace(METRIC, name=f"m{i}") for i in range(number)], messages)


def panes(number: int, messages: int) -> float:
    """Return the cost of a report with `number` open panes, which take turns batch by batch."""
    return _cost([dataclasses.replace(METRIC, lateness="1000d")], messages, number)


def categories(mechanism: str, number: int, messages: int) -> float:
    """Return the cost of a report of a mechanism with `number` categories."""
    metric = define(
        name="m", kind="frequency", mechanism=mechanism, categories=number, levels=LEVELS
    )
    level = np.arange(BATCH_REPORTS * messages) % 4
    reports = metric.randomize(level[:BATCH_REPORTS] % 2, level[:BATCH_REPORTS])
    copies, statistic = np.concatenate([reports] * messages), metric.zero()
    began = time.process_time()
    metric.accumulate_checked(statistic, level, copies)
    return (time.process_time() - began) / level.size


GROWTHS: dict[str, tuple[tuple[int, int], Costs]] = {
    "metrics, 1 to 10,000": ((1, 10_000), metrics),
    "panes, 1 to 1,000": ((1, 1_000), panes),
    **{
        f"categories of {mechanism}, 32 to 2,048": (
            (32, 2_048),
            functools.partial(categories, mechanism),
        )
        for mechanism in ("rappor", "grr", "projective_geometry_response")
    },
}
