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
import time
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.batches import METRIC as PLAIN
from benchmarks.measure import Benchmark, CannotRunError, Figure, NotRun, Outcome, Side, stage
from benchmarks.metrics import reports_of
from benchmarks.peers import jvm
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import Sample, Steady, processor_seconds, steady
from benchmarks.workers import wait, workers
from producers.wire.reports_pb2 import ReportBatch

METRIC = dataclasses.replace(PLAIN, lateness="10s")
MESSAGES = {1: 4_000_000, 1_000: 400_000}
"""The number of messages, by the reports in each. With a quarter of them, a virtual machine still
compiles in the part that is measured, and the first of two workers has counted the log before the
second has started."""
PANES = 5
"""The panes through which the event time of a log goes, so that ids are forgotten as they come."""
COPY_PERIOD = 101
"""One message in this many is a copy of an earlier one of its partition; partitions take turns."""
COPY_SHARE = 1_000
"""The original came one part in this many of the log before: a second of event time."""
DIFFERENT_REPORTS = 1_000
EVENT_AGE_MS = 3_600_000
"""How many milliseconds before now event time begins."""
THREADS = (1, 2)
MAX_ROUNDS = 2
"""The most rounds: a run takes a minute, and needs no other run to warm up."""
LOOK_SECONDS = 0.05


@stage("engines")
def engines(places: Places) -> Iterator[Outcome]:
    """The whole job of a worker, against Kafka Streams and Flink, warm and on the same topic."""
    names = {
        f"{name}/{engine}": (name, engine, reports, threads)
        for reports in MESSAGES
        for engine in jvm.CLASSES
        for threads in THREADS
        for name in [f"engines/batches of {reports}, threads {threads}"]
        if places.wants(f"{name}/{engine}")
    }
    reason = "" if places.is_real else "needs Apache Kafka: dither kafka --fetch"
    if not sys.platform.startswith("linux"):
        reason = "needs Linux's /proc"
    try:
        if names and not reason:
            jvm.built()
    except CannotRunError as error:
        reason = str(error)
    if reason:
        yield from (NotRun(name, reason) for name in names)
        return
    topics: dict[int, str] = {}
    for full_name, (name, engine, reports, threads) in names.items():
        messages = places.sized(MESSAGES[reports])
        if reports not in topics:
            topics[reports] = places.topic()
            places.fill(topics[reports], payloads(messages, reports))
        pair = Pair(places, topics[reports], messages, engine, threads)
        sides = pair.ours, pair.theirs
        yield Benchmark(full_name, "messages/s", *sides, most_rounds=MAX_ROUNDS, is_warm=True)
        yield from pair.processor_time(name)


class Pair:
    """Dither and an engine on the same topic, with `threads` threads each, and their runs."""

    def __init__(
        self, places: Places, topic: str, messages: int, engine: str, threads: int
    ) -> None:
        self._dither = functools.partial(dither, places, topic, messages, threads)
        self._count = functools.partial(
            jvm.count, engine, places.kafka, topic, messages, METRIC, threads
        )
        self._engine, self._messages = engine, messages
        self._runs: dict[str, list[Steady]] = {"dither": [], engine: []}
        self._sums: jvm.Sums | None = None

    def ours(self, _: float) -> float:
        """Have Dither count the topic; return messages a second."""
        return self._checked("dither", self._dither())

    def theirs(self, _: float) -> float:
        """Have the engine count the topic; return messages a second."""
        return self._checked(self._engine, self._count())

    def processor_time(self, name: str) -> Iterator[Outcome]:
        """Yield the processor time of the measured runs, and the ratio by processor time."""
        if not all(self._runs.values()):
            return
        name = f"{name}/{self._engine}"
        for label, side in (("", self._engine), (" of dither beside it", "dither")):
            used = 1e6 / statistics.median(run.core_rate for run in self._runs[side])
            yield Figure(f"{name}, processor time{label}", used, "us/message")
        ours, theirs = (_replayed(runs) for runs in self._runs.values())
        rounds = len(self._runs["dither"])
        name, unit = f"{name}, by processor time", "messages/core s"
        yield Benchmark(name, unit, ours, theirs, most_rounds=rounds, is_warm=True)

    def _checked(self, name: str, counted: jvm.Counted) -> float:
        if self._sums is None:
            self._sums = counted.sums
        if counted.refused or counted.sums != self._sums:
            different = {*(counted.sums - self._sums), *(self._sums - counted.sums)}
            raise CannotRunError(
                f"{name} refused {counted.refused} messages, and differs from the run before in "
                f"{len(different)} sums"
            )
        self._runs[name].append(steady(counted.samples, self._messages))
        return self._runs[name][-1].rate


def _replayed(runs: Iterable[Steady]) -> Side:
    left = iter(runs)
    return lambda _: next(left).core_rate


def dither(places: Places, topic: str, messages: int, processes: int) -> jvm.Counted:
    """Have worker processes count a topic from its beginning to its end."""
    connect(places.redis).flushdb()  # of the run before
    with workers(places, topic, [METRIC], processes) as running:
        samples: list[Sample] = []

        def is_over() -> bool:
            counted = running.committed()
            if not samples or counted > samples[-1].messages:
                used = processor_seconds(running.pids)
                samples.append(Sample(time.monotonic(), used, counted))
            return counted >= messages

        wait(is_over, "counting", LOOK_SECONDS)
        return jvm.Counted(samples, *_sums(running.store))


def _sums(store: Store) -> tuple[jvm.Sums, int]:
    """Return the sums in Redis, and how many messages other than duplicates were refused."""
    sums, refused = jvm.Sums(), 0
    question = metric_key(METRIC.name, METRIC.revision)
    panes = [
        (number, PaneKey("pane", question, start))
        for number in store.partitions()
        for start in store.panes.starts(number, "pane", question)
    ]
    for (_, key), value in zip(panes, store.panes.statistics(panes), strict=True):
        for cell, counted in enumerate(np.frombuffer(value or b"", np.int64).tolist()):
            sums[METRIC.name, key.start, cell] += counted
    for number in store.partitions():
        for outcome, reports in store.counts(number).items():
            if outcome.startswith("duplicate:"):
                sums[METRIC.name, *jvm.DUPLICATES] += reports
            elif not outcome.startswith("accepted:"):
                refused += reports
    return sums, refused


def payloads(messages: int, reports: int) -> Iterator[bytes]:
    """Return batches, some of them twice, that go through `PANES` panes."""
    begin_ms = time.time_ns() // 1_000_000 - EVENT_AGE_MS
    begin_ms -= begin_ms % METRIC.pane_ms
    level, answer = (x.tobytes() for x in reports_of(METRIC, DIFFERENT_REPORTS + reports))
    recent_messages = max(1, messages // COPY_SHARE // PARTITIONS) * PARTITIONS
    recent: deque[bytes] = deque(maxlen=recent_messages)
    for number in range(messages):
        start = number % DIFFERENT_REPORTS
        batch = ReportBatch(
            metric=METRIC.name,
            revision=METRIC.revision,
            batch_id=number.to_bytes(16, "big"),
            time_ms=begin_ms + number * PANES * METRIC.pane_ms // messages,
            levels=level[start : start + reports],
            values=answer[start : start + reports],
        )
        is_copy = number % COPY_PERIOD == COPY_PERIOD - 1 and len(recent) == recent_messages
        recent.append(recent[0] if is_copy else batch.SerializeToString())
        yield recent[-1]
