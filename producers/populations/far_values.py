"""Finds numbers that are not values: marks of missing values, clock errors, a total."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

OUTLIER_DISTANCE = 10.0
"""An outlier is farther from the other values than this many times their range."""
MIN_NINES = 3
"""Numbers of at least this many nines, such as -9999, are outliers at a tenth of that distance."""
MAX_OUTLIERS_AT_END = 5
"""The most distinct outliers at an end; these are also at most a third of all distinct values."""
MAX_MEASURED = 1e30
"""Larger numbers, such as 1e38, are outliers if there are others."""
MIN_SUMMANDS = 3
"""The least number of values of which the last may be the total of the others."""


def is_far(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which numbers are outliers at either end.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n,)
        The numbers; NaN for a missing number.

    Examples
    --------
    >>> np.flatnonzero(is_far(np.array([1.0, 3, -9999, 2, 999]))).tolist()
    [2, 4]
    >>> is_far(np.arange(9.0)).any().item(), is_far(np.array([0, 1e38])).tolist()
    (False, [False, True])
    """
    values = np.unique(numbers[~np.isnan(numbers)])
    ends = range(1 + min(MAX_OUTLIERS_AT_END, values.size // 3))
    pairs = sorted(itertools.product(ends, ends), key=sum, reverse=True)
    for low, high in pairs[:-1]:  # the last one is without outliers
        inner = values[low : values.size - high]
        above = values[values.size - high :]
        if inner.size > 1 and _is_apart(values[:low], inner) and _is_apart(-above, -inner):
            is_outlier = np.asarray((numbers < inner[0]) | (numbers > inner[-1]))
            if max(low, high) < 2 or np.median(is_outlier) == 0:
                return is_outlier
    is_huge: NDArray[np.bool_] = np.abs(numbers) > MAX_MEASURED
    return is_huge & (np.abs(values) <= MAX_MEASURED).any()


def _is_apart(outer: NDArray[np.float64], inner: NDArray[np.float64]) -> bool:
    """Return whether all `outer` values are far below the `inner` values."""
    digits = [f"{abs(value):.15g}".replace(".", "") for value in outer.tolist()]
    is_nines = all(len(text) >= MIN_NINES and not text.strip("9") for text in digits)
    times = 1 if is_nines else OUTLIER_DISTANCE
    low, high = inner.min() / 2, inner.max() / 2  # halves, so that nothing overflows
    return not outer.size or bool(low / times - outer.max() / 2 / times > high - low)


def far_numbers(numbers: NDArray[np.float64]) -> tuple[NDArray[np.bool_], list[str]]:
    """Return the outliers that :func:`is_far` finds, and notes.

    The notes are about the outliers, and about a last value that is the sum of the others.
    """
    is_outlier = is_far(numbers)
    *summands, last = numbers[~np.isnan(numbers)].tolist() or [0.0]
    is_total = (
        abs(last - sum(summands)) < 1e-6 * abs(last) > 2e-6 * max(map(abs, summands), default=0)
    )
    notes = [
        f"total: the last value, {last!r}, is the sum of the others. If it is no value, `sed '$d' "
        "FILE | dither define - ...` leaves the last line out"
    ] * (is_total and len(summands) >= MIN_SUMMANDS)
    listed = np.unique(numbers[is_outlier]).tolist()
    note = (
        f"far: {np.count_nonzero(is_outlier):,} of {np.count_nonzero(~np.isnan(numbers)):,} values "
        f"are {' and '.join(map(repr, listed))}, far from all others. If that means no value, "
        f"{' '.join(f'--missing {value!r}' for value in listed)} leaves it out"
    )
    return is_outlier, [note] * bool(listed) + notes
