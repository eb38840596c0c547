"""Worker processes from Apache Kafka to Redis, against consuming the same log and no more.

The log is there, in a transaction that is not committed, when the workers have joined their group;
the time runs from its commit to the workers' own commit of the last message. The cost is the
processor time of the worker processes alone in that time, user and system, of all threads.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from aggregator.config.settings import Redis, Settings, Topics
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.batches import METRIC, METRICS, payloads
from benchmarks.consume import consumption, raw
from benchmarks.measure import Benchmark, Figure, NotRun, Outcome, Side
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import processor_seconds
from benchmarks.workers import committed, definitions, joined, wait, workers

WORKERS = (1, 2)
BATCHES = {1: 300_000, 1_000: 60_000}
COSTED = {1: 900_000, 1_000: 90_000}
"""Seconds of a worker's time: it commits every second by default, and does so here."""
COST_ROUNDS = 3
GROWN_BATCHES, GROWN_REPORTS = 600_000, 100
GROWN = {
    "partitions": [(1, number) for number in (1, 4, 16, 64)],
    "workers": [(number, 64) for number in (1, 2, 4, 8, 16)],
}
"""Workers and partitions of each run."""
SETTLING_SECONDS = 4.0
"""After workers have joined, until nothing is left of their start."""
MICROSECONDS = 1e6
COMMIT_INTERVAL = "100ms"
"""Short, so that waiting for the last commit is not what is measured."""


def benchmarks(places: Places) -> Iterator[Outcome]:
    if not places.is_real:
        yield NotRun("end to end", "needs Apache Kafka: dither kafka --fetch")
        return
    for reports, most in BATCHES.items():
        names = {count: f"end to end/batches of {reports}, workers {count}" for count in WORKERS}
        if not any(places.wanted(f"{name}/raw") for name in names.values()):
            continue
        encoded = payloads(places.sized(most), reports)
        topic, messages = places.log(encoded)
        baseline = consumption(places, topic, messages, reports, lambda: raw)
        for count, name in names.items():
            yield Benchmark(
                f"{name}/raw", "reports/s", counting(places, encoded, reports, count), baseline
            )
    if not sys.platform.startswith("linux"):
        yield NotRun("end to end/cost", "needs Linux: another process' processor time")
        return
    for reports, most in COSTED.items():
        name = f"end to end/cost, batches of {reports}"
        told = ("a message", "a report")[: min(reports, 2)]
        if not any(places.wanted(f"{name}/{what}") for what in told):
            continue
        encoded = payloads(places.sized(most), reports)
        cost = statistics.median(
            spent(places, encoded) for _ in range(places.sized(COST_ROUNDS))
        ) / len(encoded)
        for what, units in zip(told, (1, reports), strict=False):
            yield Figure(f"{name}/{what}", cost / units * MICROSECONDS, "us of a core")
    for grown, runs in GROWN.items():
        name = f"end to end/growth, {grown} {runs[0][grown == 'partitions']}"
        name += f" to {runs[-1][grown == 'partitions']}"
        if not places.wanted(f"{name}/last over first"):
            continue
        encoded = payloads(places.sized(GROWN_BATCHES), GROWN_REPORTS)
        costs = [spent(places, encoded, count, partitions) for count, partitions in runs]
        yield Figure(f"{name}/last over first", costs[-1] / costs[0], "x")
        yield Figure(f"{name}/highest over lowest", max(costs) / min(costs), "x")


def settings_of(places: Places, topic: str, folder: Path) -> Settings:
    """Return settings for a topic of its own, with the metric defined in a file."""
    file = folder / "metrics.toml"
    file.write_text(definitions(METRICS.values()))
    settings = Settings(
        metrics=str(file),
        kafka={"bootstrap.servers": places.kafka},
        topics=Topics(reports=topic, deadletters=f"{topic}-dead", managed=False),
        redis=Redis(url=places.redis),
    )
    settings.aggregate.group = uuid.uuid4().hex
    settings.aggregate.past = "36500d"
    return settings


def counting(places: Places, encoded: list[bytes], reports: int, count: int) -> Side:
    """Return a side that counts a whole log: read, sum, commit."""

    def rate(_: float) -> float:
        with (
            tempfile.TemporaryDirectory() as folder,
            places.held_log(encoded) as (topic, release),
            Store(connect(places.redis), topic) as store,
        ):
            settings = settings_of(places, topic, Path(folder))
            settings.aggregate.commit_interval = COMMIT_INTERVAL
            with workers(count, settings, Path(folder) / "log"):
                wait(lambda: joined(store, PARTITIONS, count), "the workers' joining")
                began = time.perf_counter()
                release()
                wait(lambda: committed(store, PARTITIONS) >= len(encoded), METRIC.name)
                return len(encoded) * reports / (time.perf_counter() - began)

    return rate


def spent(
    places: Places, encoded: list[bytes], count: int = 1, partitions: int = PARTITIONS
) -> float:
    """Return the processor seconds in which workers count a whole log: from fetch to commit.

    They have started, joined their group and own all partitions before the first message.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        places.held_log(encoded, partitions) as (topic, release),
        Store(connect(places.redis), topic) as store,
    ):
        settings = settings_of(places, topic, Path(folder))
        with workers(count, settings, Path(folder) / "log") as processes:
            wait(lambda: joined(store, partitions, count), "the workers' joining")
            time.sleep(SETTLING_SECONDS)
            pids = [process.pid for process in processes]
            before = processor_seconds(pids)
            release()
            wait(lambda: committed(store, partitions) >= len(encoded), METRIC.name)
            return processor_seconds(pids) - before
