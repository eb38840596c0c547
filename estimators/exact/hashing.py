"""Public hash functions of 64-bit keys: the same on every device, in every language.

The hash is SplitMix64's finaliser (Stafford's variant 13), a bijection; constants are SplitMix64's
words (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
"""

from __future__ import annotations

import numpy as np

from estimators.estimate import Bools, Integers
from estimators.exact.randomness import Words
from estimators.exact.thresholds import WORD

_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def check_rows_and_seed(rows: int, seed: int) -> None:
    """Raise ValueError unless a table can have this number of rows and this seed."""
    if rows < 1:
        raise ValueError(f"rows = {rows}: expected 1 or more")
    if not 0 <= seed < WORD:
        raise ValueError(f"seed = {seed}: expected 0 to 2^64 - 1")


def mix(words: Words) -> Words:
    """Return a hash of each word: any change of a word changes about half the bits of its hash."""
    shifted = words >> np.uint64(30)
    mixed = words ^ shifted
    mixed *= _FIRST_FACTOR
    np.right_shift(mixed, np.uint64(27), out=shifted)  # reusing memory is faster
    mixed ^= shifted
    mixed *= _SECOND_FACTOR
    np.right_shift(mixed, np.uint64(31), out=shifted)
    mixed ^= shifted
    return mixed


def hash_constants(seed: int, index: Integers) -> Words:
    """Return the constants of the hash functions with these indices: words of SplitMix64.

    `seed`: the generator's state before the first word, in [0, 2^64); `index`: from 0.

    >>> [hex(word) for word in hash_constants(0, np.arange(2)).tolist()]
    ['0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4']
    """
    return mix(np.uint64(seed) + (index.astype(np.uint64) + np.uint64(1)) * _GOLDEN_RATIO)


def buckets_and_signs(keys: Words, constants: Words, bits: int) -> tuple[Integers, Bools]:
    """Return for each key one of 2^bits buckets, and whether its sign is -1.

    The word of a key in a row is ``mix(key ^ constant)``; its first `bits` bits are the bucket, and
    its last bit is 1 if the sign is -1.

    `keys`, `constants`: arrays whose shapes broadcast: (n,) and (n,), or (n, 1) and (rows,);
    `bits`: 0 to 63.

    >>> keys, rows = np.array([[1], [2]], dtype=np.uint64), hash_constants(0, np.arange(4))
    >>> buckets, negative = buckets_and_signs(keys, rows, 6)
    >>> buckets.tolist(), negative.astype(int).tolist()
    ([[39, 2, 43, 62], [15, 11, 9, 11]], [[1, 0, 0, 0], [1, 0, 0, 0]])
    """
    words = mix(keys ^ constants)
    # in two shifts, because a shift by 64, for a single bucket, is not defined
    top = (words >> np.uint64(1)) >> np.uint64(63 - bits)
    return top.astype(np.int64), (words & np.uint64(1)).astype(np.bool_)
