"""The whole job of a worker, against Kafka Streams and Flink, warm and on the same topic.

Each engine checks the batches, drops those that come twice, and adds up reports and ones of each
level and pane; it commits every second, exactly once. All must come to the same sums, or the run
does not count. The steady part of a run gives messages a second, and messages a second of the
engine's own processor time.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.batches import METRIC as PLAIN
from benchmarks.end_to_end import settings_of
from benchmarks.measure import Benchmark, CannotRunError, Figure, NotRun, Outcome, Side
from benchmarks.metrics import reports_of
from benchmarks.peers import jvm
from benchmarks.peers.environments import NotInstalledError
from benchmarks.places import FILLING, PARTITIONS, Places
from benchmarks.steady import Sample, Steady, processor_seconds, steady
from benchmarks.workers import committed, definitions, joined, wait, workers
from estimators import LocalMetric
from producers.wire.reports_pb2 import ReportBatch

METRIC = dataclasses.replace(PLAIN, lateness="10s")
MESSAGES = {1: 4_000_000, 1_000: 400_000}
"""By the reports of a batch: with a quarter of it a virtual machine still compiles in the part that
is measured, and the first of two workers has counted the log when the second has started."""
PANES = 5
"""Through which the event time of a log goes: ids are forgotten as they come."""
EVERY = 101
"""Each so-manieth message is a copy of an earlier one, of the same partition: of each in turn."""
BACK = 1_000
"""How far before: that part of the log, which is a second of event time."""
DIFFERENT = 1_000
"""Reports that are not the same."""
AGO_MS = 3_600_000
"""How far back event time begins."""
THREADS = (1, 2)
STORES = {"kafka streams": "memory", "flink": "memory"}
"""Where each has its state: for Kafka Streams memory is faster than RocksDB, its default."""
ROUNDS = 2
"""A run of one takes a minute, and warms up by itself."""
LOOK_SECONDS = 0.05


def benchmarks(places: Places) -> Iterator[Outcome]:
    names = [
        (name, engine, reports, threads)
        for reports in MESSAGES
        for engine in jvm.CLASSES
        for threads in THREADS
        for name in [f"engines/batches of {reports}, threads {threads}"]
        if places.wanted(f"{name}/{engine}")
    ]
    reason = "" if places.is_real else "needs Apache Kafka: dither kafka --fetch"
    try:
        if names and not reason:
            jvm.built()
    except NotInstalledError as error:
        reason = str(error)
    if reason or not sys.platform.startswith("linux"):
        for name, engine, *_ in names:
            yield NotRun(f"{name}/{engine}", reason or "needs Linux's /proc")
        return
    logs: dict[int, str] = {}
    for name, engine, reports, threads in names:
        messages = places.sized(MESSAGES[reports])
        if reports not in logs:
            logs[reports] = log(places, payloads(messages, reports))
        topic = logs[reports]
        pair = Pair(places, topic, messages, engine, threads)
        sides = pair.ours, pair.theirs
        yield Benchmark(f"{name}/{engine}", "messages/s", *sides, most_rounds=ROUNDS, is_warm=True)
        yield from pair.processor_time(name)


class Pair:
    """Dither and an engine on the same topic, and what their runs have come to.

    Parameters
    ----------
    places : Places
    topic : str
    messages : int
        In the topic.
    engine : str
        One of `jvm.CLASSES`.
    threads : int
        That count; of Dither processes.
    """

    def __init__(
        self, places: Places, topic: str, messages: int, engine: str, threads: int
    ) -> None:
        self._dither = functools.partial(dither, places, topic, messages, processes=threads)
        self._engine = functools.partial(
            jvm.count,
            engine,
            places.kafka,
            topic,
            messages,
            [METRIC],
            threads=threads,
            store=STORES[engine],
        )
        self._name, self._messages = engine, messages
        self._runs: dict[str, list[Steady]] = {"dither": [], engine: []}
        self._sums: jvm.Sums | None = None

    def ours(self, _: float) -> float:
        """Have Dither count the topic; return messages a second."""
        return self._checked("dither", self._dither())

    def theirs(self, _: float) -> float:
        """Have the engine count the topic; return messages a second."""
        return self._checked(self._name, self._engine())

    def processor_time(self, name: str) -> Iterator[Outcome]:
        """Return what the runs that were measured have taken of a processor."""
        if not all(self._runs.values()):
            return
        name, runs = f"{name}/{self._name}", self._runs
        for who, of in (("", self._name), (" of dither beside it", "dither")):
            used = 1e6 / statistics.median(run.core_rate for run in runs[of])
            yield Figure(f"{name}, processor time{who}", used, "us/message")
        ours, theirs = (_replayed(those) for those in runs.values())
        yield Benchmark(
            f"{name}, by processor time",
            "messages/core s",
            ours,
            theirs,
            most_rounds=len(runs["dither"]),
            is_warm=True,
        )

    def _checked(self, name: str, found: jvm.Counted) -> float:
        if self._sums is None:
            self._sums = found.sums
        if found.refused or found.sums != self._sums:
            raise CannotRunError(
                f"{name} refused {found.refused} messages, and differs from the run before in "
                f"{len({*(found.sums - self._sums), *(self._sums - found.sums)})} sums"
            )
        self._runs[name].append(steady(found.samples, self._messages))
        return self._runs[name][-1].rate


def _replayed(runs: Iterable[Steady]) -> Side:
    left = iter(runs)
    return lambda _: next(left).core_rate


def dither(
    places: Places,
    topic: str,
    messages: int,
    metrics: Sequence[LocalMetric] = (METRIC,),
    processes: int = 1,
) -> jvm.Counted:
    """Have worker processes count a topic from its beginning to its end."""
    with tempfile.TemporaryDirectory() as name, Store(connect(places.redis), topic) as store:
        store.client.flushdb()  # of the run before
        settings = settings_of(places, topic, Path(name))
        Path(settings.metrics).write_text(definitions(metrics))
        with workers(processes, settings, Path(name) / "log") as running:
            wait(lambda: joined(store, PARTITIONS, processes), "the workers' joining")
            samples: list[Sample] = []

            def is_over() -> bool:
                counted = committed(store, PARTITIONS)
                if not samples or counted > samples[-1].messages:
                    used = processor_seconds([process.pid for process in running])
                    samples.append(Sample(time.monotonic(), used, counted))
                return counted >= messages

            wait(is_over, METRIC.name, look_seconds=LOOK_SECONDS)
        return jvm.Counted(samples, *_sums(store, metrics))


def _sums(store: Store, metrics: Iterable[LocalMetric]) -> tuple[jvm.Sums, int]:
    """Return what is counted in Redis, and how many messages were refused but for duplicates."""
    sums, refused = jvm.Sums(), 0
    for metric in metrics:
        name = metric_key(metric.name, metric.revision)
        panes = [
            (number, PaneKey("pane", name, start))
            for number in store.partitions()
            for start in store.panes.starts(number, "pane", name)
        ]
        for (_, key), value in zip(panes, store.panes.statistics(panes), strict=True):
            for cell, counted in enumerate(np.frombuffer(value or b"", np.int64).tolist()):
                sums[metric.name, key.start, cell] += counted
    for number in store.partitions():
        for what, reports in store.counts(number).items():
            if what.startswith("duplicate:"):
                sums[what.partition(":")[2], *jvm.DUPLICATES] += reports
            elif not what.startswith("accepted:"):
                refused += reports
    return sums, refused


def log(places: Places, batches: Iterable[bytes]) -> str:
    """Fill a topic of Apache Kafka with batches, the partitions in turn; return its name."""
    topic = places.topic()
    in_order = {"enable.idempotence": True}  # what is sent again comes late without it
    producer = Producer({"bootstrap.servers": places.kafka, **FILLING, **in_order})
    for number, payload in enumerate(batches):
        producer.produce(topic, payload, partition=number % PARTITIONS)
        if number % DIFFERENT == 0:
            producer.poll(0)
    producer.flush()
    producer.close()
    return topic


def payloads(
    messages: int, reports: int, metrics: Sequence[LocalMetric] = (METRIC,)
) -> Iterator[bytes]:
    """Return batches of metrics in turn, some of them twice, that go through `PANES` panes.

    Parameters
    ----------
    messages, reports : int
        Batches, and the reports of each.
    metrics : sequence of LocalMetric
        With randomized response, and panes of one length.
    """
    begin_ms = time.time_ns() // 1_000_000 - AGO_MS
    begin_ms -= begin_ms % metrics[0].pane_ms
    columns = [
        (level.tobytes(), answers.tobytes())
        for metric in metrics
        for level, answers in [reports_of(metric, DIFFERENT + reports)]
    ]
    back = max(1, messages // BACK // PARTITIONS) * PARTITIONS
    recent: deque[bytes] = deque(maxlen=back)
    for number in range(messages):
        which, at = number % len(metrics), number % DIFFERENT
        metric, (levels, answers) = metrics[which], columns[which]
        batch = ReportBatch(
            metric=metric.name,
            revision=metric.revision,
            batch_id=number.to_bytes(16, "big"),
            time_ms=begin_ms + number * PANES * metric.pane_ms // messages,
            levels=levels[at : at + reports],
            values=answers[at : at + reports],
        )
        is_copy = number % EVERY == EVERY - 1 and len(recent) == back
        recent.append(recent[0] if is_copy else batch.SerializeToString())
        yield recent[-1]
