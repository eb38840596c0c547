"""Suggests ranges for the mean of a column, with their cost in clipped values and wider bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

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
