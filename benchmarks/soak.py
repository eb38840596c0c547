"""Hours in minutes: workers at full rate while others come and go; their memory must not grow.

``python -m benchmarks.soak --minutes 30`` needs Apache Kafka and Redis, and starts its own. Two
worker processes stay; every ten seconds another one joins the group, or leaves it. At the end the
log proves the sums. Exits with 1 if the memory of a worker that stayed grew by 5% or more.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aggregator.config import logging
from aggregator.config.settings import Redis, Settings, Topics
from aggregator.counting.worker import Worker
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from aggregator.verifying.comparison import Verification
from aggregator.verifying.verify import verify
from benchmarks.places import Places
from benchmarks.workers import workers
from estimators import load_metrics
from estimators.metrics.reported import ReportedMetric
from producers.wire.batch import encode_batch
from producers.wire.reports_pb2 import ReportBatch

PARTITIONS = 6
STAYING = 2
REBALANCE_SECONDS = 10.0
SAMPLE_SECONDS = 5.0
SETTLED_MINUTES = 5.0
"""Until then caches and pools fill; the shorter run for trying has a sixth of its time."""
MOST_GROWTH = 0.05
MOST_WAITING = 20_000
"""Messages that are not counted yet, above which producing pauses: the workers set the rate."""
LOOK_MESSAGES = 1_000
BATCH_REPORTS = 50
TEMPLATES = 64
PATIENCE_SECONDS = 300.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
METRICS = """
[metrics.delay]
kind = "mean"
mechanism = "randomized_response"
range = [-60, 180]
levels = [0.5, 1, 2]
pane = "10s"
lateness = "10s"

[metrics.carrier]
kind = "frequency"
mechanism = "rappor"
categories = 16
levels = [1, 4]
pane = "1m"
"""


@dataclasses.dataclass
class Memory:
    """The resident memory of a process, sampled.

    Attributes
    ----------
    samples : list of (float, int)
        Minutes since the beginning, bytes.
    """

    pid: int
    samples: list[tuple[float, int]] = dataclasses.field(default_factory=list)

    def sample(self, minutes: float) -> None:
        """Look once."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        self.samples.append((minutes, pages * PAGE_BYTES))

    def growth(self, settled: float) -> dict[str, float]:
        """Return how it grew after the first minutes, and the slope of a line through it."""
        times, sizes = np.array([s for s in self.samples if s[0] >= settled]).T
        window = max(1.0, (times[-1] - settled) / 10)
        first = sizes[times < settled + window].mean()
        last = sizes[times > times[-1] - window].mean()
        slope = float(np.polyfit(times, sizes, 1)[0]) if len(times) > 1 else 0.0
        return {
            "first_mb": round(first / 2**20, 1),
            "last_mb": round(last / 2**20, 1),
            "growth": round(float(last / first) - 1, 4),
            "slope_mb_per_hour": round(60 * slope / 2**20, 2),
        }


class Soak:
    """A deployment of its own, fed as fast as it counts."""

    def __init__(self, folder: Path, servers: str, redis_url: str) -> None:
        self.file = folder / "metrics.toml"
        self.file.write_text(METRICS)
        self.metrics = load_metrics(self.file)
        name = f"soak-{uuid.uuid4().hex[:8]}"
        self.settings = Settings(
            metrics=str(self.file),
            kafka={"bootstrap.servers": servers, "session.timeout.ms": 10_000},
            topics=Topics(reports=name, deadletters=f"{name}-dead", partitions=PARTITIONS),
            redis=Redis(url=redis_url),
        )
        self.settings.aggregate.group = name
        admin = AdminClient({"bootstrap.servers": servers})
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1), NewTopic(f"{name}-dead", 1, 1)])
        for future in made.values():
            future.result(60)
        self.store = Store(connect(redis_url), name)
        self.log = folder / "workers.log"
        self.ended = threading.Event()
        self.produced = self.rebalances = 0

    def staying(self) -> AbstractContextManager[list[subprocess.Popen[bytes]]]:
        """Run the workers that stay."""
        return workers(STAYING, self.settings, self.log, {"kafka.session.timeout.ms": 10_000})

    def come_and_go(self) -> None:
        """Let another worker join the group and leave it, again and again."""
        while not self.ended.wait(REBALANCE_SECONDS):
            worker = Worker(self.settings, self.metrics, self.store, "guest")
            thread = threading.Thread(target=worker.run)
            thread.start()
            self.ended.wait(REBALANCE_SECONDS)
            worker.stop()
            thread.join()
            self.rebalances += 2

    def produce(self) -> None:
        """Report as fast as is counted; event time is now."""
        producer = Producer(
            {
                "bootstrap.servers": self.settings.kafka["bootstrap.servers"],
                "enable.idempotence": True,
                "linger.ms": 20,
            }
        )
        batches = [
            one
            for metric in self.metrics.values()
            for one in _templates(ReportedMetric.require(metric))
        ]
        topic = self.settings.topics.reports
        while not self.ended.is_set():
            if self.waiting() > MOST_WAITING:
                self.ended.wait(0.1)
                continue
            for _ in range(LOOK_MESSAGES):
                batch = batches[self.produced % len(batches)]
                batch.batch_id = self.produced.to_bytes(16, "big")
                batch.time_ms = time.time_ns() // 1_000_000
                partition = self.produced % PARTITIONS
                while True:
                    try:
                        producer.produce(topic, batch.SerializeToString(), partition=partition)
                        break
                    except BufferError:
                        producer.poll(0.1)
                self.produced += 1
            producer.poll(0)
        if producer.flush(PATIENCE_SECONDS):
            raise TimeoutError("Kafka did not acknowledge everything")
        producer.close()

    def waiting(self) -> int:
        """Return how many messages are produced and not counted."""
        return self.produced - self.counted()

    def counted(self) -> int:
        """Return how many messages are counted."""
        overview = self.store.overview().partitions.values()
        return sum(max(0, int(standing.owner.get("next", 0))) for standing in overview)

    def verified(self) -> Verification:
        """Wait until all is counted, and let the log prove the sums."""
        return verify(self.settings, self.metrics, self.store)


def _templates(metric: ReportedMetric) -> list[ReportBatch]:
    rng = np.random.default_rng(0)
    size = (TEMPLATES, BATCH_REPORTS)
    values = rng.uniform(0, 100, size) if metric.kind == "mean" else rng.integers(0, 16, size)
    level = metric.level_of(rng.choice(metric.levels, BATCH_REPORTS))
    return [
        ReportBatch.FromString(encode_batch(metric, level, metric.randomize(row, level), 1))
        for row in values
    ]


def run(minutes: float, servers: str, redis_url: str, folder: Path) -> dict[str, Any]:
    """Run it, and return the figures."""
    soak = Soak(folder, servers, redis_url)
    settled = min(SETTLED_MINUTES, minutes / 6)
    threads = [threading.Thread(target=part) for part in (soak.produce, soak.come_and_go)]
    began = time.monotonic()
    with soak.staying() as processes:
        memories = [Memory(process.pid) for process in processes]
        for thread in threads:
            thread.start()
        try:
            while (now := (time.monotonic() - began) / 60) < minutes:
                time.sleep(SAMPLE_SECONDS)
                for memory in memories:
                    memory.sample(now)
                sizes = [memory.samples[-1][1] >> 20 for memory in memories]
                print(f"{now:6.1f} min  {soak.counted():>12} messages  {sizes} MB", flush=True)
        finally:
            soak.ended.set()
            for thread in threads:
                thread.join()
        rate = soak.counted() / (time.monotonic() - began)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while soak.waiting() and time.monotonic() < deadline:
            time.sleep(1)
    outcome = soak.verified()
    soak.store.client.close()
    return {
        "minutes": minutes,
        "messages": soak.produced,
        "messages_per_second": round(rate),
        "reports_per_second": round(rate * BATCH_REPORTS),
        "rebalances": soak.rebalances,
        "workers": [memory.growth(settled) for memory in memories],
        "counted": soak.waiting() == 0,
        "verified": outcome.verified,
        "differences": [str(one) for one in outcome.differences[:5]],
    }


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kafka", help="bootstrap servers, instead of starting a broker")
    arguments = parser.parse_args()
    logging.configure("error")
    with ExitStack() as stack:
        places = Places(stack)
        if not (arguments.kafka or places.is_real):
            sys.exit("needs Apache Kafka: dither kafka --fetch")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = run(arguments.minutes, arguments.kafka or places.kafka, places.redis, folder)
        if not found["verified"]:
            print(soak_log(folder), file=sys.stderr)
    print(json.dumps(found, indent=1))
    grew = any(worker["growth"] >= MOST_GROWTH for worker in found["workers"])
    sys.exit(1 if grew or not (found["verified"] and found["counted"]) else 0)


def soak_log(folder: Path) -> str:
    """Return the end of the workers' log."""
    return (folder / "workers.log").read_text()[-5_000:]


if __name__ == "__main__":
    main()
