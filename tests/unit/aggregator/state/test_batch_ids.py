"""The ids of a pane are an exact set, in few bytes, whichever ids are chosen."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.state import batch_ids, id_table
from aggregator.state.batch_ids import BatchIds, Ids, as_ids
from aggregator.state.id_table import BUCKET_IDS, IDS_PER_BUCKET, IdTable, Scrambled, Scrambler
from tests.support.rows import row

MOST_BYTES = 24
SEED = 20_240_601


def random_ids(count: int, rng: np.random.Generator) -> Ids:
    return as_ids(rng.bytes(16 * count))


def pairs(high: Any, low: Any) -> Ids:
    words = np.empty((len(high), 2), dtype=np.uint64)
    words[:, 0], words[:, 1] = high, low
    return words.view("V16")[:, 0]


def one_by_one(held: set[bytes], ids: Ids) -> list[bool]:
    """Return what a set says of ids, and add those that it does not have."""
    found = []
    for each in ids.tolist():
        found.append(each in held)
        held.add(each)
    return found


class Alike(Scrambler):
    """Scrambles nothing, and leaves few ranks: what somebody could do who knew the key."""

    def scramble(self, ids: Ids) -> Scrambled:
        words = ids.view(np.uint64).reshape(-1, 2)
        return Scrambled(words[:, 1].copy(), words[:, 0].copy())

    def restore(self, found: Scrambled) -> Ids:
        return pairs(found.tail, found.rank)


FEW_IDS = st.integers(0, 40).map(lambda n: n.to_bytes(16, "little"))
FEW_RANKS = st.tuples(st.integers(0, 200), st.integers(0, 3)).map(
    lambda pair: pair[0].to_bytes(8, "little") + pair[1].to_bytes(8, "little")
)
ANY_IDS = st.binary(min_size=16, max_size=16)
POLLS = st.lists(st.lists(st.one_of(FEW_IDS, FEW_RANKS, ANY_IDS), max_size=60), max_size=12)


@pytest.mark.parametrize(
    "scrambler", [id_table.ID_SCRAMBLER, Alike(bytes(32))], ids=["keyed", "none"]
)
@given(polls=POLLS, kept=st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_it_says_what_a_set_says(scrambler: Scrambler, polls: list[list[bytes]], kept: Any) -> None:
    """With a few ids kept as they are, a short run and small buckets: all ways are taken."""
    with (
        patch.object(batch_ids, "MAX_RAW_IDS", 8),
        patch.object(batch_ids, "ID_SCRAMBLER", scrambler),
        patch.object(id_table, "IDS_PER_BUCKET", 16),
        patch.object(id_table, "MAX_WINDOW_IDS", 12),
        patch.object(id_table, "IDS_PER_STEP", 32),
    ):
        ids, held = BatchIds(), set[bytes]()
        for poll in polls:
            found = as_ids(poll)
            repeated = ids.find_repeats(found)
            assert repeated.tolist() == one_by_one(set(held), found)
            assert ids.contains(found).tolist() == [each in held for each in poll]
            counted = ~repeated & np.array([kept.random() < 0.8 for _ in poll], dtype=bool)
            ids.add(found[counted])
            held.update(found[counted].tolist())
            assert len(ids) == len(held)
        assert set(ids) == held
        assert ids == BatchIds(held)
        assert ids != BatchIds([*held, b"another of them!"])


ONES = np.uint64(1)
CHOSEN: dict[str, Callable[[int], Ids]] = {
    "counters": lambda n: pairs(np.arange(n), np.zeros(n)),
    "counters in the other word": lambda n: pairs(np.zeros(n), np.arange(n)),
    "the highest bits": lambda n: pairs(np.arange(n, dtype="u8") << np.uint64(40), np.ones(n)),
    "both words alike": lambda n: pairs(np.arange(n), np.arange(n)),
    "two bits set": lambda n: pairs(
        ONES << (np.arange(n, dtype="u8") % np.uint64(64)),
        ONES << (np.arange(n, dtype="u8") // np.uint64(64) % np.uint64(64)),
    ),
}


def test_chosen_ids_lie_as_evenly_as_random_ones() -> None:
    """Under 4 keys: the longest prefix of 2^16 random ids has 60 or fewer, but for 1 in 10^9."""
    rng = np.random.default_rng(SEED)
    for chosen, made in CHOSEN.items():
        ids = np.unique(made(1 << 16))
        for _ in range(4):
            table = IdTable()
            table.add(Scrambler(rng.bytes(32)).scramble(ids))
            with row(chosen):
                assert len(table) == ids.size
                table.contains(Scrambler(bytes(32)).scramble(ids[:1]))
                assert table._windows is not None
                assert table._windows.shape[1] <= 60
                assert table._is_even


def test_a_bucket_is_full_after_so_many_as_the_memory_is_planned_for() -> None:
    rng = np.random.default_rng(SEED)
    scrambler = Scrambler(rng.bytes(32))
    table = IdTable()
    table.add(scrambler.scramble(random_ids(1 << 18, rng)))
    buckets = (1 << 18) // IDS_PER_BUCKET
    while table._fresh or len(table) == 1 << 18:
        most = table._fresh
        table.add(scrambler.scramble(random_ids(100, rng)))
    assert 0.5 * BUCKET_IDS < most / buckets < 0.8 * BUCKET_IDS


@pytest.mark.parametrize("together", [100, 3_000])
def test_an_id_takes_at_most_24_bytes_at_any_fill(together: int) -> None:
    rng = np.random.default_rng(SEED)
    ids = BatchIds()
    while len(ids) < 60_000:
        ids.add(random_ids(together, rng))
        few = 300 * 16  # for a small pane counts what a bucket takes
        assert ids.nbytes <= MOST_BYTES * len(ids) + few


def test_a_few_ids_take_no_more_than_themselves() -> None:
    ids = BatchIds(number.to_bytes(16, "big") for number in range(10))
    assert ids.nbytes == 160
    assert ids._table is None


def test_an_id_that_was_loaded_twice_is_told_from_ids_of_one_rank() -> None:
    last = id_table.IDS_PER_STEP
    for ninth, second, expected in ((8, last, False), (8, last - 1, True), (9, last - 1, True)):
        rank, rest = (np.arange(2 * last, dtype=np.uint64) for _ in range(2))
        rank[9], rank[last], rest[last] = ninth, last - 1, second
        table = IdTable()
        table.merge(Scrambled(rank, rest))
        assert table.has_repeats() == expected


def test_copies_that_come_together_are_told_beside_a_table() -> None:
    known = BatchIds(bytes([n // 256, n % 256]) * 8 for n in range(300))
    assert known.find_repeats(as_ids([b"n" * 16, b"n" * 16])).tolist() == [False, True]
