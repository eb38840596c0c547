"""Suggests ranges for the mean of a column, with their costs, and bins for its distribution."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import SeededBits
from estimators.metrics.loading import define

TAILS = (0.0, 0.001, 0.01, 0.05)
"""Shares of the values left out on either side, before rounding."""
ROUND_STEPS = (1.0, 2.0, 5.0, 10.0)
FEWEST_STEPS = 8
"""A range is at least so many times as wide as what its ends are rounded to."""
FEWEST_VALUES = 20
"""With fewer different values the ends of a range would be some of them."""
MOST_ROWS = 20_000
"""Rows on which bounds are tried; of more, their width is scaled by the root of the number."""
BINS_TAIL = 0.001
"""Share of the values outside of the bins on either side, before rounding."""
MIDDLE = 0.05
"""Between this quantile and its opposite is the middle of the values."""
WIDE = 4.0
"""Values are wide if their range is so many times that of their middle: for normal values it is
1.9, for uniform ones 1.1, for exponential ones 2.3."""
DECADES = 100.0
"""The scale of wide values is logarithmic if their high end is so many times the low one."""


@dataclasses.dataclass(frozen=True)
class Range:
    """A range, and its cost on the values of a file.

    Attributes
    ----------
    low, high : float
    inside : float
        The share of values that it does not clip.
    shift : float
        The change of the mean by clipping.
    width : float
        The width of the mean's 95% bounds from one report for each value, with equal shares of
        levels.
    """

    low: float
    high: float
    inside: float
    shift: float
    width: float

    @property
    def edges(self) -> tuple[float, float]:
        """The range in a definition."""
        return self.low, self.high

    @property
    def error(self) -> float:
        """The largest distance of an end of the bounds from the file's mean, if the bounds hold."""
        return abs(self.shift) + self.width / 2


def assess(numbers: NDArray[np.float64], low: float, high: float, levels: Sequence[float]) -> Range:
    """Return the cost of a range on some values: clipping exactly, bounds by simulation.

    Parameters
    ----------
    numbers : ndarray of float64
        The values.
    low, high : float
        The range.
    levels : sequence of float
        The epsilons on offer, in equal shares.

    Raises
    ------
    ValueError
        If the range or the levels are invalid.
    """
    clipped = np.clip(numbers, low, high)
    inside = float(((numbers >= low) & (numbers <= high)).mean())
    shift = float(clipped.mean() - numbers.mean())
    return Range(low, high, inside, shift, _width(clipped, low, high, levels))


def is_identifying(numbers: NDArray[np.float64]) -> bool:
    """Return whether a range would reveal some of the values: they are few, or hardly differ."""
    return len(np.unique(numbers)) < FEWEST_VALUES


def rank_ranges(numbers: NDArray[np.float64], levels: Sequence[float]) -> list[Range]:
    """Return ranges with rounded ends around quantiles of the values, the smallest error first.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n,)
    levels : sequence of float
        The epsilons on offer.
    """
    found = dict.fromkeys(round_range(*np.quantile(numbers, [tail, 1 - tail])) for tail in TAILS)
    return sorted((assess(numbers, *edges, levels) for edges in found), key=lambda one: one.error)


def describe(ranges: Sequence[Range], chosen: Range, rows: int, unit: str) -> list[str]:
    """Return a table of ranges in words, with the one that was chosen.

    Parameters
    ----------
    ranges : sequence of Range
        All assessed ranges.
    chosen : Range
        The range to mark, which need not be among them.
    rows : int
        The number of reports for the widths.
    unit : str
        The unit of the values, or empty.
    """
    lines = [
        f"range: what each costs with {rows:,} reports, levels alike"
        + (f", in {unit}" if unit else ""),
        f"  {'from':>10} {'to':>10} {'inside':>8} {'clipping moves the mean by':>27} "
        f"{'width of 95% bounds':>20}",
    ]
    listed = [*ranges, *([] if chosen in ranges else [chosen])]
    for one in sorted(listed, key=lambda one: one.high - one.low, reverse=True):
        mark = "  <- chosen" if one == chosen else ""
        lines.append(
            f"  {one.low:>10g} {one.high:>10g} {one.inside:>8.2%} {one.shift:>27.4g} "
            f"{one.width:>20.4g}{mark}"
        )
    return lines


def _width(clipped: NDArray[np.float64], low: float, high: float, levels: Sequence[float]) -> float:
    rows = clipped[:: -(-clipped.size // MOST_ROWS)]
    metric = define(
        name="trial", kind="mean", mechanism="auto", levels=list(levels), range=(low, high)
    )
    level = np.arange(rows.size) % len(levels)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(rows, level, SeededBits(0)))
    found = metric.estimate(statistic)
    return float((found.upper - found.lower) * math.sqrt(rows.size / clipped.size))


def round_range(low: float, high: float) -> tuple[float, float]:
    """Return a range around another one, with rounded ends.

    >>> round_range(3.2, 488.1), round_range(-0.013, 0.041), round_range(7, 7)
    ((0.0, 500.0), (-0.015, 0.045), (7.0, 7.1))
    """
    span = high - low or 1.0
    least = 10.0 ** math.floor(math.log10(span / FEWEST_STEPS))
    step = max(k * least for k in ROUND_STEPS if FEWEST_STEPS * k * least <= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    last += first == last
    digits = max(0, -math.floor(math.log10(step))) + 1
    return round(first * step, digits), round(last * step, digits)


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
    ends = np.quantile(values, [BINS_TAIL, MIDDLE, 1 - MIDDLE, 1 - BINS_TAIL])
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
    low, high = (float(q) for q in np.quantile(numbers, [BINS_TAIL, 1 - BINS_TAIL]))
    is_positive = bool(np.quantile(numbers, BINS_TAIL, method="lower") > 0)
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
