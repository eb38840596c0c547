"""A day of a fleet in minutes, and what docs/capacity.md said that it would need.

``python -m benchmarks.fleet --batches 2e7`` needs Apache Kafka and Redis, and starts its own.
Batches of one report, spread evenly over the hours, come as fast as one worker counts them; no id
is forgotten before the end, as lateness is as long as that. Exits with 1 if a batch was lost or
counted twice, or the model is off by more than 15% in the memory of the worker, in that of Redis or
in the processor time of a message.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import click
import numpy as np

from aggregator.config import logging
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from aggregator.verifying.verify import verify
from benchmarks.batches import METRIC
from benchmarks.capacity_model import (
    HOUR_SECONDS,
    Assumptions,
    Fleet,
    Rates,
    redis_memory,
    worker_memory,
)
from benchmarks.metrics import reports_of
from benchmarks.places import PARTITIONS, Places
from benchmarks.record import RECORDED, Record
from benchmarks.steady import memory_of, processor_seconds
from benchmarks.workers import Workers, workers
from estimators import LocalMetric
from producers.wire.batch import encode_batch
from producers.wire.reports_pb2 import ReportBatch

MAX_WAITING_MESSAGES = 400_000
"""Producing pauses while more messages than this are not committed. They are more than a worker
counts in a second, or the worker would wait for its own commits; they are not many more, because it
holds them besides the ids."""
LOOK_MESSAGES = 5_000
TEMPLATES = 64
SEED = 11
HOUR_MS = 1_000 * HOUR_SECONDS
SETTLING_SECONDS = 3.0
MAX_MODEL_ERROR = 0.15
MICROSECONDS = 1e6


def measure(places: Places, batches: int, hours: int) -> dict[str, Any]:
    """Count batches spread over some hours; return what that took, in bytes and microseconds.

    The lateness is as many hours.
    """
    metric, topic = dataclasses.replace(METRIC, lateness=f"{hours}h"), places.topic()
    more = {"aggregate.memory": int(Assumptions().worker_bytes)}
    with workers(places, topic, [metric], more=more) as running:
        (pid,), client = running.pids, running.store.client
        redis_before = client.info("memory")["used_memory"]
        began, spent = time.time(), processor_seconds([pid])
        running.wait_for(places.fill(topic, _day(running, metric, batches, hours)))
        seconds, spent = time.time() - began, processor_seconds([pid]) - spent
        time.sleep(SETTLING_SECONDS)
        worker, redis = memory_of(pid)["VmRSS"], client.info("memory")["used_memory"] - redis_before
    with Store(connect(places.redis), running.settings.topics.reports) as store:
        outcome = verify(running.settings, {metric.name: metric}, store)
    return {
        "worker": worker,
        "redis": redis,
        "message_us": spent / batches * MICROSECONDS,
        "messages_per_second": batches / seconds,
        "verified": outcome.verified,
        "messages": outcome.messages,
    }


def predicted(batches: int, hours: int, rates: Rates) -> dict[str, float]:
    """Return the model's prediction for such a run."""
    fleet = Fleet(
        devices=batches,
        reports_per_day=24 / hours,
        metrics=1,
        levels=len(METRIC.levels),
        cells=METRIC.zero().size // len(METRIC.levels),
        lateness_seconds=hours * HOUR_SECONDS,
        kept_days=0,
    )
    return {
        "worker": worker_memory(fleet, rates, PARTITIONS, batches),
        "redis": redis_memory(fleet, rates, PARTITIONS, batches),
        "message_us": (rates.message_seconds + rates.report_seconds) * MICROSECONDS,
    }


def _day(running: Workers, metric: LocalMetric, batches: int, hours: int) -> Iterator[bytes]:
    """Return batches spread evenly over the hours that end now, no faster than workers count."""
    levels, reports = reports_of(metric, TEMPLATES)
    templates = [
        ReportBatch.FromString(encode_batch(metric, levels[[i]], reports[[i]], 0))
        for i in range(TEMPLATES)
    ]
    rng, first = np.random.default_rng(SEED), time.time_ns() // 1_000_000 - hours * HOUR_MS
    for number in range(batches):
        if number % LOOK_MESSAGES == 0:
            running.wait_for(number - MAX_WAITING_MESSAGES)
        batch = templates[number % TEMPLATES]
        batch.batch_id = rng.bytes(16)
        batch.time_ms = first + number * hours * HOUR_MS // batches
        yield batch.SerializeToString()


@click.command()
@click.option("--batches", type=float, default=2e7, show_default=True)
@click.option("--hours", type=click.IntRange(1), default=24, show_default=True)
def main(batches: float, hours: int) -> None:
    """Count a day of a fleet, and compare what it took with what the model says."""
    logging.configure("error")
    expected = predicted(int(batches), hours, Rates.of(Record.read(RECORDED)))
    with ExitStack() as stack:
        places = Places(stack)
        places.need_workers()
        measured = measure(places, int(batches), hours)
    errors = {name: measured[name] / value - 1 for name, value in expected.items()}
    click.echo(json.dumps({"measured": measured, "model": expected, "off": errors}, indent=1))
    is_right = measured["verified"] and measured["messages"] == int(batches)
    is_close = all(abs(error) <= MAX_MODEL_ERROR for error in errors.values())
    sys.exit(0 if is_right and is_close else 1)


if __name__ == "__main__":
    main()
