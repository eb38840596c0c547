"""The resident memory of a worker process, after it has counted every metric in every partition."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from aggregator.storage.connection import connect
from aggregator.storage.store import Store
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
MEBIBYTE = 2**20


def benchmarks(places: Places) -> Iterator[Outcome]:
    yield Figure("memory/Redis, id of a batch", _id_bytes(places), "B")
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
        before = store.client.info("memory")["used_memory"]
        for held in range(0, number, IDS_AT_ONCE):
            ids = os.urandom(BATCH_ID_BYTES * IDS_AT_ONCE)
            store.client.setrange("ids", BATCH_ID_BYTES * held, ids)
        after = store.client.info("memory")["used_memory"]
        held = store.client.strlen("ids") // BATCH_ID_BYTES
        store.client.delete("ids")
    return float((after - before) / held)


def _measured(places: Places, metrics: Sequence[LocalMetric]) -> tuple[int, int]:
    """Return the resident memory of a worker in bytes, and the most that it ever was."""
    topic = places.topic(PARTITIONS)
    with (
        tempfile.TemporaryDirectory() as name,
        Store(connect(places.redis), topic) as store,
    ):
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
