"""Counts small integers by the fastest method for their number, such as bit planes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import AnyIntegers, Counts, Integers
from estimators.exact.randomness import Words

MANY_ROWS, BLOCK_ROWS, LEFT_ROWS = 8_192, 65_536, 64
"""From 8,192 rows on, bits are added as words, in blocks of 65,536 rows; the last rows, up to 64,
are added bit by bit."""

BITS_UNPACKED_AT_A_TIME = 2**22
"""Bits that are unpacked at a time: a few megabytes."""

MAX_BITWISE_BITS, MIN_BITWISE_NUMBERS = 4, 16_384
"""At least 16,384 numbers of at most 4 bits are counted as bits, 64 in a word: measured two to
three times as fast as np.bincount."""
MIN_BITWISE_PART = 256
"""Parts whose mean size is at least this are counted together, as bits."""
FIRST_BITS = np.packbits(np.tri(64, k=-1, dtype=np.uint8), axis=1).view(np.uint64)[:, 0]
"""Masks of the first 0, 1, ... 63 bits of a word, as np.packbits orders them."""
NUMBERS_COUNTED_AT_A_TIME = 65_536
"""np.bincount copies its input to eight bytes for each number; a chunk fits into the cache."""


def tally(numbers: AnyIntegers, cells: int) -> Counts:
    """Return how often each integer from 0 to cells - 1 occurs.

    `numbers`, shape (n,): all below `cells`. The result has shape (cells,).

    >>> tally(np.array([2, 0, 2], dtype=np.uint8), 4)
    array([1, 0, 2, 0])
    """
    if _is_bitwise(bits := (cells - 1).bit_length(), numbers.size):
        return np.array(_patterns(numbers.size, None, _planes(numbers, bits)))[:cells]
    counts = np.zeros(cells, dtype=np.int64)
    for start in range(0, numbers.size, NUMBERS_COUNTED_AT_A_TIME):
        counts += np.bincount(numbers[start : start + NUMBERS_COUNTED_AT_A_TIME], minlength=cells)
    return counts


def tally_signs(level: AnyIntegers, levels: int, signs: AnyIntegers) -> Counts:
    """Return how often each level occurs with the sign 0, and how often with the sign 1.

    The result has shape (levels, 2).

    `level`, shape (n,): all below `levels`; `signs`, shape (n,): zeros and ones.

    >>> tally_signs(np.array([1, 0, 1]), 2, np.array([1, 1, 0], dtype=np.uint8))
    array([[0, 1],
           [1, 1]])
    """
    if _is_bitwise(1 + (bits := (levels - 1).bit_length()), signs.size):
        planes = [*_planes(level, bits), _words(np.packbits(signs))]
        return np.array(_patterns(signs.size, None, planes)).reshape(-1, 2)[:levels]
    narrow = np.uint16 if levels < 2**15 else np.uint32
    cells = np.left_shift(level, 1, dtype=narrow, casting="unsafe")
    cells |= signs.astype(narrow)
    return tally(cells, 2 * levels).reshape(-1, 2)


def tally_signs_by_part(
    level: AnyIntegers, levels: int, signs: AnyIntegers, sizes: Integers
) -> Counts | None:
    """Return :func:`tally_signs` of each part; None if it is faster to count one part at a time.

    The result has shape (parts, `levels`, 2), or None. `level`, `signs`, shape (n,): as for
    :func:`tally_signs`; `sizes`, shape (parts,): the sizes of consecutive parts, which sum to n.

    >>> n = MIN_BITWISE_NUMBERS
    >>> level, signs = np.tile([0, 1], n // 2), np.ones(n, dtype=np.uint8)
    >>> tallies = tally_signs_by_part(level, 2, signs, np.array([n // 2, n // 2]))
    >>> tallies[1].tolist()
    [[0, 4096], [0, 4096]]
    """
    bits = (levels - 1).bit_length()
    if not _is_bitwise(1 + bits, signs.size) or signs.size < MIN_BITWISE_PART * sizes.size:
        return None
    ends = np.concatenate([[0], np.cumsum(sizes)])
    patterns: list[Words | None] = [None]
    for plane in (*_planes(level, bits), _words(np.packbits(signs))):
        split = [
            (~plane, plane) if pattern is None else (pattern & ~plane, pattern & plane)
            for pattern in patterns
        ]
        patterns = [pattern for pair in split for pattern in pair]
    tallies = [np.diff(_ones_before(ends, words)) for words in patterns if words is not None]
    return np.stack(tallies, axis=-1).reshape(len(sizes), -1, 2)[:, :levels]


def _ones_before(positions: Counts, words: Words) -> Counts:
    """Return how many ones are before each position in the bits of packed words.

    `positions`, shape (k,): from 0 to the number of bits; `words`: as :func:`_words` packs them.
    """
    ones = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum(np.bitwise_count(words), dtype=np.int64, out=ones[1:])
    word, bit = np.divmod(positions, 64)
    part = np.append(words, np.uint64(0))[word] & FIRST_BITS[bit]
    return np.asarray(ones[word] + np.bitwise_count(part))


def _is_bitwise(bits: int, size: int) -> bool:
    return bits <= MAX_BITWISE_BITS and size >= MIN_BITWISE_NUMBERS


def _planes(numbers: AnyIntegers, bits: int) -> list[Words]:
    """Return the lowest bits of all numbers as bit planes, the highest first, 64 bits in a word."""
    return [_words(np.packbits(numbers & (1 << bit))) for bit in reversed(range(bits))]


def _words(packed: NDArray[np.uint8]) -> Words:
    padded = np.zeros(-(-packed.size // 8) * 8, dtype=np.uint8)
    padded[: packed.size] = packed
    return padded.view(np.uint64)


def _patterns(size: int, among: Words | None, planes: list[Words]) -> list[int]:
    """Return how often each pattern of bits occurs, in the order of the patterns as numbers.

    Only those of the `size` numbers are counted whose bit in `among` is 1; all if it is None.
    """
    if not planes:
        return [size]
    plane, *lower_planes = planes
    ones = plane if among is None else among & plane
    number = int(np.bitwise_count(ones).sum(dtype=np.int64))
    if not lower_planes:
        return [size - number, number]
    zeros = ~plane if among is None else among ^ ones
    return _patterns(size - number, zeros, lower_planes) + _patterns(number, ones, lower_planes)


def sum_bits(rows: NDArray[np.uint8], columns: int) -> Counts:
    """Return how many rows have a one in each of the first `columns` bits, lowest bit first.

    `rows`, shape (n, bytes). The result has shape (columns,). Many rows are added 64 columns at a
    time by a carry-save adder: three words make a word of sums, and a word of carries, which count
    twice.

    >>> sum_bits(np.array([[1], [3], [5]], dtype=np.uint8), 3)
    array([3, 1, 1])
    """
    sums = np.zeros(columns, dtype=np.int64)
    while len(rows) >= MANY_ROWS:
        sums += _added_in_words(rows[:BLOCK_ROWS], columns)
        rows = rows[BLOCK_ROWS:]
    rows_at_a_time = min(255, max(1, BITS_UNPACKED_AT_A_TIME // columns))
    for start in range(0, len(rows), rows_at_a_time):
        sums += _unpacked(rows[start : start + rows_at_a_time], columns).sum(axis=0, dtype=np.uint8)
    return sums


def _unpacked(rows: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    return np.unpackbits(rows, axis=1, count=columns, bitorder="little")


def _added_in_words(rows: NDArray[np.uint8], columns: int) -> Counts:
    words, weight = _as_words(rows), 1
    sums = np.zeros(columns, dtype=np.int64)
    while len(words):
        carries = [words[:0]]
        while len(words) > LEFT_ROWS:
            third = len(words) // 3
            a, b, c = (words[i * third : (i + 1) * third] for i in range(3))
            half = a ^ b
            carry = half & c
            carry |= a & b
            carries.append(carry)
            half ^= c
            words = np.concatenate([half, words[3 * third :]])
        sums += weight * _unpacked(words.view(np.uint8), columns).sum(axis=0, dtype=np.int64)
        words, weight = np.concatenate(carries), 2 * weight
    return sums


def _as_words(rows: NDArray[np.uint8]) -> Words:
    """Return rows of bytes as rows of words, padded with zeros."""
    if rows.shape[1] % 8 == 0 and rows.flags.c_contiguous:
        return rows.view(np.uint64)
    filled = np.zeros((len(rows), -(-rows.shape[1] // 8) * 8), dtype=np.uint8)
    filled[:, : rows.shape[1]] = rows
    return filled.view(np.uint64)
