"""An exact set of 16-byte ids in flat arrays and buckets: at most 24 bytes an id, even as it grows.

A keyed bijection scrambles the ids, so that nobody can choose ids that collide. Most ids are in one
sorted run without gaps. New ids go into buckets of :data:`BUCKET_IDS`; when a bucket is full, all
buckets are merged into the run, in place.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]

BUCKET_IDS = 64
"""The most ids of a bucket. When the first of many is full, the average is 36 to 45 ids."""
IDS_PER_BUCKET = 320
"""The run has this many ids for each bucket, so the buckets have room for a fifth of the run."""
PREFIX_IDS = 8
"""On average, this many to twice as many ids of the run share a prefix."""
MAX_WINDOW_IDS = 96
"""The most ids of a prefix that are compared at once; random ids never share one so often."""
IDS_PER_STEP = 1 << 14
"""Ids merged or looked up at a time, which bounds the temporary memory."""
HALF_WORD_BITS = np.uint64(32)


class Scrambled(NamedTuple):
    """Scrambled ids, two words each; the run is sorted by the first word."""

    rank: Words
    tail: Words


class Scrambler:
    """A bijection of 128-bit ids with a secret key of 32 bytes: a Feistel network of two rounds."""

    def __init__(self, key: bytes) -> None:
        self._factors = np.frombuffer(key, dtype=np.uint64) | np.uint64(1)

    def scramble(self, ids: NDArray[np.void]) -> Scrambled:
        """Return ids in the form that a table stores; `ids`: of shape (n,), 16 bytes each."""
        words = ids.view(np.uint64).reshape(-1, 2)
        tail = words[:, 0] ^ self._mix(words[:, 1], 0)
        return Scrambled(words[:, 1] ^ self._mix(tail, 2), tail)

    def restore(self, scrambled: Scrambled) -> NDArray[np.void]:
        """Return the original ids."""
        words = np.empty((scrambled.rank.size, 2), dtype=np.uint64)
        words[:, 1] = scrambled.rank ^ self._mix(scrambled.tail, 2)
        words[:, 0] = scrambled.tail ^ self._mix(words[:, 1], 0)
        ids: NDArray[np.void] = words.view("V16")[:, 0]
        return ids

    def _mix(self, words: Words, first: int) -> Words:
        mixed: Words = words * self._factors[first]
        mixed ^= mixed >> HALF_WORD_BITS
        mixed *= self._factors[first + 1]
        mixed ^= mixed >> HALF_WORD_BITS
        return mixed


ID_SCRAMBLER = Scrambler(os.urandom(32))
"""This process's scrambler. No stored byte depends on it."""


class IdTable:
    """A set of scrambled ids that grows by many ids at a time."""

    def __init__(self) -> None:
        self._rank = np.empty(0, dtype=np.uint64)
        self._tail = np.empty(0, dtype=np.uint64)
        # A byte of each id in the run, then room for a window.
        self._marks = np.zeros(MAX_WINDOW_IDS, dtype=np.uint8)
        self._starts = np.zeros(0, dtype=np.uint32)
        self._windows: NDArray[np.uint8] | None = None
        self._allocate_buckets(0)

    def __len__(self) -> int:
        return self._rank.size + self._fresh

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        arrays = (self._rank, self._tail, self._marks, self._starts)
        buckets = (self._bucket_marks, self._bucket_rank, self._bucket_tail, self._filled)
        return sum(array.nbytes for array in (*arrays, *buckets))

    def contains(self, ids: Scrambled) -> Bools:
        """Return which ids are in the set; all 128 bits are compared."""
        is_present = np.zeros(ids.rank.size, dtype=np.bool_)
        for first in range(0, is_present.size, IDS_PER_STEP):
            part = slice(first, first + IDS_PER_STEP)
            part_ids = Scrambled(ids.rank[part], ids.tail[part])
            if self._fresh:
                self._find_in_buckets(part_ids, is_present[part])
            if self._rank.size:
                self._find_in_run(part_ids, is_present[part])
        return is_present

    def add(self, ids: Scrambled) -> None:
        """Add ids, which must be distinct and not in the set."""
        if not self._put_into_buckets(ids):
            self.merge(ids)

    def has_repeats(self) -> bool:
        """Return whether an id was loaded twice."""
        for first in range(0, self._rank.size - 1, IDS_PER_STEP):
            ranks = self._rank[first : first + IDS_PER_STEP + 1]
            if (ranks[1:] == ranks[:-1]).any():
                break
        else:
            return False
        _, firsts, sizes = np.unique(self._rank, return_index=True, return_counts=True)
        return any(
            np.unique(self._tail[first : first + size]).size < size
            for first, size in zip(firsts[sizes > 1], sizes[sizes > 1], strict=True)
        )

    def all(self) -> Scrambled:
        """Return all ids, in no particular order."""
        fresh = self._bucket_ids()
        return Scrambled(
            np.concatenate([self._rank, fresh.rank]), np.concatenate([self._tail, fresh.tail])
        )

    # -- The run --------------------------------------------------------------------------------

    def _index_run(self) -> NDArray[np.uint8]:
        """Index the first id of each prefix; return a window of marks from each position on.

        The window is as long as the longest stretch of one prefix, but at most `MAX_WINDOW_IDS`.
        """
        size = self._rank.size
        bits = max(1, (size // PREFIX_IDS).bit_length() - 1)
        self._shift = np.uint64(64 - bits)
        self._starts = np.zeros(1 << bits, dtype=np.uint32)
        for first in range(0, 1 << bits, IDS_PER_STEP):
            prefixes = np.arange(first, min(first + IDS_PER_STEP, 1 << bits), dtype=np.uint64)
            starts = self._rank.searchsorted(prefixes << self._shift)
            self._starts[first : first + IDS_PER_STEP] = starts
        longest = size - int(self._starts[-1])
        longest = max(longest, int(np.diff(self._starts).max(initial=0)))
        self._is_even = longest <= MAX_WINDOW_IDS
        width = min(longest, MAX_WINDOW_IDS)
        return as_strided(self._marks, (size + 1, width), (1, 1), writeable=False)

    def _find_in_run(self, ids: Scrambled, is_present: Bools) -> None:
        if self._windows is None:  # the run has grown since the last index
            self._windows = self._index_run()
        if not self._is_even:
            self._find_by_rank(ids, is_present)
            return
        starts = self._starts[(ids.rank >> self._shift).astype(np.intp)]
        marked = self._windows[starts] == ids.tail.astype(np.uint8)[:, None]
        rows, positions = np.divmod(np.flatnonzero(marked), max(1, marked.shape[1]))
        positions += starts[rows]
        is_inside = positions < self._rank.size
        rows, positions = rows[is_inside], positions[is_inside]
        is_equal = self._rank[positions] == ids.rank[rows]
        is_equal &= self._tail[positions] == ids.tail[rows]
        is_present[rows[is_equal]] = True

    def _find_by_rank(self, ids: Scrambled, is_present: Bools) -> None:
        """Look ids up in the run one by one, because many share a prefix or even a rank."""
        first = self._rank.searchsorted(ids.rank)
        last = self._rank.searchsorted(ids.rank, side="right")
        for row in np.flatnonzero(last > first).tolist():
            is_present[row] |= bool((self._tail[first[row] : last[row]] == ids.tail[row]).any())

    def merge(self, ids: Scrambled) -> None:
        """Merge ids, and all ids in buckets, into the run; :meth:`has_repeats` finds repeats."""
        fresh = self._bucket_ids()
        self._allocate_buckets(0)
        rank, tail = (np.concatenate(pair) for pair in zip(fresh, ids, strict=True))
        del fresh
        order = np.argsort(rank)
        rank = rank[order]
        tail = tail[order]
        del order
        held = self._rank.size
        self._windows = None  # it refers to the arrays, which are resized
        self._rank.resize(held + rank.size, refcheck=False)
        self._tail.resize(held + rank.size, refcheck=False)
        self._marks.resize(held + rank.size + MAX_WINDOW_IDS, refcheck=False)
        end = rank.size
        for stop in range(held, -1, -IDS_PER_STEP):  # from the end, so that nothing is overwritten
            start = max(0, stop - IDS_PER_STEP)
            run = self._rank[start:stop].copy()
            begin = int(rank.searchsorted(run[0])) if start else 0
            positions = run.searchsorted(rank[begin:end]) + np.arange(end - begin)
            is_old = np.ones(stop - start + end - begin, dtype=np.bool_)
            is_old[positions] = False
            for array, old, new in (
                (self._rank, run, rank[begin:end]),
                (self._tail, self._tail[start:stop].copy(), tail[begin:end]),
            ):
                target = array[start + begin : stop + end]
                target[is_old], target[positions] = old, new
            self._marks[start + begin : stop + end] = self._tail[start + begin : stop + end]
            end = begin
            if not start:
                break
        self._marks[self._rank.size :] = 0
        del rank, tail
        self._allocate_buckets(self._rank.size // IDS_PER_BUCKET)

    # -- The buckets ----------------------------------------------------------------------------

    def _allocate_buckets(self, buckets: int) -> None:
        self._buckets, self._fresh = np.uint64(buckets), 0
        self._filled = np.zeros(buckets, dtype=np.uint8)
        self._bucket_marks = np.zeros((buckets, BUCKET_IDS), dtype=np.uint16)
        self._bucket_rank = np.zeros((buckets, BUCKET_IDS), dtype=np.uint64)
        self._bucket_tail = np.zeros((buckets, BUCKET_IDS), dtype=np.uint64)

    def _bucket(self, rank: Words) -> NDArray[np.intp]:
        buckets: Words = (rank >> HALF_WORD_BITS) * self._buckets >> HALF_WORD_BITS
        return buckets.astype(np.intp)

    def _find_in_buckets(self, ids: Scrambled, is_present: Bools) -> None:
        buckets = self._bucket(ids.rank)
        marked = self._bucket_marks.take(buckets, axis=0) == ids.tail.astype(np.uint16)[:, None]
        rows, positions = np.divmod(np.flatnonzero(marked), max(1, marked.shape[1]))
        held = buckets[rows]
        is_equal = positions < self._filled[held]
        is_equal &= self._bucket_rank[held, positions] == ids.rank[rows]
        is_equal &= self._bucket_tail[held, positions] == ids.tail[rows]
        is_present[rows[is_equal]] = True

    def _put_into_buckets(self, ids: Scrambled) -> bool:
        """Add ids to the buckets; if a bucket has no room, add none and return False."""
        if self._fresh + ids.rank.size > int(self._buckets) * BUCKET_IDS:
            return False
        numbered = self._bucket(ids.rank).astype(np.uint64) << HALF_WORD_BITS
        numbered |= np.arange(numbered.size, dtype=np.uint64)
        numbered.sort()
        order = (numbered & np.uint64(2**32 - 1)).astype(np.intp)
        buckets = (numbered >> HALF_WORD_BITS).astype(np.intp)
        first = np.flatnonzero(np.diff(buckets, prepend=-1))
        sizes = np.diff(first, append=buckets.size)
        held = self._filled[buckets[first]].astype(np.intp)
        if int((held + sizes).max(initial=0)) > BUCKET_IDS:
            return False
        positions = np.arange(buckets.size) + np.repeat(held - first, sizes)
        self._bucket_marks[buckets, positions] = ids.tail[order]
        self._bucket_rank[buckets, positions] = ids.rank[order]
        self._bucket_tail[buckets, positions] = ids.tail[order]
        self._filled[buckets[first]] = held + sizes
        self._fresh += buckets.size
        return True

    def _bucket_ids(self) -> Scrambled:
        """Return the ids in the buckets."""
        is_filled = np.arange(BUCKET_IDS) < self._filled[:, None]
        return Scrambled(self._bucket_rank[is_filled], self._bucket_tail[is_filled])
