"""Worker processes from Apache Kafka to Redis, against consuming the same log and no more.

The log is there, in a transaction that is not committed, when the workers have joined their group;
the time runs from its commit to the workers' own commit of the last message. The cost is the
processor time of the worker processes alone in that time, user and system, of all threads.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator

from benchmarks.batches import METRIC, payloads
from benchmarks.consume import consumption, raw
from benchmarks.measure import Benchmark, Figure, NotRun, Outcome, Side
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import processor_seconds
from benchmarks.workers import workers

WORKERS = (1, 2)
BATCHES = {1: 300_000, 1_000: 60_000}
COSTED_BATCHES = {1: 900_000, 1_000: 90_000}
"""Seconds of a worker's time: it commits every second by default, and does so here."""
COST_ROUNDS = 3
GROWTH_BATCHES, GROWTH_REPORTS = 600_000, 100
GROWTHS = {
    "partitions 1 to 64": [(1, number) for number in (1, 4, 16, 64)],
    "workers 1 to 16": [(number, 64) for number in (1, 2, 4, 8, 16)],
}
"""Workers and partitions of each run."""
SETTLING_SECONDS = 4.0
"""After workers have joined, until nothing is left of their start."""
MICROSECONDS = 1e6
SHORT_INTERVAL = {"aggregate.commit_interval": "100ms"}
"""So that waiting for the last commit is not what is measured."""


def benchmarks(places: Places) -> Iterator[Outcome]:
    if not places.is_real:
        yield NotRun("end to end", "needs Apache Kafka: dither kafka --fetch")
        return
    for reports, max_batches in BATCHES.items():
        names = {count: f"end to end/batches of {reports}, workers {count}" for count in WORKERS}
        if not any(places.wanted(f"{name}/raw") for name in names.values()):
            continue
        encoded = payloads(places.sized(max_batches), reports)
        baseline = consumption(places, *places.log(encoded), reports, lambda: raw)
        for count, name in names.items():
            ours = counting(places, encoded, reports, count)
            yield Benchmark(f"{name}/raw", "reports/s", ours, baseline)
    if not sys.platform.startswith("linux"):
        yield NotRun("end to end/cost", "needs Linux: another process' processor time")
        return
    for reports, max_batches in COSTED_BATCHES.items():
        name = f"end to end/cost, batches of {reports}"
        units = {"a message": 1} | ({"a report": reports} if reports > 1 else {})
        if not any(places.wanted(f"{name}/{unit}") for unit in units):
            continue
        encoded = payloads(places.sized(max_batches), reports)
        costs = [spent(places, encoded) for _ in range(places.sized(COST_ROUNDS))]
        cost = statistics.median(costs) / len(encoded)
        for unit, number in units.items():
            yield Figure(f"{name}/{unit}", cost / number * MICROSECONDS, "us of a core")
    for growth, runs in GROWTHS.items():
        name = f"end to end/growth, {growth}"
        if places.wanted(f"{name}/last over first"):
            encoded = payloads(places.sized(GROWTH_BATCHES), GROWTH_REPORTS)
            costs = [spent(places, encoded, count, partitions) for count, partitions in runs]
            yield Figure(f"{name}/last over first", costs[-1] / costs[0], "x")
            yield Figure(f"{name}/highest over lowest", max(costs) / min(costs), "x")


def counting(places: Places, encoded: list[bytes], reports: int, count: int) -> Side:
    """Return a side that counts a whole log: read, sum, commit."""

    def rate(_: float) -> float:
        with (
            places.held_log(encoded) as (topic, release),
            workers(places, topic, [METRIC], count, more=SHORT_INTERVAL) as running,
        ):
            began = time.perf_counter()
            release()
            running.wait_for(len(encoded))
            return len(encoded) * reports / (time.perf_counter() - began)

    return rate


def spent(
    places: Places, encoded: list[bytes], count: int = 1, partitions: int = PARTITIONS
) -> float:
    """Return the processor seconds in which workers count a whole log: from fetch to commit."""
    with (
        places.held_log(encoded, partitions) as (topic, release),
        workers(places, topic, [METRIC], count, partitions) as running,
    ):
        time.sleep(SETTLING_SECONDS)
        began = processor_seconds(running.pids)
        release()
        running.wait_for(len(encoded))
        return processor_seconds(running.pids) - began
