"""An exact set of 16-byte ids in flat arrays: at most 24 bytes an id, while it grows, too.

Ids are scrambled by a keyed bijection, so that nobody can choose ids that fall into one place. Most
of them lie in one sorted run, without a gap. New ones go into buckets, each with room for
:data:`BUCKET`; as soon as a bucket is full, all of them are merged into the run, in place.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]

BUCKET = 64
"""Ids in a bucket. The first of many buckets is full when they have 36 to 45 each on average."""
IDS_PER_BUCKET = 320
"""Of the run, for each bucket: room for a fifth of the run, of which about 60% is used."""
PREFIX_IDS = 8
"""Of the run, that have one prefix on average: at least so many, less than twice that."""
LONGEST_WINDOW = 96
"""Ids of one prefix that are looked through; by chance there are never so many."""
SLICE = 1 << 14
"""Ids that are merged, or looked up, at a time: what is needed meanwhile does not grow."""
HALF = np.uint64(32)


class Scrambled(NamedTuple):
    """Ids as a table has them: the words of each, the first of which is its rank in the run."""

    rank: Words
    rest: Words


class Scrambler:
    """A bijection of 128-bit ids whose key nobody knows: a Feistel network of two rounds.

    Parameters
    ----------
    key : bytes
        32 of them.
    """

    def __init__(self, key: bytes) -> None:
        self._factors = np.frombuffer(key, dtype=np.uint64) | np.uint64(1)

    def scramble(self, ids: NDArray[np.void]) -> Scrambled:
        """Return ids, shape (n,) of 16 bytes each, as a table has them."""
        words = ids.view(np.uint64).reshape(-1, 2)
        rest = words[:, 0] ^ self._mix(words[:, 1], 0)
        return Scrambled(words[:, 1] ^ self._mix(rest, 2), rest)

    def restore(self, found: Scrambled) -> NDArray[np.void]:
        """Return the ids that were scrambled."""
        words = np.empty((found.rank.size, 2), dtype=np.uint64)
        words[:, 1] = found.rank ^ self._mix(found.rest, 2)
        words[:, 0] = found.rest ^ self._mix(words[:, 1], 0)
        ids: NDArray[np.void] = words.view("V16")[:, 0]
        return ids

    def _mix(self, words: Words, first: int) -> Words:
        mixed: Words = words * self._factors[first]
        mixed ^= mixed >> HALF
        mixed *= self._factors[first + 1]
        mixed ^= mixed >> HALF
        return mixed


SCRAMBLER = Scrambler(os.urandom(32))
"""This process's. No stored byte depends on it."""


class IdTable:
    """A set of scrambled ids, to which new ones are added many at a time."""

    def __init__(self) -> None:
        self._rank = np.empty(0, dtype=np.uint64)
        self._rest = np.empty(0, dtype=np.uint64)
        self._marks = np.zeros(LONGEST_WINDOW, dtype=np.uint8)  # of the run, and room for a window
        self._starts = np.zeros(0, dtype=np.uint32)
        self._windows: NDArray[np.uint8] | None = None
        self._open_buckets()

    def __len__(self) -> int:
        return self._rank.size + self._fresh

    @property
    def nbytes(self) -> int:
        """The memory of its arrays."""
        arrays = (self._rank, self._rest, self._marks, self._starts)
        buckets = (self._bucket_marks, self._bucket_rank, self._bucket_rest, self._filled)
        return sum(array.nbytes for array in (*arrays, *buckets))

    def contains(self, ids: Scrambled) -> Bools:
        """Return which ids are there: all 128 bits of them are compared."""
        found = np.zeros(ids.rank.size, dtype=np.bool_)
        for first in range(0, found.size, SLICE):
            part = slice(first, first + SLICE)
            those = Scrambled(ids.rank[part], ids.rest[part])
            if self._fresh:
                self._find_in_buckets(those, found[part])
            if self._rank.size:
                self._find_in_run(those, found[part])
        return found

    def add(self, ids: Scrambled) -> None:
        """Add ids that are not there, each once."""
        if not self._put_into_buckets(ids):
            self._merge(ids)

    def load(self, ids: Scrambled) -> None:
        """Add many ids without looking whether they are there: :meth:`has_repeats` tells."""
        self._merge(ids)

    def has_repeats(self) -> bool:
        """Return whether an id that was loaded is there twice."""
        for first in range(0, self._rank.size - 1, SLICE):
            ranks = self._rank[first : first + SLICE + 1]
            if (ranks[1:] == ranks[:-1]).any():
                break
        else:
            return False
        _, alike, sizes = np.unique(self._rank, return_index=True, return_counts=True)
        return any(
            np.unique(self._rest[first : first + size]).size < size
            for first, size in zip(alike[sizes > 1], sizes[sizes > 1], strict=True)
        )

    def all(self) -> Scrambled:
        """Return all ids, in no order that means anything."""
        fresh = self._taken()
        return Scrambled(
            np.concatenate([self._rank, fresh.rank]), np.concatenate([self._rest, fresh.rest])
        )

    # -- The run --------------------------------------------------------------------------------

    def _index_run(self) -> NDArray[np.uint8]:
        """Note where the ids of each prefix begin; return a window of marks from each place on.

        It is as long as the longest stretch of one prefix.
        """
        size = self._rank.size
        bits = max(1, (size // PREFIX_IDS).bit_length() - 1)
        self._shift = np.uint64(64 - bits)
        self._starts = np.zeros(1 << bits, dtype=np.uint32)
        for first in range(0, 1 << bits, SLICE):
            prefixes = np.arange(first, min(first + SLICE, 1 << bits), dtype=np.uint64)
            starts = self._rank.searchsorted(prefixes << self._shift)
            self._starts[first : first + SLICE] = starts
        longest = size - int(self._starts[-1])
        longest = max(longest, int(np.diff(self._starts).max(initial=0)))
        self._is_even = longest <= LONGEST_WINDOW
        width = min(longest, LONGEST_WINDOW)
        return as_strided(self._marks, (size + 1, width), (1, 1), writeable=False)

    def _find_in_run(self, ids: Scrambled, found: Bools) -> None:
        if self._windows is None:  # the run has grown since the last look
            self._windows = self._index_run()
        if not self._is_even:
            self._find_by_rank(ids, found)
            return
        starts = self._starts[(ids.rank >> self._shift).astype(np.intp)]
        marked = self._windows[starts] == ids.rest.astype(np.uint8)[:, None]
        rows, places = np.divmod(np.flatnonzero(marked), max(1, marked.shape[1]))
        places += starts[rows]
        is_inside = places < self._rank.size
        rows, places = rows[is_inside], places[is_inside]
        same = self._rank[places] == ids.rank[rows]
        same &= self._rest[places] == ids.rest[rows]
        found[rows[same]] = True

    def _find_by_rank(self, ids: Scrambled, found: Bools) -> None:
        """Find ids where many have one prefix, and maybe one rank."""
        first = self._rank.searchsorted(ids.rank)
        last = self._rank.searchsorted(ids.rank, side="right")
        for row in np.flatnonzero(last > first).tolist():
            found[row] |= bool((self._rest[first[row] : last[row]] == ids.rest[row]).any())

    def _merge(self, ids: Scrambled) -> None:
        """Merge ids, and all that are in buckets, into the run."""
        fresh = self._taken()
        self._close_buckets()
        rank, rest = (np.concatenate(pair) for pair in zip(fresh, ids, strict=True))
        del fresh
        order = np.argsort(rank)
        rank = rank[order]
        rest = rest[order]
        del order
        held = self._rank.size
        self._windows = None  # it has no hold on what is resized
        self._rank.resize(held + rank.size, refcheck=False)
        self._rest.resize(held + rank.size, refcheck=False)
        self._marks.resize(held + rank.size + LONGEST_WINDOW, refcheck=False)
        end = rank.size
        for stop in range(held, -1, -SLICE):  # from the end, so that nothing is overwritten
            start = max(0, stop - SLICE)
            run = self._rank[start:stop].copy()
            begin = int(rank.searchsorted(run[0])) if start else 0
            places = run.searchsorted(rank[begin:end]) + np.arange(end - begin)
            is_old = np.ones(stop - start + end - begin, dtype=np.bool_)
            is_old[places] = False
            for array, old, new in (
                (self._rank, run, rank[begin:end]),
                (self._rest, self._rest[start:stop].copy(), rest[begin:end]),
            ):
                target = array[start + begin : stop + end]
                target[is_old], target[places] = old, new
            self._marks[start + begin : stop + end] = self._rest[start + begin : stop + end]
            end = begin
            if not start:
                break
        self._marks[self._rank.size :] = 0
        del rank, rest
        self._open_buckets()

    # -- The buckets ----------------------------------------------------------------------------

    def _open_buckets(self) -> None:
        self._allocate(self._rank.size // IDS_PER_BUCKET)

    def _close_buckets(self) -> None:
        self._allocate(0)

    def _allocate(self, buckets: int) -> None:
        self._buckets, self._fresh = np.uint64(buckets), 0
        self._filled = np.zeros(buckets, dtype=np.uint8)
        self._bucket_marks = np.zeros((buckets, BUCKET), dtype=np.uint16)
        self._bucket_rank = np.zeros((buckets, BUCKET), dtype=np.uint64)
        self._bucket_rest = np.zeros((buckets, BUCKET), dtype=np.uint64)

    def _bucket(self, rank: Words) -> NDArray[np.intp]:
        buckets: NDArray[np.intp] = ((rank >> HALF) * self._buckets >> HALF).astype(np.intp)
        return buckets

    def _find_in_buckets(self, ids: Scrambled, found: Bools) -> None:
        buckets = self._bucket(ids.rank)
        marked = self._bucket_marks.take(buckets, axis=0) == ids.rest.astype(np.uint16)[:, None]
        rows, places = np.divmod(np.flatnonzero(marked), max(1, marked.shape[1]))
        held = buckets[rows]
        same = places < self._filled[held]
        same &= self._bucket_rank[held, places] == ids.rank[rows]
        same &= self._bucket_rest[held, places] == ids.rest[rows]
        found[rows[same]] = True

    def _put_into_buckets(self, ids: Scrambled) -> bool:
        """Add ids to the buckets; return False, and add none, if there is no room for one."""
        if self._fresh + ids.rank.size > int(self._buckets) * BUCKET:
            return False
        numbered = self._bucket(ids.rank).astype(np.uint64) << HALF
        numbered |= np.arange(numbered.size, dtype=np.uint64)
        numbered.sort()
        order = (numbered & np.uint64(2**32 - 1)).astype(np.intp)
        buckets = (numbered >> HALF).astype(np.intp)
        first = np.flatnonzero(np.diff(buckets, prepend=-1))
        sizes = np.diff(first, append=buckets.size)
        held = self._filled[buckets[first]].astype(np.intp)
        if int((held + sizes).max(initial=0)) > BUCKET:
            return False
        places = np.arange(buckets.size) + np.repeat(held - first, sizes)
        self._bucket_marks[buckets, places] = ids.rest[order]
        self._bucket_rank[buckets, places] = ids.rank[order]
        self._bucket_rest[buckets, places] = ids.rest[order]
        self._filled[buckets[first]] = held + sizes
        self._fresh += buckets.size
        return True

    def _taken(self) -> Scrambled:
        """Return what is in the buckets."""
        there = np.arange(BUCKET) < self._filled[:, None]
        return Scrambled(self._bucket_rank[there], self._bucket_rest[there])
