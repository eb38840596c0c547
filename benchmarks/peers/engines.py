"""The whole job of a worker, against Kafka Streams and Flink, warm and on the same topic.

Each engine checks the batches, drops those that come twice, and adds up reports and ones of each
level and pane; it commits every second, exactly once. All must come to the same sums, or the run
does not count. The steady part of a run gives messages a second, and messages a second of the
engine's own processor time.
"""

from __future__ import annotations

import dataclasses
import functools
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
MESSAGES = {1: 3_000_000, 1_000: 400_000}
"""By the reports of a batch: half a minute of the slowest engine, once it is warm."""
PANES = 5
"""Through which the event time of a log goes: ids are forgotten as they come."""
EVERY = 101
"""Each so-manieth message is a copy of one before, in the same partition, and that in all of them."""
BACK = 1_000
"""How far before: that part of the log, which is a second of event time."""
DIFFERENT = 1_000
"""Reports that are not the same."""
AGO_MS = 3_600_000
"""How far back event time begins."""
THREADS = (1, 2)
STORES = {"kafka streams": "memory", "flink": "memory"}
"""Where each is faster."""
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
    logs = functools.cache(lambda reports: log(places, places.sized(MESSAGES[reports]), reports))
    for name, engine, reports, threads in names:
        topic, messages = logs(reports)
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
        self._dither = functools.partial(dither, places, topic, messages, threads)
        self._engine = lambda: jvm.count(
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
        for who, runs in self._runs.items():
            beside = f"{who} beside {self._name}" if who == "dither" else who
            used = 1e6 / float(np.median([run.core_rate for run in runs]))
            yield Figure(f"{name}/{beside}, processor time", used, "us/message")
        ours, theirs = (_replayed(runs) for runs in self._runs.values())
        rounds = len(self._runs["dither"])
        what = f"{name}, of a core/{self._name}"
        yield Benchmark(what, "messages/s", ours, theirs, most_rounds=rounds, is_warm=True)

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


def dither(places: Places, topic: str, messages: int, processes: int = 1) -> jvm.Counted:
    """Have worker processes count a topic from its beginning to its end."""
    with (
        tempfile.TemporaryDirectory() as name,
        Store(connect(places.redis), topic) as store,
    ):
        store.client.flushdb()  # of the run before
        settings = settings_of(places, topic, Path(name))
        Path(settings.metrics).write_text(definitions([METRIC]))
        with workers(processes, settings, Path(name) / "log") as running:
            wait(lambda: joined(store, PARTITIONS, processes), "the workers' joining")
            samples: list[Sample] = []

            def is_over() -> bool:
                counted = committed(store, PARTITIONS)
                if not samples or counted > samples[-1].messages:
                    used = processor_seconds(process.pid for process in running)
                    samples.append(Sample(time.monotonic(), used, counted))
                return counted >= messages

            wait(is_over, METRIC.name, look_seconds=LOOK_SECONDS)
        return jvm.Counted(samples, *_sums(store, [METRIC]))


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


def log(places: Places, messages: int, reports: int) -> tuple[str, int]:
    """Fill a topic of Apache Kafka with so many batches; return its name and how many they are."""
    topic = places.topic()
    producer = Producer({"bootstrap.servers": places.kafka, **FILLING})
    begin = time.time_ns() // 1_000_000 - AGO_MS
    begin -= begin % METRIC.pane_ms
    for number, payload in enumerate(payloads([METRIC], messages, reports, begin)):
        producer.produce(topic, payload, partition=number % PARTITIONS)
        if number % DIFFERENT == 0:
            producer.poll(0)
    producer.flush()
    producer.close()
    return topic, messages


def payloads(
    metrics: Sequence[LocalMetric], messages: int, reports: int, begin_ms: int
) -> Iterator[bytes]:
    """Return batches of metrics in turn, some of them twice, that go through `PANES` panes.

    Parameters
    ----------
    metrics : sequence of LocalMetric
        With randomized response.
    messages, reports : int
        Batches, and the reports of each.
    begin_ms : int
        Event time of the first.
    """
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
