"""Ids of batches are read in pieces, so that Redis answers others meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis

from aggregator.errors import StateUnreadable
from aggregator.state.partition import Partition
from aggregator.storage import id_chunks, partition_store
from aggregator.storage.commands import Command
from aggregator.storage.connection import connect
from aggregator.storage.progress import UNSET
from aggregator.storage.store import Store
from tests.support.reports.messages import EPOCH, agreeing, batch, log
from tests.support.reports.partitions import DELAY as PUNCTUAL
from tests.support.reports.partitions import FUTURE_MS, HOUR, MINUTE

TOPIC = "reports"
DELAY = dataclasses.replace(PUNCTUAL, lateness="1d")
METRICS = {"delay": DELAY}
PREFIX = f"{{dither:{TOPIC}:0}}"
PIECE = 64
BATCHES = 900
"""In five panes: the ids of each are several pieces, and the last of them is not full."""


@pytest.fixture
def store(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(id_chunks, "CHUNK_IDS", PIECE // 16)
    with Store(connect(redis_url), TOPIC) as store:
        yield store


def counted(store: Store) -> Partition:
    """Commit batches of some panes, as a worker."""
    taken = store.partition.acquire(0, "one")
    partition = taken.partition(METRICS, FUTURE_MS)
    panes = (EPOCH + (i % 5) * 5 * MINUTE for i in range(BATCHES))
    partition.count(log(*(batch(DELAY, [1.0], 1, at, i) for i, at in enumerate(panes))))
    store.partition.commit(0, int(taken.owner["epoch"]), UNSET, partition, {})
    return partition


def ids(partition: Partition) -> dict[Any, set[bytes]]:
    return {key: set(pane.seen) for key, pane in partition.panes.items() if pane.seen}


def close_all(store: Store) -> None:
    """Take the partition over, and close its panes: their ids are deleted."""
    taken = store.partition.acquire(0, "other")
    partition = taken.partition(METRICS, FUTURE_MS)
    end = agreeing(DELAY, EPOCH + 48 * HOUR, 10**6)
    partition.count(log(*end, first=taken.next_offset))
    store.partition.commit(0, int(taken.owner["epoch"]), taken.next_offset, partition, {})


def interrupted(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Have all panes closed by another worker, once, while ids are read."""
    others = [close_all]

    def read(ask: Any, prefix: str, panes: Sequence[Any]) -> list[id_chunks.StoredIds]:
        if others:
            others.pop()(store)
        return id_chunks.read_ids(ask, prefix, panes)

    monkeypatch.setattr(partition_store, "read_ids", read)


@pytest.mark.parametrize("commands", [3, 1_000])
def test_all_ids_are_read_and_no_reply_is_longer_than_a_piece(
    store: Store, monkeypatch: pytest.MonkeyPatch, commands: int
) -> None:
    monkeypatch.setattr(id_chunks, "ROUND_COMMANDS", commands)
    monkeypatch.setattr(id_chunks, "ROUND_BYTES", 4 * PIECE)
    partition, rounds = counted(store), []
    ask = store.partition._commands.ask

    def watched(asked: Sequence[Command]) -> list[Any]:
        replies = ask(asked)
        if asked[0][0] == "GETRANGE":
            rounds.append([len(reply) for reply in replies])
        return replies

    monkeypatch.setattr(store.partition._commands, "ask", watched)
    restored = store.partition.acquire(0, "two").partition(METRICS, FUTURE_MS)
    assert ids(restored) == ids(partition)
    looked_at = store.partition.snapshot(0).partition(METRICS, FUTURE_MS)
    assert ids(looked_at) == ids(partition)
    lengths = [length for each in rounds for length in each]
    assert sum(lengths) == 2 * 16 * BATCHES
    assert max(lengths) == PIECE
    assert max(map(len, rounds)) <= commands
    assert max(map(sum, rounds)) <= 4 * PIECE


def test_a_copy_of_any_batch_is_known_after_a_takeover(store: Store) -> None:
    counted(store)
    restored = store.partition.acquire(0, "two").partition(METRICS, FUTURE_MS)
    panes = (EPOCH + (i % 5) * 5 * MINUTE for i in range(BATCHES))
    copies = [batch(DELAY, [1.0], 1, at, i) for i, at in enumerate(panes)]
    restored.count(log(*copies, first=BATCHES))
    assert restored.counts == {"accepted:delay": BATCHES, "duplicate:delay": BATCHES}


def test_a_takeover_that_is_overtaken_while_it_reads_begins_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(store)
    interrupted(monkeypatch, store)
    taken = store.partition.acquire(0, "two")
    assert taken.owner["worker"] == "two"
    assert int(taken.owner["epoch"]) == 4, "the second time, after the other"
    assert taken.next_offset > BATCHES
    closed = taken.partition(METRICS, FUTURE_MS)
    assert not any(key.start < EPOCH + HOUR for key in ids(closed))
    closed.count(log(batch(DELAY, [1.0], 1, EPOCH + 48 * HOUR, 7), first=taken.next_offset))
    store.partition.commit(0, 4, taken.next_offset, closed, {})


def test_a_reader_that_finds_panes_closed_meanwhile_reads_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(store)
    interrupted(monkeypatch, store)
    found = store.partition.snapshot(0)
    assert found.next_offset > BATCHES
    assert not found.gone


def test_ids_that_are_gone_for_good_are_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(store)
    client: Any = store.client
    key = min(client.scan_iter(f"{PREFIX}:seen:*"))

    def read(ask: Any, prefix: str, panes: Sequence[Any]) -> list[id_chunks.StoredIds]:
        client.delete(key)
        return id_chunks.read_ids(ask, prefix, panes)

    monkeypatch.setattr(partition_store, "read_ids", read)
    with pytest.raises(StateUnreadable) as error:
        store.partition.snapshot(0)
    assert error.value.key == key.decode()
    with pytest.raises(StateUnreadable) as error:
        store.partition.acquire(0, "two")
    assert error.value.key == key.decode()


def test_a_partition_that_is_always_overtaken_is_left_for_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(store)

    def read(ask: Any, prefix: str, panes: Sequence[Any]) -> list[id_chunks.StoredIds]:
        store.client.hincrby(f"{PREFIX}:owner", "epoch", 1)
        return id_chunks.read_ids(ask, prefix, panes)

    monkeypatch.setattr(partition_store, "read_ids", read)
    with pytest.raises(redis.exceptions.TryAgainError):
        store.partition.acquire(0, "two")
