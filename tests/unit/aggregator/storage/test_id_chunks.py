"""Ids of batches are kept in chunks: what commits write of them, and what is read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.errors import StateUnreadable
from aggregator.state.partition import Partition
from aggregator.storage import id_chunks
from aggregator.storage.connection import connect
from aggregator.storage.id_chunks import CHUNK_IDS
from aggregator.storage.store import Store
from tests.support.reports.messages import EPOCH, agreeing, batch, log
from tests.support.reports.partitions import DELAY as PUNCTUAL
from tests.support.reports.partitions import FUTURE_MS, HOUR, MINUTE

TOPIC = "reports"
DELAY = dataclasses.replace(PUNCTUAL, lateness="1d")
METRICS = {"delay": DELAY}
PREFIX = f"{{dither:{TOPIC}:0}}"
CHUNK = 4


@pytest.fixture
def store(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(id_chunks, "CHUNK_IDS", CHUNK)
    with Store(connect(redis_url), TOPIC) as store:
        yield store


class Worker:
    """Counts a partition whose batches are numbered by offset."""

    def __init__(self, store: Store) -> None:
        self.store = store
        taken = store.partition.acquire(0, "one")
        self.epoch, self.next = int(taken.owner["epoch"]), taken.next_offset
        self.state: Partition = taken.partition(METRICS, FUTURE_MS)

    def count(self, batches: int, at: int = EPOCH) -> None:
        first = max(0, self.next)
        found = (batch(DELAY, [1.0], 1, at, first + i) for i in range(batches))
        self.state.count(log(*found, first=first))
        self.commit()

    def close(self) -> None:
        end = agreeing(DELAY, EPOCH + 48 * HOUR, 10**6)
        self.state.count(log(*end, first=self.next))
        self.commit()

    def commit(self) -> None:
        self.store.partition.commit(0, self.epoch, self.next, self.state, {})
        self.next = self.state.next_offset

    @property
    def ids(self) -> set[bytes]:
        return {each for pane in self.state.panes.values() for each in pane.seen}


def numbered(last: int) -> set[bytes]:
    return {batch(DELAY, [1.0], 1, EPOCH, number).batch_id for number in range(last)}


def chunks(store: Store) -> dict[str, int]:
    """Return the sizes of the values that have ids, in ids, by the end of their keys."""
    client: Any = store.client
    return {
        key.decode().rpartition(":")[2]: client.strlen(key) // 16
        for key in client.scan_iter(f"{PREFIX}:seen:*")
    }


def test_commits_write_only_their_new_ids_whatever_ends_within_a_chunk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(store)
    counted = 0
    for more in (1, 2, 1, 1, 3, 9, 4, 1):
        (key,) = (k for k, p in worker.state.panes.items() if p.seen) if counted else (None,)
        worker.count(more)
        counted += more
        key = key or next(k for k, pane in worker.state.panes.items() if pane.seen)
        full = -(-counted // CHUNK)
        first = min(counted, CHUNK)
        assert chunks(store) == {"0": first, **{str(n): CHUNK for n in range(1, full)}}
        assert store.client.hgetall(f"{PREFIX}:ids") == {str(key).encode(): b"%d" % counted}
        assert Worker(store).ids == numbered(counted)
        worker = Worker(store)
    assert counted == 22


def test_what_is_written_is_as_long_as_the_new_ids(store: Store) -> None:
    worker = Worker(store)
    worker.count(10)
    found = [batch(DELAY, [1.0], 1, EPOCH, 10 + i) for i in range(3)]
    worker.state.count(log(*found, first=10))
    ((key, pane),) = ((k, p) for k, p in worker.state.panes.items() if p.seen)
    writes = list(id_chunks.id_writes(PREFIX, key, pane))
    assert [(words[1].rpartition(":")[2], words[2]) for words in writes] == [
        ("2", 2 * 16),
        ("3", CHUNK * 16 - 1),
        ("3", 0),
    ]
    assert [bytes(words[3]) for words in writes] == [
        b"".join(one.batch_id for one in found[:2]),
        b"\0",
        found[2].batch_id,
    ]


def test_chunks_go_with_their_pane(store: Store) -> None:
    worker = Worker(store)
    worker.count(23)
    worker.count(2, EPOCH + 5 * MINUTE)
    assert len(chunks(store)) == 6
    worker.close()
    assert {key.start for key, pane in worker.state.panes.items() if pane.seen} == {
        EPOCH + 48 * HOUR
    }
    left = list(store.client.scan_iter(f"{PREFIX}:seen:*"))
    assert len(left) == -(-len(worker.ids) // CHUNK), "those of the pane that is open"
    assert store.client.hlen(f"{PREFIX}:ids") == 1


def test_a_pane_that_opens_and_closes_within_one_commit_leaves_nothing(store: Store) -> None:
    worker = Worker(store)
    worker.next = -1
    worker.state.count(log(*(batch(DELAY, [1.0], 1, EPOCH, i) for i in range(9))))
    end = agreeing(DELAY, EPOCH + 48 * HOUR, 10**6)
    worker.state.count(log(*end, first=9))
    worker.commit()
    assert Worker(store).ids == worker.ids
    assert store.client.hlen(f"{PREFIX}:ids") == 1


def written_before(store: Store, ids: int) -> None:
    """Have the ids of an open pane in one value, as earlier versions wrote them."""
    worker = Worker(store)
    worker.count(ids)
    client: Any = store.client
    keys = sorted(
        client.scan_iter(f"{PREFIX}:seen:*"), key=lambda key: int(key.rpartition(b":")[2])
    )
    joined = b"".join(client.get(key) for key in keys)[: 16 * ids]
    client.delete(*keys, f"{PREFIX}:ids")
    client.hdel(f"{PREFIX}:sizes", "ids")
    client.set(keys[0].rpartition(b":")[0], joined)


def test_ids_that_an_earlier_version_wrote_are_counted_on_from_and_go_with_their_pane(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_chunks, "PIECE_BYTES", 48)
    written_before(store, 11)
    worker = Worker(store)
    assert worker.ids == numbered(11)
    copies = (batch(DELAY, [1.0], 1, EPOCH, i) for i in range(11))
    worker.state.count(log(*copies, first=11))
    assert worker.state.counts["duplicate:delay"] == 11
    worker.commit()
    worker.count(1)
    for more in (2, 5, 1):
        worker = Worker(store)
        worker.count(more)
        assert worker.ids == Worker(store).ids
        assert len(worker.ids) == worker.next - 11
        worker = Worker(store)
    assert chunks(store).keys() == {str(EPOCH), "0", "1", "2"}
    worker = Worker(store)
    worker.close()
    left = [key for key in store.client.scan_iter(f"{PREFIX}:seen:*") if b":%d" % EPOCH in key]
    assert left == []


@pytest.mark.parametrize("number", [0, 1, 4])
def test_a_chunk_that_is_gone_is_missed_at_a_takeover(store: Store, number: int) -> None:
    worker = Worker(store)
    worker.count(18)
    (key,) = (key for key in worker.state.panes if worker.state.panes[key].seen)
    place = f"{PREFIX}:seen:{key}:{number}"
    store.client.delete(place)
    for look in (lambda: store.partition.snapshot(0), lambda: Worker(store)):
        with pytest.raises(StateUnreadable) as error:
            look()
        assert error.value.key == place


def test_no_id_is_added_to_a_chunk_that_is_gone(store: Store) -> None:
    worker = Worker(store)
    worker.count(18)
    (key,) = (key for key in worker.state.panes if worker.state.panes[key].seen)
    store.client.delete(f"{PREFIX}:seen:{key}:4")
    with pytest.raises(StateUnreadable) as error:
        worker.count(1)
    assert error.value.key == f"{PREFIX}:seen:{key}:4"


def test_numbers_of_ids_that_are_gone_are_missed(store: Store) -> None:
    worker = Worker(store)
    worker.count(18)
    store.client.delete(f"{PREFIX}:ids")
    with pytest.raises(StateUnreadable, match=":ids"):
        worker.count(1)
    with pytest.raises(StateUnreadable, match=":ids"):
        Worker(store)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda c, k: c.hset(f"{PREFIX}:ids", str(k), "x"), "a whole number"),
        (lambda c, k: c.hset(f"{PREFIX}:ids", str(k), 19), ":4"),
        (
            lambda c, k: c.setrange(f"{PREFIX}:seen:{k}:1", 0, c.get(f"{PREFIX}:seen:{k}:0")),
            "twice",
        ),
    ],
    ids=["no number", "more than there are", "an id twice"],
)
def test_chunks_that_are_not_as_they_were_written_are_refused(
    store: Store, spoil: Any, told: str
) -> None:
    worker = Worker(store)
    worker.count(20 if told == "twice" else 16)
    (key,) = (key for key in worker.state.panes if worker.state.panes[key].seen)
    spoil(store.client, key)
    with pytest.raises(StateUnreadable, match=told):
        Worker(store)


def test_a_chunk_fits_the_size_classes_of_redis() -> None:
    assert 0.95 * 2**16 < CHUNK_IDS * 16 < 2**16 - 64
