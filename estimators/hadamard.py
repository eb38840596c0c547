"""The Walsh-Hadamard transform, for mechanisms whose codes are rows of Hadamard's matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Counts


def transform(table: Counts) -> Counts:
    """Return the Walsh-Hadamard transform of each row, in integers.

    Parameters
    ----------
    table : ndarray of int64, shape (rows, b)
        b a power of two.

    Returns
    -------
    ndarray of int64, shape (rows, b)
        ``result[i, r] = sum over c of H[r, c] table[i, c]``, H in Sylvester's order: H[r, c] is +1
        where r and c share an even number of ones, -1 else. In O(b log b) a row.

    Examples
    --------
    >>> transform(np.array([[5, 1, 2, 0]]))
    array([[8, 6, 4, 2]])
    """
    result = table.astype(np.int64)
    rows, size = result.shape
    half = 1
    while half < size:
        pairs = result.reshape(rows, size // (2 * half), 2, half)
        total = pairs[:, :, 0] + pairs[:, :, 1]
        pairs[:, :, 1] = pairs[:, :, 0] - pairs[:, :, 1]
        pairs[:, :, 0] = total
        half *= 2
    return result


def is_odd(row: NDArray[Any], column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether H[row, column] is -1: whether the two share an odd number of ones."""
    odd: NDArray[np.bool_] = (np.bitwise_count(row & column) & 1).astype(np.bool_)
    return odd
