"""Suggests bins for the distribution of a column, and says whether a mean would hide too much."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.populations.suggested_ranges import round_range

TAIL = 0.001
"""Share of the values left out on either side, before rounding."""
MIDDLE = 0.05
"""Between this quantile and its opposite is the middle of the values."""
WIDE = 4.0
"""Values are wide if their range is so many times that of their middle: for normal values it is
1.9, for uniform ones 1.1, for exponential ones 2.3."""
DECADES = 100.0
"""The scale of wide values is logarithmic if their high end is so many times the low one."""


class SuggestedBins(NamedTuple):
    """The keys of a definition, and why they were chosen."""

    keys: dict[str, object]
    note: str


def is_wide(numbers: NDArray[np.float64], within: tuple[float, float] | None) -> bool:
    """Return whether most of the range of some values is their tails'.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n,)
    within : (float, float) or None
        The range to which they are clipped.

    Examples
    --------
    >>> latency = np.exp(np.random.default_rng(1).normal(5, 1, 10_000))
    >>> is_wide(latency, None), is_wide(latency, (0, 1000)), is_wide(np.log(latency), None)
    (True, False, False)
    """
    values = numbers if within is None else np.clip(numbers, *within)
    ends = np.quantile(values, [TAIL, MIDDLE, 1 - MIDDLE, 1 - TAIL])
    return bool(ends[3] - ends[0] >= WIDE * (ends[2] - ends[1]) > 0)


def suggest_bins(numbers: NDArray[np.float64], within: tuple[float, float] | None) -> SuggestedBins:
    """Return the range and the scale of bins that suit some values.

    The ends come from rounded quantiles, like those of a mean's range: no value gets into them.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n,)
        With at least 20 different numbers, unless a range is given.
    within : (float, float) or None
        A range that was asked for.
    """
    low, high = (float(q) for q in np.quantile(numbers, [TAIL, 1 - TAIL]))
    is_positive = bool(np.quantile(numbers, TAIL, method="lower") > 0)
    if within is not None:
        low, high = within
    is_log = is_positive and low > 0 and high >= DECADES * low and is_wide(numbers, None)
    if within is None:
        low, high = (_down(low), _up(high)) if is_log else round_range(low, high)
    inside = float(((numbers >= low) & (numbers <= high)).mean())
    scale, why = "linear", "of equal width"
    reason = (
        f"the values have no long tails, are not above 0, or span less than a factor of {DECADES:g}"
    )
    if is_log:
        scale, why = "log", "each wider than the one before by the same factor"
        reason = f"the values have long tails, are above 0 and span a factor of {high / low:.3g}"
    keys: dict[str, object] = {"range": [low, high]}
    if is_log:
        keys["scale"] = scale
    return SuggestedBins(
        keys,
        f"bins: from {low:g} to {high:g}, {why} (scale {scale!r}), because {reason}; {inside:.2%} "
        "of the values are inside, others count in the end bins",
    )


def _down(value: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is at most a value above 0.

    >>> _down(3.2), _down(0.05), _down(999)
    (2.0, 0.05, 500.0)
    """
    return max(step for step in _steps(value) if step <= value)


def _up(value: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least a value above 0.

    >>> _up(3.2), _up(501)
    (5.0, 1000.0)
    """
    return min(step for step in _steps(value) if step >= value)


def _steps(value: float) -> list[float]:
    power = math.floor(math.log10(value))
    return [float(f"{k}e{power + shift}") for shift in (-1, 0, 1) for k in (1, 2, 5)]
