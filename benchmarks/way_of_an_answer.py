"""Calls whose way through the files of the project is counted: a report, a commit, an answer."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from aggregator import Reader
from aggregator.local.embedded_servers import EmbeddedRedis
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, TIME_MS, LogMessage
from estimators import define
from estimators.metrics.metric import ReportedMetric
from producers import Reporter
from producers.wire.batch import encode_randomized, new_batch_id

METRIC = define(
    name="delay",
    kind="mean",
    range=(-60, 180),
    levels=[0.25, 0.5, 1, 2, 4],
    pane="1h",
    lateness="5m",
)
STEP_MS = 200_000
BATCHES = 60


def setup() -> dict[str, Callable[[], object]]:
    """Return each call by its name; the first one warms up."""
    stack = ExitStack()
    atexit.register(stack.close)
    store = Store(connect(stack.enter_context(EmbeddedRedis()).url), "dither.reports")
    level = METRIC.level_of(np.full(10, 1.0))
    reports = ReportedMetric.require(METRIC).randomize(np.linspace(0, 50, 10), level)

    def batch(offset: int) -> LogMessage:
        time_ms = TIME_MS + offset * STEP_MS
        payload = encode_randomized(METRIC, level, reports, time_ms, new_batch_id())
        return LogMessage(offset, payload, time_ms)

    def counted(number: int) -> Callable[[], object]:
        """Return the commit of a partition that has counted messages."""
        snapshot = store.partition.acquire(number, "worker")
        partition = Partition({METRIC.name: METRIC}, FUTURE_MS)
        partition.count([batch(offset) for offset in range(BATCHES)])
        epoch, facts = int(snapshot.owner["epoch"]), {"partitions": 1}
        return lambda: store.partition.commit(number, epoch, -1, partition, facts)

    counted(0)()
    commits = iter([counted(1), counted(2)])
    partition = Partition({METRIC.name: METRIC}, FUTURE_MS)
    messages = iter([batch(offset) for offset in range(BATCHES)])
    reader = Reader(store, {METRIC.name: METRIC})
    reporter = Reporter(METRIC, {"test.mock.num.brokers": 1}, batch_age=1e9)
    return {
        "Reporter.report": lambda: reporter.report(17.0, epsilon=1.0),
        "Partition.count": lambda: partition.count([next(messages)]),
        "commit": lambda: next(commits)(),
        "Reader.estimate": lambda: reader.estimate(METRIC.name, "1h"),
        "Reader.series": lambda: reader.series(METRIC.name),
    }
