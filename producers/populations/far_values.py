"""Finds values that are far from all others: marks of a missing value, faults of a clock."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

FAR = 10.0
"""Values are far from the others if their distance is so many times the range of these."""
NINES = 3
"""Numbers of so many nines and more, such as -9999, are far at a tenth of that distance."""
MOST = 5
"""Different values at an end that may be far, if most numbers are others; at most a third."""


def is_far(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which numbers are at an end and far from all others.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n,)
        NaN where there is none.

    Examples
    --------
    >>> np.flatnonzero(is_far(np.array([1.0, 3, -9999, 2, 999]))).tolist()
    [2, 4]
    >>> np.flatnonzero(is_far(np.arange(9.0))).tolist()
    []
    """
    values = np.unique(numbers[~np.isnan(numbers)])
    ends = range(1 + min(MOST, values.size // 3))
    pairs = sorted(itertools.product(ends, ends), key=sum, reverse=True)
    for low, high in pairs:
        inner = values[low : values.size - high]
        above = values[values.size - high :]
        if inner.size > 1 and _is_apart(values[:low], inner) and _is_apart(-above, -inner):
            far = np.asarray((numbers < inner[0]) | (numbers > inner[-1]))
            if max(low, high) < 2 or np.median(far) == 0:
                return far
    return np.zeros(numbers.shape, dtype=bool)


def _is_apart(outer: NDArray[np.float64], inner: NDArray[np.float64]) -> bool:
    """Return whether lower values are far from higher ones."""
    digits = [f"{abs(value):.15g}".replace(".", "") for value in outer.tolist()]
    is_nines = all(len(text) >= NINES and not text.strip("9") for text in digits)
    times = 2 * (1 if is_nines else FAR)  # halves of all numbers, so that nothing overflows
    width = inner.max() / 2 - inner.min() / 2
    return not outer.size or bool(inner.min() / times - outer.max() / times > width)


def far_numbers(numbers: NDArray[np.float64]) -> tuple[NDArray[np.bool_], list[str]]:
    """Return which numbers are far from all others, and a note on them.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n,)
        NaN where there is none.
    """
    far = is_far(numbers)
    listed = np.unique(numbers[far]).tolist()
    note = (
        f"far: {np.count_nonzero(far):,} of {np.count_nonzero(~np.isnan(numbers)):,} values are "
        f"{' and '.join(map(repr, listed))}, far from all others. If that means no value, "
        f"{' '.join(f'--missing {value!r}' for value in listed)} leaves it out"
    )
    return far, [note] if listed else []
