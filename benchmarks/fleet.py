"""A day of a fleet in minutes, and what docs/capacity.md said that it would need.

``python -m benchmarks.fleet --batches 2e7`` needs Apache Kafka and Redis, and starts its own.
Batches of one report, spread evenly over the hours, come as fast as one worker counts them; no id
is forgotten before the end, as lateness is as long as that. Exits with 1 if a batch was lost or
counted twice, or the model is off by more than 15% in the memory of the worker, in that of Redis or
in the processor time of a message.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from aggregator.config import logging
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from aggregator.verifying.verify import verify
from benchmarks.batches import METRIC
from benchmarks.capacity_model import Fleet, redis_memory, worker_memory
from benchmarks.capacity_rates import Rates
from benchmarks.end_to_end import settings_of
from benchmarks.memory import resident
from benchmarks.metrics import reports_of
from benchmarks.places import FILLING, PARTITIONS, Places
from benchmarks.record import RECORDED, Record
from benchmarks.steady import processor_seconds
from benchmarks.workers import committed, definitions, joined, wait, workers
from estimators import LocalMetric
from producers.wire.batch import encode_batch

MOST_WAITING = 400_000
"""Messages that are not committed yet, above which producing pauses: more than a worker counts in
a second, or it would wait for its own commits; and no more, for it holds them besides ids."""
LOOK_MESSAGES = 5_000
TEMPLATES = 64
TIME_BYTES = 6
SEED = 11
HOUR_SECONDS = 3_600
HOUR_MS = 1_000 * HOUR_SECONDS
SETTLING_SECONDS = 3.0
WITHIN = 0.15
MICROSECONDS = 1e6


def run(places: Places, folder: Path, batches: int, hours: int, memory: int) -> dict[str, Any]:
    """Count so many batches, and return what was measured, in bytes and microseconds.

    Parameters
    ----------
    places : Places
    folder : Path
        For the definitions, and the worker's log.
    batches, hours : int
        How many, and over how many hours of event time. Lateness is as many.
    memory : int
        Bytes that the worker may take (`aggregate.memory`).
    """
    metric = dataclasses.replace(METRIC, lateness=f"{hours}h")
    topic = places.topic(PARTITIONS)
    settings = settings_of(places, topic, folder)
    Path(settings.metrics).write_text(definitions([metric]))
    with Store(connect(places.redis), topic) as store:
        before = store.client.info("memory")["used_memory"]
        more = {"aggregate.memory": memory}
        with workers(1, settings, folder / "log", more) as (process,):
            wait(lambda: joined(store, PARTITIONS, 1), "the worker's joining")
            idle, began, spent = (
                resident(process.pid),
                time.time(),
                processor_seconds([process.pid]),
            )
            _produce(places.kafka, topic, metric, store, batches, hours)
            wait(lambda: committed(store, PARTITIONS) >= batches, "counting")
            seconds, spent = time.time() - began, processor_seconds([process.pid]) - spent
            time.sleep(SETTLING_SECONDS)
            found = {
                "idle worker": idle,
                "worker": resident(process.pid),
                "redis": store.client.info("memory")["used_memory"] - before,
                "message_us": spent / batches * MICROSECONDS,
                "messages_per_second": batches / seconds,
            }
        outcome = verify(settings, {metric.name: metric}, store)
    return found | {"verified": outcome.verified, "messages": outcome.messages}


def predicted(batches: int, hours: int, rates: Rates) -> dict[str, float]:
    """Return what the model says of such a run."""
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


def _produce(
    servers: str, topic: str, metric: LocalMetric, store: Store, batches: int, hours: int
) -> None:
    """Report evenly over the hours that end now, no faster than is counted."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **FILLING})
    template = _Template(metric)
    rng = np.random.default_rng(SEED)
    first = time.time_ns() // 1_000_000 - hours * HOUR_MS
    for begin in range(0, batches, LOOK_MESSAGES):
        producer.poll(0)
        wait(functools.partial(_reached, store, begin - MOST_WAITING), "counting")
        numbers = np.arange(begin, min(batches, begin + LOOK_MESSAGES))
        times = first + numbers * (hours * HOUR_MS) // batches
        for number, payload in enumerate(template.payloads(times, rng), begin):
            while True:
                try:
                    producer.produce(topic, payload, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
    producer.flush()
    producer.close()


def _reached(store: Store, messages: int) -> bool:
    return committed(store, PARTITIONS) >= messages


class _Template:
    """Makes batches of one report that differ in report, time and id, many at a time.

    Encoding them one by one takes longer than counting them, and then the worker would wait.
    """

    def __init__(self, metric: LocalMetric) -> None:
        time_ms, batch_id = 2**41 - 1, bytes(range(16))
        levels, reports = reports_of(metric, TEMPLATES)
        encoded = [
            encode_batch(metric, levels[[i]], reports[[i]], time_ms, batch_id)
            for i in range(TEMPLATES)
        ]
        self._rows = np.array([list(each) for each in encoded], dtype=np.uint8)
        self._id = encoded[0].index(batch_id)
        self._time = encoded[0].index(b"\xff" * (TIME_BYTES - 1) + b"\x3f")

    def payloads(self, times: NDArray[np.int64], rng: np.random.Generator) -> list[bytes]:
        """Return a batch for each event time, in ms, with a random id."""
        found = self._rows[np.arange(times.size) % TEMPLATES]
        found[:, self._id : self._id + 16] = rng.integers(0, 256, (times.size, 16), dtype=np.uint8)
        for place in range(TIME_BYTES):  # a varint, of as many bytes from the year 2004 to 2039
            more = 128 if place < TIME_BYTES - 1 else 0
            found[:, self._time + place] = (times >> 7 * place) & 127 | more
        payloads: list[bytes] = found.view(f"V{found.shape[1]}")[:, 0].tolist()
        return payloads


@click.command()
@click.option("--batches", type=float, default=2e7, show_default=True)
@click.option("--hours", type=click.IntRange(1), default=24, show_default=True)
@click.option(
    "--memory", type=float, default=16e9, show_default=True, help="Bytes that the worker may take."
)
@click.option(
    "--record",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=RECORDED,
    help="Of the rates that the model goes by.",
)
def main(batches: float, hours: int, memory: float, record: Path) -> None:
    """Count a day of a fleet, and compare what it took with what the model says."""
    logging.configure("error")
    expected = predicted(int(batches), hours, Rates.of(Record.read(record)))
    with ExitStack() as stack:
        places = Places(stack)
        if not places.is_real:
            sys.exit("needs Apache Kafka: dither kafka --fetch")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = run(places, folder, int(batches), hours, int(memory))
    off = {name: found[name] / value - 1 for name, value in expected.items()}
    click.echo(json.dumps({"measured": found, "model": expected, "off": off}, indent=1))
    is_right = found["verified"] and found["messages"] == int(batches)
    sys.exit(0 if is_right and all(abs(one) <= WITHIN for one in off.values()) else 1)


if __name__ == "__main__":
    main()
