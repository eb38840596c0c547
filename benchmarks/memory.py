"""The resident memory of a worker process, after it has counted every metric in every partition."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.measure import Figure, NotRun, Outcome
from benchmarks.places import FILLING, PARTITIONS, Places
from benchmarks.redis_panes import commit_ids, delete_partition
from benchmarks.workers import workers
from estimators import LocalMetric, define
from producers.wire.batch import encode_batch

BATCH_REPORTS = 200
ROUNDS = 10
"""Batches of every metric in every partition, each in a pane of its own: most panes close."""
SETTLING_SECONDS = 3.0
IDS, IDS_AT_ONCE = 200_000, 1_000
HELD_IDS = 3_000_000
HOLDING_PROGRAM = """
import sys
import numpy as np
from aggregator.state.batch_ids import BatchIds, as_ids

def memory(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))

ids, at_once = map(int, sys.argv[1:])
draw = np.random.default_rng(1).bytes
warm, held, worst = BatchIds(), BatchIds(), 0.0
for _ in range(100):
    warm.add(as_ids(draw(16 * at_once)))
del warm
before = memory("VmRSS")
while len(held) < ids:
    new = as_ids(draw(16 * at_once))
    held.add(new[~held.find_repeats(new)])
    if len(held) > ids / 3:
        worst = max(worst, (memory("VmHWM") - before) / len(held))
print(worst)
"""
MEBIBYTE = 2**20


def benchmarks(places: Places) -> Iterator[Outcome]:
    yield Figure("memory/Redis, id of a batch", _id_bytes(places), "B")
    if sys.platform.startswith("linux"):
        yield Figure("memory/worker, id of a batch", _held_bytes(places.sized(HELD_IDS)), "B")
    if not places.is_real or not sys.platform.startswith("linux"):
        yield NotRun("memory/workers", "needs Apache Kafka, and Linux's /proc")
        return
    small = define(
        name="small", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[0.5, 1, 2]
    )
    wide = define(
        name="wide",
        kind="frequency",
        mechanism="rappor",
        categories=max(2, places.sized(1024)),
        levels=[0.25 * step for step in range(1, 17)],
    )
    for metric, copies, name in (
        (small, 10, "10 small metrics"),
        (wide, max(2, places.sized(100)), "100 metrics of 1,024 categories and 16 levels"),
    ):
        metrics = [dataclasses.replace(metric, name=f"m{number}") for number in range(copies)]
        sizes = _measured(places, metrics)
        yield Figure(f"memory/{name}", sizes["VmRSS"] / MEBIBYTE, "MB")
        yield Figure(f"memory/{name}/highest", sizes["VmHWM"] / MEBIBYTE, "MB")


def _id_bytes(places: Places) -> float:
    """Return the memory that Redis takes for the id of a batch in an open pane."""
    with Store(connect(places.redis), "ids") as store:
        sizes = [
            (ids, float(store.client.info("memory")["used_memory"]))
            for ids in commit_ids(store, max(2, places.sized(IDS)), IDS_AT_ONCE)
        ]
        delete_partition(store, "ids")
    (first_ids, first_bytes), (last_ids, last_bytes) = sizes[0], sizes[-1]
    return (last_bytes - first_bytes) / (last_ids - first_ids)


def _held_bytes(ids: int) -> float:
    """Return the memory that a process takes for the id of a batch in an open pane.

    The most that it ever took from a third of the ids on, by the kernel's account, also while the
    table grew: for each id that it held then.
    """
    program = [sys.executable, "-c", HOLDING_PROGRAM, str(ids), str(IDS_AT_ONCE)]
    return float(subprocess.run(program, check=True, capture_output=True, text=True).stdout)


def _measured(places: Places, metrics: Sequence[LocalMetric]) -> dict[str, int]:
    """Return the memory of a worker that has counted all metrics."""
    topic = places.topic()
    with workers(places, topic, metrics) as running:
        running.wait_for(_report(places.kafka, topic, metrics))
        time.sleep(SETTLING_SECONDS)
        return memory_of(running.pids[0])


def _report(servers: str, topic: str, metrics: Sequence[LocalMetric]) -> int:
    """Report of every metric at all levels into every partition; return the messages."""
    level = np.arange(BATCH_REPORTS) % len(metrics[0].levels)
    reports = metrics[0].randomize(np.zeros(BATCH_REPORTS, dtype=np.int64), level)
    now = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": servers, **FILLING})
    messages = 0
    for back in range(ROUNDS, 0, -1):
        for metric in metrics:
            for partition in range(PARTITIONS):
                payload = encode_batch(metric, level, reports, now - back * metric.pane_ms)
                producer.produce(topic, payload, partition=partition)
                messages += 1
        producer.flush()
    producer.close()
    return messages


def memory_of(pid: int) -> dict[str, int]:
    """Return the memory of a process, in bytes, by the kernel's names; Linux only."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {
        line.partition(":")[0]: 1024 * int(line.split()[1]) for line in lines if line[:2] == "Vm"
    }
