"""The Walsh-Hadamard transform, for mechanisms whose codes are rows of Hadamard's matrix."""

from __future__ import annotations

import functools

import numpy as np

from estimators.estimate import Array, Bools, Counts, Floats

TRANSFORM_RADIX = 32  # the size of small matrices: 4 times as fast as 2, for a million cells


def transform(table: Counts) -> Counts:
    """Return the Walsh-Hadamard transform of each row, in integers.

    `table`, shape (rows, b): b is a power of two, and the absolute values of a row must sum to less
    than 2^53. Then doubles are exact, and products with small matrices are faster than sums and
    differences of integers. The result has shape (rows, b):
    ``result[i, r] = sum over c of H[r, c] table[i, c]``, H in Sylvester's order: H[r, c] is +1 if r
    and c share an even number of ones, else -1. It takes O(b log b) for each row.

    >>> transform(np.array([[5, 1, 2, 0]]))
    array([[8, 6, 4, 2]])
    """
    return transform_floats(table.astype(np.float64)).astype(np.int64)


def transform_floats(table: Floats) -> Floats:
    """Return the Walsh-Hadamard transform of each row of doubles, as :func:`transform` does."""
    rows, size = table.shape
    done = min(TRANSFORM_RADIX, size)
    transformed = table.reshape(-1, done) @ _matrix(done)
    while done < size:
        radix = min(TRANSFORM_RADIX, size // done)
        transformed = _matrix(radix) @ transformed.reshape(-1, radix, done)
        done *= radix
    return transformed.reshape(rows, size)


@functools.lru_cache
def _matrix(size: int) -> Floats:
    index = np.arange(size)
    return np.where(is_odd(index[:, None], index), -1.0, 1.0)


def is_odd(row: Array, column: Array) -> Bools:
    """Return whether H[row, column] is -1: if the binary numbers share an odd number of ones."""
    return (np.bitwise_count(row & column) & 1).astype(np.bool_)
