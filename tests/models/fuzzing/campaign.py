"""Write hostile messages among honest ones, and see that every honest report is counted."""

import contextlib
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.models.fuzzing.hostile import TOPIC_BYTES, Hostile
from tests.support.reports.messages import batch
from tests.support.reports.mutations import fuzzed_metrics
from tests.support.reports.wire import RawProducer
from tests.support.running import servers
from tests.support.running.deployment import Deployment

METRICS = """
[metrics]
honest = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [0.5, 1, 2], \
pane = "1h", lateness = "1d"}
"""
WORKERS = 2
REPORTS = 10
"""Of an honest batch."""
MEMORY = 512 << 20
"""The workers' `aggregate.memory`, half of their limit."""
LIMIT = 1 << 30
BOMB_EVERY, TRANSACTION_EVERY, CODEC_EVERY = 4_000, 500, 500
"""Messages."""
SIZES = {"snappy": 4_000_000, "lz4": 50_000_000, "gzip": 1_000_000, "zstd": 20_000_000}
"""Bytes of a message that Kafka's own client compresses."""


class Campaign:
    """A deployment under attack.

    Parameters
    ----------
    kafka : servers.Kafka
    redis_url : str
    folder : Path
        For the definitions and the workers' log.
    seed : int
    largest : int
        Bytes that a record batch of the workers' topic expands to at most.

    Attributes
    ----------
    written : Counter of str
        Messages that the broker took, by kind.
    honest_reports : Counter of int
        Those that the broker has acknowledged, by partition.
    """

    def __init__(
        self, kafka: servers.Kafka, redis_url: str, folder: Path, seed: int, largest: int
    ) -> None:
        file = folder / "metrics.toml"
        file.write_text(METRICS)
        self.deployment = Deployment(kafka, redis_url, file, max_message_bytes=TOPIC_BYTES)
        self.written = Counter[str]()
        self.honest_reports = Counter[int]()
        self._hostile = Hostile(fuzzed_metrics(), seed, largest)
        self._random = self._hostile.random
        self._metric = self.deployment.metrics["honest"]
        self._servers, self._made = kafka.bootstrap_servers, 0
        self._honest = self._producer()

    def _producer(self, **properties: Any) -> Producer:
        own = {name.replace("_", "."): value for name, value in properties.items()}
        return Producer({"bootstrap.servers": self._servers, "log_level": 0, "linger.ms": 2, **own})

    @contextlib.contextmanager
    def workers(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Run workers as processes; afterwards they have left as they were asked to."""
        flags = ["--set", f"aggregate.memory={MEMORY}"]
        flags += ["--set", "aggregate.deadletter_consecutive=0"]  # rows of thousands are meant
        command = [sys.executable, "-m", "aggregator", "aggregate", *self.deployment.flags, *flags]
        with self.deployment.log("aggregate").open("ab") as log:
            started = [subprocess.Popen(command, stdout=log, stderr=log) for _ in range(WORKERS)]
        try:
            yield started
        finally:
            for process in started:
                process.terminate()
            codes = [process.wait(60) for process in started]
        assert codes == [0] * WORKERS

    def write(self, messages: int) -> None:
        """Write at least so many hostile messages, honest ones between them, and bombs as well."""
        due = Counter[str]()
        with RawProducer(self._servers) as raw:
            while (done := self.written["any"]) < messages:
                number = self._random.randrange(self.deployment.partitions)
                for kind, every in (
                    ("bomb", BOMB_EVERY), ("transaction", TRANSACTION_EVERY), ("codec", CODEC_EVERY)
                ):  # fmt: skip
                    if done >= every * due[kind]:
                        due[kind] += 1
                        self._special(raw, kind, number)
                made, count = self._hostile.any()
                self._note("any", count, raw.produce(self.deployment.topic, number, made))
                self.honest(number, self._random.choice((0, 1, 1, 3)))
        assert self._honest.flush(60) == 0

    def _special(self, raw: RawProducer, kind: str, number: int) -> None:
        if kind == "bomb":
            made, count = self._hostile.bomb()
            self._note(kind, count, raw.produce(self.deployment.topic, number, made))
        elif kind == "transaction":
            self._transaction(number)
        else:
            self._by_client(number)

    def _note(self, kind: str, count: int, offset: int | None) -> None:
        self.written[kind] += count if offset is not None else 0

    def _transaction(self, number: int) -> None:
        """Write a transaction, and commit it or not."""
        is_committed = self._random.random() < 0.5
        producer = self._producer(transactional_id=f"hostile-{self._random.getrandbits(64)}")
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(self.deployment.topic, b"\xff", partition=number)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.flush(60)
            producer.abort_transaction(30)
        self.written["committed" if is_committed else "aborted"] += 3

    def _by_client(self, number: int) -> None:
        """Write what Kafka's own client compresses: also what expands as far as the codec can."""
        codec = self._random.choice(("snappy", "lz4", "gzip", "zstd"))
        size = SIZES[codec]
        failed: list[KafkaError] = []
        producer = self._producer(compression_type=codec, message_max_bytes=10**9)
        producer.produce(
            self.deployment.topic,
            bytes(self._random.choice((size, 10))),
            partition=number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        assert producer.flush(60) == 0
        self._note(codec, 1, None if failed else 0)

    def honest(self, number: int, batches: int) -> None:
        """Write honest batches, and note how many reports are acknowledged."""

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                raise KafkaException(error)
            self.honest_reports[message.partition()] += REPORTS

        for _ in range(batches):
            self._made += 1
            now = time.time_ns() // 1_000_000
            data = batch(self._metric, [1.0] * REPORTS, 1.0, now, self._made).SerializeToString()
            self._honest.produce(
                self.deployment.topic, data, partition=number, on_delivery=delivered
            )
        self._honest.poll(0)

    def check(self, seconds: float) -> None:
        """See that every honest report is counted, nothing halts, and the log proves it."""
        self.deployment.wait_until_counted(seconds)
        store = self.deployment.store
        counted = {
            number: store.counts(number).get("accepted:honest", 0) for number in store.partitions()
        }
        expected = {number: self.honest_reports[number] for number in counted}
        assert counted == expected, (counted, expected)
        assert not [number for number in counted if store.owner(number).get("halted")]
        found = self.deployment.verify()
        assert found.verified, (found.differences + found.unverifiable + found.unjudged)[:5]

    def run(self, messages: int, seconds: float) -> None:
        """Attack running workers."""
        with self.workers() as started:
            self.write(messages)
            self.check(seconds)
            assert [process.poll() for process in started] == [None] * WORKERS, "one has ended"
            most = max(peak(process.pid) for process in started)
        assert most < LIMIT, f"{most >> 20} MB"


def peak(pid: int) -> int:
    """Return the most memory that a process had resident, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None, status
    return int(found[1]) * 1024
