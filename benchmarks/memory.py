"""The resident memory of a worker process, after it has counted every metric in every partition."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from aggregator.state.batch_ids import as_ids
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from benchmarks.batches import FUTURE_MS, METRICS, LogMessage, payloads
from benchmarks.end_to_end import settings_of
from benchmarks.measure import Figure, NotRun, Outcome
from benchmarks.places import Places
from benchmarks.workers import committed, definitions, joined, wait, workers
from estimators import LocalMetric, define
from producers.wire.batch import BATCH_ID_BYTES, encode_batch

PARTITIONS = 6
BATCH_REPORTS = 200
ROUNDS = 10
"""Batches of every metric in every partition, each in a pane of its own: most panes close."""
SETTLING_SECONDS = 3.0
IDS, IDS_AT_ONCE = 200_000, 1_000
HELD = 3_000_000
HOLDING = """
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
        yield Figure("memory/worker, id of a batch", _held_bytes(places.sized(HELD)), "B")
    if not places.is_real or not sys.platform.startswith("linux"):
        yield NotRun("memory/workers", "needs Apache Kafka, and Linux's /proc")
        return
    small = define(
        name="small", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[0.5, 1, 2]
    )
    categories = max(2, places.sized(1024))
    wide = define(
        name="wide",
        kind="frequency",
        mechanism="rappor",
        categories=categories,
        levels=[0.25 * step for step in range(1, 17)],
    )
    for metric, copies, told in (
        (small, 10, "10 small metrics"),
        (wide, max(2, places.sized(100)), "100 metrics of 1,024 categories and 16 levels"),
    ):
        metrics = [dataclasses.replace(metric, name=f"m{number}") for number in range(copies)]
        resident, highest = _measured(places, metrics)
        yield Figure(f"memory/{told}", resident / MEBIBYTE, "MB")
        yield Figure(f"memory/{told}/highest", highest / MEBIBYTE, "MB")


def _id_bytes(places: Places) -> float:
    """Return the memory that Redis takes for the id of a batch in an open pane."""
    number = places.sized(IDS)
    with Store(connect(places.redis), "ids") as store:
        epoch = int(store.partition.acquire(0, "worker").owner["epoch"])
        state = Partition(METRICS, FUTURE_MS)
        state.count([LogMessage(0, payload) for payload in payloads(1, 1)])
        ((key, pane),) = ((key, pane) for key, pane in state.panes.items() if pane.batch_ids)
        following = UNSET
        for held in range(0, number, IDS_AT_ONCE):
            store.partition.commit(0, epoch, following, state, {})
            following = state.next_offset
            if not held:
                before, counted = store.client.info("memory")["used_memory"], len(pane.batch_ids)
            more = os.urandom(BATCH_ID_BYTES * IDS_AT_ONCE)
            pane.batch_ids.add(as_ids(more))
            pane.unsaved.append(more)
            state.changed[key] = pane
            state.advance_to(following + IDS_AT_ONCE)
        store.partition.commit(0, epoch, following, state, {})
        after = store.client.info("memory")["used_memory"]
        for key in store.client.scan_iter(f"{tag('ids', 0)}:*"):
            store.client.delete(key)
    return float((after - before) / (len(pane.batch_ids) - counted))


def _held_bytes(ids: int) -> float:
    """Return the memory that a process takes for the id of a batch in an open pane.

    The most that it ever took from a third of the ids on, by the kernel's account, also while the
    table grew: for each id that it held then.
    """
    program = [sys.executable, "-c", HOLDING, str(ids), str(IDS_AT_ONCE)]
    return float(subprocess.run(program, check=True, capture_output=True, text=True).stdout)


def _measured(places: Places, metrics: Sequence[LocalMetric]) -> tuple[int, int]:
    """Return the resident memory of a worker in bytes, and the most that it ever was."""
    topic = places.topic(PARTITIONS)
    with tempfile.TemporaryDirectory() as name, Store(connect(places.redis), topic) as store:
        folder = Path(name)
        settings = settings_of(places, topic, folder)
        Path(settings.metrics).write_text(definitions(metrics))
        with workers(1, settings, folder / "log") as (process,):
            wait(lambda: joined(store, PARTITIONS, 1), "the worker's joining")
            messages = _report(places.kafka, topic, metrics)
            wait(lambda: committed(store, PARTITIONS) >= messages, "counting")
            time.sleep(SETTLING_SECONDS)
            found = _status(process.pid)
    return found["VmRSS"], found["VmHWM"]


def _report(servers: str, topic: str, metrics: Sequence[LocalMetric]) -> int:
    """Report of every metric at all levels into every partition; return the messages."""
    level = np.arange(BATCH_REPORTS) % len(metrics[0].levels)
    reports = metrics[0].randomize(np.zeros(BATCH_REPORTS, dtype=np.int64), level)
    now = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
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


def resident(pid: int) -> int:
    """Return the resident memory of a process, in bytes; Linux only."""
    return _status(pid)["VmRSS"]


def _status(pid: int) -> dict[str, int]:
    """Return the memory of a process, in bytes, by the kernel's names."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {
        line.partition(":")[0]: 1024 * int(line.split()[1]) for line in lines if line[:2] == "Vm"
    }
