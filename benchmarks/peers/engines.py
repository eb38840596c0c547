"""The whole job of a worker, against Kafka Streams and Flink, warm and on the same topic.

Each engine checks the batches, drops those that come twice, and adds up reports and ones of each
level and pane; it commits every second, exactly once. All must come to the same sums, or the run
does not count. The steady part of a run gives messages a second of the engine's own processor time.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from benchmarks.batches import METRIC as PLAIN
from benchmarks.measure import Benchmark, CannotRunError, Figure, Outcome, Side, stage
from benchmarks.metrics import reports_of
from benchmarks.peers import jvm
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import Sample, processor_seconds, steady_rate
from benchmarks.workers import wait, workers
from producers.wire.reports_pb2 import ReportBatch

MICROSECONDS = 1e6
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
    """The whole job of a worker, against Kafka Streams and Flink, by processor time."""
    places.need_workers()
    jvm.built()
    query_seconds: list[float] = []
    for reports, max_messages in MESSAGES.items():
        names = {
            name: (engine, threads)
            for engine in jvm.CLASSES
            for threads in THREADS
            if places.wants(name := f"engines/batches of {reports}, threads {threads}/{engine}")
        }
        messages, runs = places.sized(max_messages), list[jvm.Counted]()
        if names:
            topic = places.topic()
            places.fill(topic, payloads(messages, reports))
        for name, (engine, threads) in names.items():
            count = functools.partial(jvm.count, engine, places.kafka, topic, messages, METRIC)
            theirs = _checked(functools.partial(count, threads), messages, runs)
            count_ours = functools.partial(dither, places, topic, messages, threads)
            ours = _checked(count_ours, messages, runs)
            yield Benchmark(name, "messages/core s", ours, theirs, MAX_ROUNDS)
        query_seconds += [run.query_seconds for run in runs if run.query_seconds is not None]
    if query_seconds:
        spent = MICROSECONDS * statistics.median(query_seconds)
        yield Figure("engines/an interactive query, kafka streams", spent, "us of a core")


def _checked(count: Callable[[], jvm.Counted], messages: int, runs: list[jvm.Counted]) -> Side:
    """Return a side that counts a topic, and comes to the same sums as all runs before."""

    def rate(_: float) -> float:
        counted = count()
        runs.append(counted)
        expected = runs[0].sums
        if counted.refused or counted.sums != expected:
            different = {*(counted.sums - expected), *(expected - counted.sums)}
            raise CannotRunError(
                f"a run refused {counted.refused} messages, and differs from the first run in "
                f"{len(different)} sums"
            )
        return steady_rate(counted.samples, messages)

    return rate


def dither(places: Places, topic: str, messages: int, processes: int) -> jvm.Counted:
    """Have worker processes count a topic from its beginning to its end."""
    connect(places.redis).flushdb()  # of the run before
    with workers(places, topic, [METRIC], processes) as running:
        samples: list[Sample] = []

        def is_over() -> bool:
            counted = running.committed()
            if not samples or counted > samples[-1].messages:
                samples.append(Sample(processor_seconds(running.pids), counted))
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
