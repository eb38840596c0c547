"""Engines beside Dither: what they are given, what is compared, and why they cannot run."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.measure import CannotRunError, NotRun
from benchmarks.peers import engines, environments, jvm
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import Sample, processor_seconds, steady
from producers.wire.reports_pb2 import ReportBatch

MESSAGES = 20_000


def counted(sums: dict[tuple[str, int, int], int], refused: int = 0) -> jvm.Counted:
    return jvm.Counted([Sample(0, 0, 0), Sample(2, 1, 100)], jvm.Sums(sums), refused)


@pytest.fixture
def pair(places: Places) -> engines.Pair:
    return engines.Pair(places, "topic", 100, "flink", threads=1)


def test_one_in_a_hundred_batches_comes_twice_in_its_partition_and_in_time() -> None:
    batches = [ReportBatch.FromString(one) for one in engines.payloads(MESSAGES, 1)]
    seen: dict[bytes, int] = {}
    copies: Counter[int] = Counter()
    latest = 0
    for number, batch in enumerate(batches):
        latest = max(latest, batch.time_ms)
        partition = number % PARTITIONS
        if batch.batch_id in seen:
            assert seen[batch.batch_id] == partition
            assert latest - batch.time_ms < engines.METRIC.lateness_ms
            copies[partition] += 1
        seen[batch.batch_id] = partition
    assert len(copies) == PARTITIONS
    assert sum(copies.values()) == MESSAGES // engines.EVERY
    panes = {batch.time_ms // engines.METRIC.pane_ms for batch in batches}
    assert len(panes) == engines.PANES


def test_a_run_with_the_same_sums_counts(
    pair: engines.Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = counted({("late", 0, 0): 3})
    monkeypatch.setattr(pair, "_dither", lambda: same)
    monkeypatch.setattr(pair, "_engine", lambda: same)
    assert pair.ours(0) == pair.theirs(0) == 50
    measured = {one.name: one for one in pair.processor_time("engines/what")}
    assert measured.keys() == {
        "engines/what/flink, processor time",
        "engines/what/flink, processor time of dither beside it",
        "engines/what/flink, by processor time",
    }


@pytest.mark.parametrize(
    "other", [counted({("late", 0, 0): 2}), counted({("late", 0, 0): 3}, refused=1)]
)
def test_a_run_with_other_sums_does_not(
    other: jvm.Counted, pair: engines.Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair, "_dither", lambda: counted({("late", 0, 0): 3}))
    monkeypatch.setattr(pair, "_engine", lambda: other)
    pair.ours(0)
    with pytest.raises(CannotRunError, match=r"flink refused \d messages, and differs"):
        pair.theirs(0)
    assert not [*pair.processor_time("engines/what")]


def test_a_log_that_is_over_at_once_is_measured_as_a_whole() -> None:
    assert steady([Sample(0, 0, 0), Sample(2, 1, 100)], 100).rate == 50


@pytest.mark.parametrize("begin", [90, 100])
def test_a_log_that_was_over_at_the_first_look_is_not_measured(begin: int) -> None:
    samples = [Sample(0, 0, begin), Sample(2, 1, 100)] if begin < 100 else [Sample(0, 0, 100)]
    with pytest.raises(CannotRunError, match="were counted before the first look"):
        steady(samples, 100)


def test_processor_time_is_that_of_the_process() -> None:
    before, clock = processor_seconds([os.getpid()]), time.process_time()
    while time.process_time() - clock < 0.1:
        pass
    assert processor_seconds([os.getpid()]) - before == pytest.approx(0.1, abs=0.05)


def test_without_apache_kafka_each_engine_is_listed_with_the_reason(places: Places) -> None:
    found = [*engines.benchmarks(places)]
    assert len(found) == len(engines.MESSAGES) * len(engines.THREADS) * len(jvm.CLASSES)
    assert all(isinstance(one, NotRun) and "needs Apache Kafka" in one.reason for one in found)


def test_without_maven_or_a_jdk_an_engine_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = tmp_path / "java"
    java.touch()
    monkeypatch.setattr(jvm, "java", lambda: str(java))
    with pytest.raises(environments.NotInstalledError, match="needs a JDK 17"):
        jvm.built()
    java.with_name("javac").touch()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(environments.NotInstalledError, match="needs Maven"):
        jvm.built()
