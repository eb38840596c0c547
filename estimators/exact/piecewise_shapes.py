"""Windows of neighbouring symbols: the family that holds the best mechanism for one number.

M symbols in a row have ascending numbers. Each input has a window of W neighbouring symbols. A
symbol of the window is reported with just below e^epsilon times the probability of a symbol outside
it. Members of the family have worst-case variances as close to the least possible as one likes:
theorem 2 of docs/proofs/mechanisms.md.

Privacy depends only on M, W and the threshold, because the numbers of the symbols are applied to
the report.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np

from estimators.estimate import Floats
from estimators.exact.thresholds import WORD, at_exp, miss_threshold

MOST_SYMBOLS = 255
"""M is at most this, so that a report takes one byte."""
FEWEST_MOST_SYMBOLS = 64
"""The least limit on M that a metric may set, so that the shapes of the table fit."""
LARGEST_COMPUTED_NUMBER = 9999
"""The number of the last symbol of a shape that is computed."""
ASYMPTOTIC_EPSILON = Fraction(28, 5)
"""From this epsilon on, shapes are computed and not looked up."""
MANY_SYMBOLS = 20
"""From so many symbols on, sums of neighbours are quicker than a product of matrices, for which
OpenBLAS may start threads that wait in a loop."""
LAST_SHAPE_EPSILON = Fraction(129, 10)
"""From this epsilon on, M and W do not change."""


@dataclasses.dataclass(frozen=True)
class WindowShape:
    """The mechanism of one privacy level: a threshold, a window, and the symbols' numbers.

    `threshold`: T: a report is outside the window if a uniform 64-bit word is below T; `window`: W,
    at least 1 and below M; `z`: the numbers of the M symbols: antisymmetric, ascending, of absolute
    values below 2^15, each larger than the number W symbols before it. Window s = 0 to M - W has
    the symbols s to s + W - 1. Its input is the knot x_s = Z_s / Z_(M-W), where Z_s is the sum of
    the window's numbers. An input between two knots is rounded to one at random, without bias.
    The report j gives the estimate y_j = z_j / c with c = (inside - outside) Z_(M-W), which is
    unbiased because the numbers sum to zero.

    >>> shape = shape_at(Fraction(1, 10))
    >>> shape.z, shape.window, round(float(shape.worst_variance), 2)
    ((-1, 1), 1, 400.67)
    >>> shape = shape_at(Fraction(4))
    >>> shape.symbols, shape.window, round(float(shape.worst_variance), 4)
    (30, 8, 0.1285)
    """

    threshold: int
    window: int
    z: tuple[int, ...]

    @property
    def symbols(self) -> int:
        """M, the number of symbols."""
        return len(self.z)

    @property
    def windows(self) -> int:
        """M - W + 1, the number of windows and of knots."""
        return len(self.z) - self.window + 1

    @functools.cached_property
    def inside(self) -> Fraction:
        """The probability of each symbol of the window."""
        return Fraction(WORD - self.threshold, WORD * self.window)

    @functools.cached_property
    def outside(self) -> Fraction:
        """The probability of each symbol outside the window."""
        return Fraction(self.threshold, WORD * (self.symbols - self.window))

    @property
    def privacy_ratio(self) -> Fraction:
        """The largest ratio of the probabilities of a report under two inputs."""
        return self.inside / self.outside

    @functools.cached_property
    def sums(self) -> tuple[int, ...]:
        """Z_s: the sums of the windows' numbers, ascending."""
        return _window_sums(self.z, self.window)

    @functools.cached_property
    def exact_knots(self) -> tuple[Fraction, ...]:
        """x_s: the inputs that stand for the windows, from -1 to 1."""
        return tuple(Fraction(total, self.sums[-1]) for total in self.sums)

    @functools.cached_property
    def knots(self) -> Floats:
        """x_s as doubles, shape (M - W + 1,)."""
        return np.array(self.sums) / self.sums[-1]

    @functools.cached_property
    def scale(self) -> Fraction:
        """c: a report of the symbol j stands for z_j / c."""
        return (self.inside - self.outside) * self.sums[-1]

    @functools.cached_property
    def values(self) -> Floats:
        """y_j: the number that each symbol stands for, shape (M,)."""
        return np.array([float(z / self.scale) for z in self.z])

    @functools.cached_property
    def exact_squares(self) -> tuple[Fraction, ...]:
        """E[y^2] of a report y at each knot."""
        every = self.outside * sum(z * z for z in self.z)
        extra, scale = self.inside - self.outside, self.scale**2
        window_squares = _window_sums(tuple(z * z for z in self.z), self.window)
        return tuple((every + extra * total) / scale for total in window_squares)

    @functools.cached_property
    def noise(self) -> Floats:
        """F_s: the variance of a report at each knot, shape (M - W + 1,)."""
        pairs = zip(self.exact_squares, self.exact_knots, strict=True)
        return np.array([float(square - x * x) for square, x in pairs])

    @functools.cached_property
    def worst_variance(self) -> Fraction:
        """The largest variance of a report over all inputs in [-1, 1], rounding included.

        Between two knots E[y^2] is a line in x, so the variance is a concave parabola.
        """
        knots, squares = self.exact_knots, self.exact_squares
        worst = max(square - x * x for square, x in zip(squares, knots, strict=True))
        pieces = itertools.pairwise(zip(knots, squares, strict=True))
        for (left, at_left), (right, at_right) in pieces:
            slope = (at_right - at_left) / (right - left)
            if left < slope / 2 < right:
                worst = max(worst, at_left + slope * (slope / 2 - left) - slope * slope / 4)
        return worst

    @functools.cached_property
    def chances(self) -> Floats:
        """P(j | x_s): the probability of each symbol given each knot, shape (M - W + 1, M)."""
        rank = np.arange(self.symbols) - np.arange(self.windows)[:, None]
        is_inside = (rank >= 0) & (rank < self.window)
        return np.where(is_inside, float(self.inside), float(self.outside))

    def knot_means(self, terms: Floats) -> Floats:
        """Return the means of terms of the symbols given each knot, shape (..., M - W + 1, k).

        `terms`, shape (..., M, k).
        """
        if self.symbols < MANY_SYMBOLS:
            return self.chances @ terms
        chance_outside, gain = self._chance_parts
        means = sums_of_neighbours(terms, self.window) * gain
        means += chance_outside * terms.sum(axis=-2, keepdims=True)
        return means

    @functools.cached_property
    def _chance_parts(self) -> tuple[float, float]:
        return float(self.outside), float(self.inside - self.outside)


@functools.lru_cache(maxsize=1024)
def shape_at(epsilon: Fraction, symbols: int = MOST_SYMBOLS) -> WindowShape:
    """Return the shape for a privacy level: its worst variance is at most 5% above the least.

    `epsilon`: above 0; `symbols`: the largest M, at least 64. Below epsilon 5.6 shapes are looked
    up. From 5.6 on z_j is in proportion to sin(2.6 (j / (M-1) - 1/2)), with nearly the same
    variance at every knot. Below 0.42 a shape has two symbols, as in randomized response.

    Raises ValueError if `symbols` is not 64 to 255.

    >>> [(shape_at(Fraction(e)).symbols, shape_at(Fraction(e)).window) for e in (1, 6, 10, 20)]
    [(18, 8), (50, 8), (192, 8), (253, 4)]
    >>> shape_at(Fraction(10), 128).symbols
    96
    """
    if not FEWEST_MOST_SYMBOLS <= symbols <= MOST_SYMBOLS:
        expected = f"expected {FEWEST_MOST_SYMBOLS} to {MOST_SYMBOLS}"
        raise ValueError(f"symbols = {symbols}: {expected}")
    if epsilon < ASYMPTOTIC_EPSILON:
        _, window, z = next(row for row in reversed(_table()) if row[0] <= epsilon)
    else:
        window, z = _asymptotic(min(epsilon, LAST_SHAPE_EPSILON), symbols)
    return WindowShape(miss_threshold(epsilon, window, len(z) - window), window, z)


def two_symbols(epsilon: Fraction) -> WindowShape:
    """Return randomized response as a shape: two symbols, a window of one."""
    return WindowShape(miss_threshold(epsilon, 1, 1), 1, (-1, 1))


def _asymptotic(epsilon: Fraction, max_symbols: int) -> tuple[int, tuple[int, ...]]:
    """Return the window and numbers for a large epsilon; W is smaller if M would be too large."""

    def symbols_for(window: int) -> int:
        return at_exp(epsilon / 3, lambda e: math.floor(Fraction(86 * window, 100) * e))

    window = next((w for w in (8, 6) if symbols_for(w) <= max_symbols), 4)
    symbols = min(symbols_for(window), max_symbols)
    angles = [1.3 * (2 * j - symbols + 1) / (symbols - 1) for j in range(symbols)]
    return window, tuple(round(LARGEST_COMPUTED_NUMBER * math.sin(angle)) for angle in angles)


@functools.cache
def _table() -> list[tuple[Fraction, int, tuple[int, ...]]]:
    """Return the rows of the table: the least epsilon, the window and the numbers."""
    text = Path(__file__).with_name("window_shapes.json").read_text()
    rows = []
    for row in json.loads(text):
        upper = row["upper_half"]
        middle = [0] * (row["symbols"] % 2)
        z = (*(-number for number in reversed(upper)), *middle, *upper)
        rows.append((Fraction(row["from"]), int(row["window"]), z))
    return rows


def _window_sums(numbers: tuple[int, ...], window: int) -> tuple[int, ...]:
    ends = list(itertools.accumulate(numbers, initial=0))
    return tuple(end - start for start, end in zip(ends, ends[window:], strict=False))


def sums_of_neighbours(terms: Floats, count: int) -> Floats:
    """Return the sums of `count` neighbours along the last axis but one."""
    if count == 1:
        return terms
    half = count // 2
    sums = sums_of_neighbours(terms, half)
    sums = sums[..., :-half, :] + sums[..., half:, :]
    return sums[..., :-1, :] + terms[..., 2 * half :, :] if count % 2 else sums
