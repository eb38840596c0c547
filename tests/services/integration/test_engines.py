"""Kafka Streams and Flink do a worker's job: their sums are those of Dither, exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.peers import engines, jvm
from benchmarks.peers.environments import NotInstalledError
from benchmarks.places import Places
from producers.wire.reports_pb2 import ReportBatch

BATCHES, REPORTS = 6_000, 3
OTHER = dataclasses.replace(engines.METRIC, name="cancelled", levels=(1, 2))
METRICS = (engines.METRIC, OTHER)
ENGINES = [(engine, *how) for engine in jvm.CLASSES for how in [(1, "memory"), (2, "rocksdb")]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with ExitStack() as stack:
        found = Places(stack)
        if not found.is_real:
            pytest.skip("Kafka Streams and Flink: no Apache Kafka here (Java 17 and Maven)")
        try:
            jvm.built()
        except NotInstalledError as error:
            pytest.skip(f"Kafka Streams and Flink: {error}")
        yield found


def broken() -> list[bytes]:
    """Return messages that nobody may count."""
    (whole,) = (ReportBatch.FromString(one) for one in engines.payloads(1, 1))
    wrong: list[dict[str, object]] = [
        {"metric": "unknown"},
        {"revision": whole.revision + 1},
        {"batch_id": b"short"},
        {"levels": b"\x04"},
        {"values": b"\x02"},
        {"values": b""},
        {"round": 1},
    ]
    found = []
    for number, fields in enumerate(wrong):
        batch = ReportBatch(batch_id=number.to_bytes(16, "little"))
        batch.MergeFrom(whole)
        for name, value in fields.items():
            setattr(batch, name, value)
        found.append(batch.SerializeToString())
    return [*found, b"garbage", whole.SerializeToString()[:-1]]


def truth(batches: list[bytes]) -> jvm.Sums:
    """Return the sums of whole batches, one after the other, each id once."""
    sums, seen, by_name = jvm.Sums(), set(), {metric.name: metric for metric in METRICS}
    for batch in map(ReportBatch.FromString, batches):
        pane = batch.time_ms - batch.time_ms % by_name[batch.metric].pane_ms
        if batch.batch_id in seen:
            sums[batch.metric, *jvm.DUPLICATES] += len(batch.levels)
            continue
        seen.add(batch.batch_id)
        for level, value in zip(batch.levels, batch.values, strict=True):
            sums[batch.metric, pane, 2 * level] += 1
            sums[batch.metric, pane, 2 * level + 1] += value
    return sums


@pytest.fixture(scope="module")
def whole() -> list[bytes]:
    return [*engines.payloads(BATCHES, REPORTS, METRICS)]


@pytest.fixture(scope="module")
def topic(places: Places, whole: list[bytes]) -> str:
    return engines.log(places, [*whole[:1_000], *broken(), *whole[1_000:]])


def test_dither_counts_what_is_true(places: Places, topic: str, whole: list[bytes]) -> None:
    letters = f"{topic}-dead"
    admin = AdminClient({"bootstrap.servers": places.kafka})
    admin.create_topics([NewTopic(letters, 1, 1)])[letters].result()
    found = engines.dither(places, topic, BATCHES + len(broken()), METRICS)
    assert found.sums == truth(whole)
    assert found.refused == len(broken())


@pytest.mark.parametrize(("engine", "threads", "store"), ENGINES)
def test_an_engine_counts_what_is_true(
    engine: str, threads: int, store: str, places: Places, topic: str, whole: list[bytes]
) -> None:
    messages = BATCHES + len(broken())
    found = jvm.count(engine, places.kafka, topic, messages, METRICS, threads=threads, store=store)
    expected = truth(whole)
    assert min(expected[metric.name, *jvm.DUPLICATES] for metric in METRICS) > 0
    assert found.sums == expected
    assert found.refused == len(broken())
    assert found.samples[-1].messages <= messages
