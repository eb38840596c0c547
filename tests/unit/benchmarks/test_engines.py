"""Engines beside Dither: what they are given, what is compared, and why they cannot run."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.measure import CannotRunError, NotRun
from benchmarks.peers import engines, jvm
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import Sample, steady
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


def test_a_run_counts_if_its_sums_are_the_same(
    pair: engines.Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = counted({("late", 0, 0): 3})
    monkeypatch.setattr(pair, "_dither", lambda: same)
    for other in (counted({("late", 0, 0): 2}), counted({("late", 0, 0): 3}, refused=1)):
        monkeypatch.setattr(pair, "_engine", lambda other=other: other)
        pair.ours(0)
        with pytest.raises(CannotRunError, match=r"flink refused \d messages, and differs"):
            pair.theirs(0)
    assert not [*pair.processor_time("engines/what")]
    monkeypatch.setattr(pair, "_engine", lambda: same)
    assert pair.ours(0) == pair.theirs(0) == 50
    assert len([*pair.processor_time("engines/what")]) == 3


def test_a_log_that_was_over_at_the_first_look_is_not_measured() -> None:
    assert steady([Sample(0, 0, 0), Sample(2, 1, 100)], 100).rate == 50
    for samples in ([Sample(0, 0, 90), Sample(2, 1, 100)], [Sample(0, 0, 100)]):
        with pytest.raises(CannotRunError, match="were counted before the first look"):
            steady(samples, 100)


def test_without_apache_kafka_each_engine_is_listed_with_the_reason(places: Places) -> None:
    found = [*engines.benchmarks(places)]
    assert len(found) == len(engines.MESSAGES) * len(engines.THREADS) * len(jvm.CLASSES)
    assert all(isinstance(one, NotRun) and "needs Apache Kafka" in one.reason for one in found)
