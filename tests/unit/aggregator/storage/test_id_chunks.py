"""Ids of batches are kept in chunks: what commits write of them, and how they are read back."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from aggregator.errors import StateUnreadable
from aggregator.state.pane_keys import PaneKey
from aggregator.state.partition import Partition
from aggregator.storage import commit, partition_store, snapshot
from aggregator.storage.commit import CHUNK_IDS
from aggregator.storage.parsing import Command
from aggregator.storage.store import Store
from tests.support.reports.counted import TOPIC
from tests.support.reports.messages import EPOCH, agreeing, batch, log
from tests.support.reports.partitions import DELAY as PUNCTUAL
from tests.support.reports.partitions import FUTURE_MS, HOUR, MINUTE
from tests.support.rows import row

DELAY = dataclasses.replace(PUNCTUAL, lateness="1d")
METRICS = {"delay": DELAY}
PREFIX = f"{{dither:{TOPIC}:0}}"
CHUNK = 4


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "CHUNK_IDS", CHUNK)


class Worker:
    """Counts a partition whose batches are numbered by offset."""

    def __init__(self, store: Store) -> None:
        self.store = store
        taken = store.partition.acquire(0, "one")
        self.epoch, self.next = int(taken.owner["epoch"]), taken.next_offset
        self.state: Partition = taken.partition(METRICS, FUTURE_MS)

    def count(self, batches: int, at: int = EPOCH, commit: bool = True) -> None:
        first = max(0, self.state.next_offset)
        found = (batch(DELAY, [1.0], 1, at, first + i) for i in range(batches))
        self.state.count(log(*found, first=first))
        if commit:
            self.commit()

    def close(self) -> None:
        end = agreeing(DELAY, EPOCH + 48 * HOUR, 10**6)
        self.state.count(log(*end, first=self.state.next_offset))
        self.commit()

    def commit(self) -> None:
        self.store.partition.commit(0, self.epoch, self.next, self.state, {})
        self.next = self.state.next_offset

    @property
    def ids(self) -> set[bytes]:
        return {each for pane in self.state.panes.values() for each in pane.batch_ids}

    @property
    def key(self) -> PaneKey:
        (found,) = (key for key, pane in self.state.panes.items() if pane.batch_ids)
        return found


def numbered(last: int) -> set[bytes]:
    return {batch(DELAY, [1.0], 1, EPOCH, number).batch_id for number in range(last)}


def chunks(store: Store) -> dict[str, int]:
    """Return the sizes of the values that have ids, in ids, by the end of their keys."""
    client: Any = store.client
    return {
        key.decode().rpartition(":")[2]: client.strlen(key) // 16
        for key in client.scan_iter(f"{PREFIX}:seen:*")
    }


def test_commits_write_only_their_new_ids_whatever_ends_within_a_chunk(store: Store) -> None:
    worker, counted = Worker(store), 0
    for more in (1, 2, 1, 1, 3, 9, 4, 1):
        worker.count(more)
        counted += more
        full = -(-counted // CHUNK)
        assert chunks(store) == {
            "0": min(counted, CHUNK),
            **{str(number): CHUNK for number in range(1, full)},
        }
        assert store.client.hgetall(f"{PREFIX}:ids") == {str(worker.key).encode(): b"%d" % counted}
        worker = Worker(store)
        assert worker.ids == numbered(counted)


def test_chunks_go_with_their_pane(store: Store) -> None:
    worker = Worker(store)
    worker.count(23)
    worker.count(2, EPOCH + 5 * MINUTE)
    assert len(chunks(store)) == 6
    worker.close()
    assert worker.key.start == EPOCH + 48 * HOUR
    assert len(chunks(store)) == -(-len(worker.ids) // CHUNK), "those of the pane that is open"
    assert store.client.hlen(f"{PREFIX}:ids") == 1


def test_a_pane_that_opens_and_closes_within_one_commit_leaves_nothing(store: Store) -> None:
    worker = Worker(store)
    worker.count(9, commit=False)
    worker.close()
    assert Worker(store).ids == worker.ids
    assert store.client.hlen(f"{PREFIX}:ids") == 1


def test_ids_of_an_earlier_version_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PIECE_BYTES", 48)
    client: Any = store.client
    worker = Worker(store)
    worker.count(11)
    places = [f"{PREFIX}:seen:{worker.key}:{number}" for number in range(3)]
    joined = b"".join(client.get(place) for place in places)[: 16 * 11]
    client.delete(*places, f"{PREFIX}:ids")
    client.hdel(f"{PREFIX}:sizes", "ids")
    client.set(f"{PREFIX}:seen:{worker.key}", joined)
    for more in (1, 2, 5):
        worker = Worker(store)
        assert worker.ids == numbered(worker.next)
        worker.count(more)
    assert chunks(store).keys() == {str(EPOCH), "0", "1"}
    worker.close()
    assert [key for key in client.scan_iter(f"{PREFIX}:seen:*") if b":%d" % EPOCH in key] == []


def test_a_chunk_that_is_gone_or_empty_is_missed(store: Store) -> None:
    for number, is_gone in ((0, True), (1, True), (4, True), (1, False)):
        store.client.flushdb()
        worker = Worker(store)
        worker.count(18)
        place = f"{PREFIX}:seen:{worker.key}:{number}"
        store.client.delete(place)
        if not is_gone:
            store.client.set(place, b"")
        looks: list[Callable[[], object]] = [
            lambda: store.partition.snapshot(0),
            lambda: Worker(store),
        ]
        if number == 4:
            looks.insert(0, lambda: worker.count(1))  # noqa: B023 # to which it would be added
        for look in looks:
            with row(number, is_gone), pytest.raises(StateUnreadable) as error:
                look()
            assert error.value.key == place


def test_chunks_that_are_not_as_they_were_written_are_refused(store: Store) -> None:
    def copied(client: Any, key: PaneKey) -> None:
        client.setrange(f"{PREFIX}:seen:{key}:1", 0, client.get(f"{PREFIX}:seen:{key}:0"))

    spoils: list[tuple[str, Callable[[Any, PaneKey], object]]] = [
        ("a whole number", lambda client, key: client.hset(f"{PREFIX}:ids", str(key), "x")),
        (":5", lambda client, key: client.hset(f"{PREFIX}:ids", str(key), 21)),
        (":ids", lambda client, _: client.delete(f"{PREFIX}:ids")),
        ("twice", copied),
    ]
    for told, spoil in spoils:
        store.client.flushdb()
        worker = Worker(store)
        worker.count(20)
        spoil(store.client, worker.key)
        with row(told), pytest.raises(StateUnreadable, match=told):
            Worker(store)


def test_a_chunk_fits_the_size_classes_of_redis() -> None:
    assert 0.95 * 2**16 < CHUNK_IDS * 16 < 2**16 - 64


# -- Read in pieces, so that Redis answers others meanwhile ----------------------------------------

PIECE = 16 * CHUNK
BATCHES = 300
"""In five panes: the ids of each are several pieces, and the last of them is not full."""


def of_five_panes(store: Store) -> Worker:
    worker = Worker(store)
    for pane in range(5):
        worker.count(BATCHES // 5 + (-1) ** pane, EPOCH + pane * 5 * MINUTE)
    return worker


def ids(partition: Partition) -> dict[Any, set[bytes]]:
    return {key: set(pane.batch_ids) for key, pane in partition.panes.items() if pane.batch_ids}


def before_ids_are_read(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object], times: int = 1
) -> None:
    """Have something happen whenever ids are read, so many times."""
    left = [times]

    def read(ask: Any, prefix: str, panes: Sequence[Any]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            happens()
        snapshot.read_ids(ask, prefix, panes)

    monkeypatch.setattr(partition_store, "read_ids", read)


@pytest.mark.parametrize("commands", [3, 1_000])
def test_all_ids_are_read_and_no_reply_is_longer_than_a_piece(
    store: Store, monkeypatch: pytest.MonkeyPatch, commands: int
) -> None:
    monkeypatch.setattr(snapshot, "ROUND_COMMANDS", commands)
    monkeypatch.setattr(snapshot, "ROUND_BYTES", 4 * PIECE)
    worker, rounds = of_five_panes(store), []
    ask = store.partition._commands.ask

    def watched(asked: Sequence[Command]) -> list[Any]:
        replies = ask(asked)
        if asked[0][0] == "GETRANGE":
            rounds.append([len(reply) for reply in replies])
        return replies

    monkeypatch.setattr(store.partition._commands, "ask", watched)
    for found in (store.partition.acquire(0, "two"), store.partition.snapshot(0)):
        assert ids(found.partition(METRICS, FUTURE_MS)) == ids(worker.state)
    lengths = [length for each in rounds for length in each]
    assert sum(lengths) == 2 * 16 * len(worker.ids)
    assert max(lengths) == PIECE
    assert max(map(len, rounds)) <= commands
    assert max(map(sum, rounds)) <= 4 * PIECE


def test_who_finds_panes_closed_reads_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = of_five_panes(store).next
    before_ids_are_read(monkeypatch, lambda: Worker(store).close())
    taken = store.partition.acquire(0, "two")
    assert (taken.owner["worker"], int(taken.owner["epoch"])) == ("two", 4)
    assert taken.next_offset > counted
    closed = taken.partition(METRICS, FUTURE_MS)
    assert not any(key.start < EPOCH + HOUR for key in ids(closed))
    closed.count(log(batch(DELAY, [1.0], 1, EPOCH + 48 * HOUR, 7), first=taken.next_offset))
    store.partition.commit(0, 4, taken.next_offset, closed, {})
    store.client.flushdb()
    of_five_panes(store)
    before_ids_are_read(monkeypatch, lambda: Worker(store).close())
    found = store.partition.snapshot(0)
    assert found.next_offset > counted
    assert not found.gone


def test_who_is_always_overtaken_comes_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    of_five_panes(store)
    owner = f"{PREFIX}:owner"
    before_ids_are_read(monkeypatch, lambda: store.client.hincrby(owner, "epoch", 1), times=99)
    with pytest.raises(redis.exceptions.TryAgainError):
        store.partition.acquire(0, "two")
