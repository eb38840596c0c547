"""What can be written to Kafka and cannot be counted halts its own partition, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.dead_letters.writer import CONTEXT, UNREADABLE
from aggregator.kafka import obstacles
from aggregator.state.partition import Partition
from estimators import Metric
from tests.support.reports.messages import batch
from tests.support.reports.wire import ZSTD, RawProducer, Record, record_batch, zstd
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Kafka

BOMB_BYTES = 150_000_000


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let errors that repeat halt a partition after a second."""
    monkeypatch.setattr(obstacles, "HALT_SECONDS", 1.0)


@pytest.fixture
def raw(apache_kafka: Kafka) -> Iterator[RawProducer]:
    with RawProducer(apache_kafka.bootstrap_servers) as producer:
        yield producer


@pytest.fixture
def delay(deployment: Deployment) -> Metric:
    return deployment.metrics["delay"]


def honest(delay: Metric, seed: int) -> bytes:
    return batch(delay, [1.0], seed=seed).SerializeToString()


def accepted(deployment: Deployment) -> int:
    return deployment.counts().get("accepted:delay", 0)


def halted(deployment: Deployment, partition: int) -> str:
    return deployment.store.owner(partition).get("halted", "")


def test_a_header_name_that_is_not_utf8_is_put_aside_without_its_headers(
    deployment: Deployment, raw: RawProducer, delay: Metric
) -> None:
    hostile = Record(b"not a batch", key=b"k", headers=[(b"fine", b"1"), (b"\xff\xfe", b"2")])
    with deployment.worker():
        assert raw.produce(deployment.topic, 0, record_batch([hostile])) == 0
        deployment.produce([(0, honest(delay, 1)), (1, honest(delay, 2))])
        deployment.wait_until_counted()
    (letter,) = deployment.dead(1)
    assert letter["value"] == b"not a batch"
    assert letter["headers"][UNREADABLE] == b"a name is not UTF-8"
    assert "fine" not in letter["headers"]
    assert letter["headers"][CONTEXT + "offset"] == b"0"
    assert accepted(deployment) == 2
    assert deployment.verify().verified
    found = deployment.dither("deadletters", "explain", "0:0")
    assert found.returncode == 0, found.stderr


def test_headers_are_read_safely_however_often_others_were_read_before(
    deployment: Deployment, raw: RawProducer, delay: Metric
) -> None:
    names = (b"fine", b"\xff\xfe", b"\xed\xa0\x80", b"")
    records = [
        Record(b"?", headers=[(b"fine", b"1"), (names[i % 4], b"2"), (b"also", None)])
        for i in range(4_000)
    ]
    with deployment.worker():
        assert raw.produce(deployment.topic, 0, record_batch(records)) == 0
        deployment.produce([(0, honest(delay, 1)), (1, honest(delay, 2))])
        deployment.wait_until_counted()
    found = deployment.dead(len(records))
    assert sum(UNREADABLE in letter["headers"] for letter in found) == len(records) // 2
    assert sum("also" in letter["headers"] for letter in found) == len(records) // 2
    assert accepted(deployment) == 2


def test_a_message_whose_judgement_fails_halts_its_partition_until_it_is_skipped(
    deployment: Deployment, delay: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison, count = b"poison", Partition.count

    def failing(self: Partition, messages: Any) -> Any:
        found = list(messages)
        at = next((i for i, m in enumerate(found) if m.value() == poison), None)
        if at is None:
            return count(self, found)
        count(self, found[: at + 1])  # half done, as a real failure would be
        raise OverflowError("a date too large")

    monkeypatch.setattr(Partition, "count", failing)
    before = [(0, honest(delay, seed)) for seed in range(5)]
    behind = [(0, honest(delay, seed)) for seed in range(5, 9)]
    deployment.produce([*before, (0, poison), *behind])
    with deployment.worker() as worker:
        wait_until(lambda: bool(halted(deployment, 0)), "partition 0 halts")
        deployment.produce([(1, honest(delay, 20))])
        wait_until(lambda: accepted(deployment) == 6, "what stands before, and in others, counts")
        assert worker.owned[0].state.next_offset == 5
        assert int(deployment.store.owner(0)["next"]) == 5
    reason = halted(deployment, 0)
    assert "offset 5 cannot be counted" in reason
    assert "checking it fails (OverflowError)" in reason
    assert "--set aggregate.skip=0:5" in reason
    deployment.settings.aggregate.skip = ["0:5"]
    with deployment.worker():
        deployment.wait_until_counted()
    assert accepted(deployment) == 10
    owner = deployment.store.owner(0)
    assert (owner["halted"], owner["gap"], owner["skipped"]) == ("", "1", "5-5")
    monkeypatch.undo()
    assert deployment.verify().verified
    assert not deployment.counts().get("malformed:"), "what was skipped was not judged"


def test_a_batch_that_cannot_be_read_halts_its_partition_until_it_is_skipped(
    deployment: Deployment, raw: RawProducer, delay: Metric, soon: None
) -> None:
    many = [Record(b"\0" * 10) for _ in range(40)]
    body = b"".join(record.encode(i) for i, record in enumerate(many))
    deployment.produce([(0, honest(delay, 1))])
    last = Record(b"\0" * BOMB_BYTES).encode(40)
    head = last[: len(last) - BOMB_BYTES - 1]
    payload = zstd((body + head, 1), (b"\0", BOMB_BYTES + 1))
    records = [*many, Record(None)]
    assert raw.produce(deployment.topic, 0, record_batch(records, codec=ZSTD, payload=payload)) == 1
    deployment.produce([(0, honest(delay, 2)), (1, honest(delay, 3))])
    with deployment.worker():
        wait_until(lambda: "1 to 41" in halted(deployment, 0), "partition 0 halts")
        wait_until(lambda: accepted(deployment) == 2, "what stands before, and in others, counts")
    reason = halted(deployment, 0)
    assert "offsets 1 to 41 cannot be counted: Kafka's client cannot read it" in reason
    assert "To skip 41 offsets" in reason
    assert "--set aggregate.skip=0:1" in reason
    assert deployment.verify().verified, "what is not counted is no difference"
    deployment.settings.aggregate.skip = ["0:1"]
    with deployment.worker():
        deployment.wait_until_counted()
    owner = deployment.store.owner(0)
    assert (owner["halted"], owner["gap"], owner["skipped"]) == ("", "41", "1-41")
    deployment.settings.aggregate.skip = []
    deployment.produce([(0, honest(delay, 4))])
    with deployment.worker(name="another"):
        deployment.wait_until_counted()
    owner = deployment.store.owner(0)
    assert (owner["gap"], owner["skipped"]) == ("41", "1-41"), "the next owner knows it, too"
    assert accepted(deployment) == 4
    assert deployment.verify().verified
