"""Finds values that are far from all others: marks of a missing value, faults of a clock."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

FAR = 10.0
"""Values are far from the others if their distance is so many times the range of these."""
NINES = 999
"""From here on numbers of nines alone, such as -9999, are far at a tenth of that distance."""
MANY = 10
"""Of so many different values two at an end may be far, of fewer one."""


def is_far(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which numbers are at an end and far from all others.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n,)
        NaN where there is none.

    Examples
    --------
    >>> is_far(np.array([1.0, 3, -9999, 2, 999])).tolist(), is_far(np.arange(9.0)).any()
    ([False, False, True, False, True], False)
    """
    values = np.unique(numbers[~np.isnan(numbers)])
    ends = range(2 + (values.size >= MANY))
    pairs = sorted(itertools.product(ends, ends), key=sum, reverse=True)
    for low, high in pairs:
        inner = values[low : values.size - high]
        above = values[values.size - high :]
        if inner.size > 1 and _is_apart(values[:low], inner) and _is_apart(-above, -inner):
            return (numbers < inner[0]) | (numbers > inner[-1])
    return np.zeros(numbers.shape, dtype=bool)


def _is_apart(outer: NDArray[np.float64], inner: NDArray[np.float64]) -> bool:
    """Return whether lower values are far from higher ones."""
    is_nines = all(abs(v) >= NINES and not f"{abs(v):.0f}".strip("9") for v in outer)
    times = 2 * (1 if is_nines else FAR)  # halves of all numbers, so that nothing overflows
    return not outer.size or inner.min() / times - outer.max() / times > np.ptp(inner / 2)


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
