"""The growth of a report's exponential moments: Theorem 2 of docs/proofs/ranked-directions.md."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.ranked_directions.candidates import Candidates
from estimators.estimate import Bools, Floats, Indices

T = TypeVar("T", np.float64, np.complex128)

SQUARE_CELLS = 160
"""Cells of c^2 in [0, 1]: in each the mean square of a coordinate changes by about 1%."""
SERIES_ORDER = 128  # terms of the power series, enough for the largest tilt
MAX_REPORT_TILT = 5.0
"""The largest tilt of a report over sqrt(d): larger tilts help only if there are few reports."""


@dataclasses.dataclass(frozen=True)
class ReportLaw:
    """The law of a report's score, and the growth of its exponential moments.

    `dimension`, `candidates`, `chosen`: d, k and W; d is at least 2; `inside`, `outside`: the
    probability of each of the best W candidates, and of each other candidate.
    """

    dimension: int
    candidates: int
    chosen: int
    inside: float
    outside: float

    @functools.cached_property
    def scores(self) -> tuple[Floats, Floats, Floats]:
        """Nodes z in (0, 1), and the probabilities of the scores z and -z."""
        ranked = Candidates(self.dimension, self.candidates, self.chosen)
        z, weight, _ = ranked.rule
        below = weight * (self.candidates * self.outside / 2)
        gain = (self.inside - self.outside) * self.candidates / 2
        return z, below + weight * gain * ranked.chances_inside(), below

    @functools.cached_property
    def mean(self) -> float:
        """m, the mean score; a report B u with B = 1 / m is unbiased."""
        ranked = Candidates(self.dimension, self.candidates, self.chosen)
        return float((self.inside - self.outside) * ranked.best_scores()[-1])

    def density(self, score: Floats) -> Floats:
        """Return the density of scores with respect to the uniform law of directions."""
        ranked = Candidates(self.dimension, self.candidates, self.chosen)
        chance_inside = np.interp(np.abs(score), ranked.rule[0], ranked.chances_inside())
        gain = np.where(score > 0, (self.inside - self.outside) * chance_inside, 0.0)
        return self.candidates * (self.outside + gain)

    @functools.cached_property
    def mean_squares(self) -> tuple[float, float]:
        """E[<u, e>^2] for a unit vector e orthogonal to v, and for e = v: at c = 0 and c = 1."""
        z, above, below = self.scores
        along = float((above + below) @ z**2)
        return (1 - along) / (self.dimension - 1), along

    def variances(self, unit: float) -> Floats:
        """Return bounds on a coordinate's mean square for each c^2 of `squares`, with rounding."""
        low, high = self.mean_squares
        return low + (high - low) * self.squares + unit**2 / 4

    @functools.cached_property
    def squares(self) -> Floats:
        """Values of c^2 from 0 to 1, closer where the mean square changes more.

        The shape is (SQUARE_CELLS + 1,).
        """
        low, high = self.mean_squares
        ratio = max(high / low - 1, 1e-6)
        return np.minimum(
            np.expm1(np.linspace(0, 1, SQUARE_CELLS + 1) * math.log1p(ratio)) / ratio, 1.0
        )

    @functools.cached_property
    def moments(self) -> Floats:
        """E[<u, e>^q | c] d^(q/2) / q! from q = 2 on, shape (SERIES_ORDER - 1, SQUARE_CELLS + 1).

        They follow from the binomial theorem for <u, e>^q; every term is at least 0 for c >= 0.
        """
        d, c = self.dimension, np.sqrt(self.squares)
        z, above, below = self.scores
        orders = np.arange(SERIES_ORDER + 1)
        factorial = np.array([math.lgamma(q + 1) for q in orders.tolist()])
        with np.errstate(divide="ignore"):
            log_z = np.log(z * math.sqrt(d))
        power = np.exp(orders[:, None] * log_z - factorial[:, None])
        signed_power = power * np.where(orders[:, None] % 2, above - below, above + below)
        log_side = np.log(np.maximum(d * (1 - z) * (1 + z), 1e-300))
        total = np.zeros((SERIES_ORDER + 1, c.size))
        c_power = c ** orders[:, None]
        log_even = 0.0  # ln E O^j
        for j in range(0, SERIES_ORDER + 1, 2):
            side_power = np.exp(j / 2 * log_side + (log_even - factorial[j]))
            score_moment = signed_power[: SERIES_ORDER + 1 - j] @ side_power
            total[j:] += (
                score_moment[:, None]
                * c_power[: SERIES_ORDER + 1 - j]
                * (1 - self.squares) ** (j // 2)
            )
            log_even += math.log((j + 1) / (d - 1 + j))
        return total[2:]

    @functools.cached_property
    def largest_moments(self) -> Floats:
        """The largest moments for any c^2 up to that of each column; shape of `moments`."""
        return np.maximum.accumulate(self.moments, axis=1)

    @functools.cached_property
    def majorants(self) -> Floats:
        """The least concave functions above `largest_moments`, at `squares`; shape of `moments`."""
        steps = self.largest_moments
        steps = np.concatenate([steps[:, 1:], steps[:, -1:]], axis=1)
        return concave_majorants(self.squares, steps)

    def growth(self, tilt: Floats, columns: Indices) -> Floats:
        """Return upper bounds on the mean of r(tilt, c) over users, shape (tilts, columns).

        `tilt`: from 0 to MAX_REPORT_TILT sqrt(d); `columns`: column i is for users whose mean c^2
        is at most `squares[i]`.
        """
        return self._powers(tilt) @ self.majorants[:, columns]

    def growth_of_single_square(self, tilt: Floats) -> Floats:
        """Return bounds on r(tilt, c) for all c^2 up to each of `squares`.

        The shape is (tilts, SQUARE_CELLS + 1).
        """
        return self._powers(tilt) @ self.largest_moments

    def _powers(self, tilt: Floats) -> Floats:
        """Return powers 2 to SERIES_ORDER of tilt / sqrt(d), shape (tilts, SERIES_ORDER - 1)."""
        return powers_of(tilt / math.sqrt(self.dimension), SERIES_ORDER + 1)[:, 2:]

    @functools.cached_property
    def log_cells(self) -> Floats:
        """Upper bounds on ln P(c^2 in a cell): Theorem 5 of docs/proofs/ranked-directions.md."""
        from scipy.special import betainc, betaincc

        half, start = (self.dimension - 1) / 2, self.squares[:-1]
        below, above = (f(0.5, half, self.squares) for f in (betainc, betaincc))
        cells = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
        return np.minimum(np.log(np.maximum(cells, 1e-290)), half * np.log1p(-start))

    # Theorem 3 of docs/proofs/ranked-directions.md
    def fourth_moment_line(self, unit: float) -> tuple[float, float]:
        """Return a, b with E V^2 <= a + b E u_j^2, where V is the square of the rounded u_j.

        `unit`: the step of the grid to which u_j is rounded.
        """
        low, high = self.mean_squares
        fourth = self.moments[2] * (24 / self.dimension**2)
        slope = float(fourth[-1] - fourth[0])
        base = float((fourth - slope * self.squares).max()) * (1 + 1e-9)
        if high - low < 1e-9 * low:  # E u^2 hardly depends on c^2
            return float(fourth.max()) + 0.28 * unit**4, 1.7 * unit**2
        steep = slope / (high - low)
        return base - steep * low + 0.28 * unit**4, steep + 1.7 * unit**2

    def column_of(self, squares: Floats) -> Indices:
        """Return the first column of :meth:`growth` that is valid for each of these c^2."""
        return np.minimum(np.searchsorted(self.squares, squares), SQUARE_CELLS)


report_law = functools.lru_cache(maxsize=128)(ReportLaw)
"""Return a :class:`ReportLaw`; equal arguments give the same object, with cached properties."""


def powers_of(x: NDArray[T], count: int) -> NDArray[T]:
    """Return the powers 0 to count - 1 of numbers, shape (numbers, count)."""
    table = np.repeat(x[:, None], count, axis=1)
    table[:, 0] = 1
    return np.multiply.accumulate(table, axis=1, out=table)


def concave_majorants(x: Floats, y: Floats) -> Floats:
    """Return the least concave functions above points, at x, shape of `y`.

    Points that are not above a chord of others are left out until none is. `x`, shape (points,):
    ascending; `y`, shape (rows, points).

    >>> concave_majorants(np.arange(5.0), np.array([[0.0, 0.0, 4.0, 5.0, 0.0]]))
    array([[0., 2., 4., 5., 0.]])
    """
    last, is_corner, rows = x.size - 1, np.ones(y.shape, dtype=np.bool_), np.arange(len(y))
    while rows.size:
        left, right = _corners(is_corner[rows])
        left, right, points = left[:, :-2], right[:, 2:], y[rows]
        start = np.take_along_axis(points, left, axis=1)
        rise, run = points[:, 1:-1] - start, x[1:-1] - x[left]
        end = np.take_along_axis(points, right, axis=1)
        is_below = rise * (x[right] - x[left]) <= (end - start) * run
        is_below |= rise * (x[last] - x[left]) <= (points[:, -1:] - start) * run
        is_below &= is_corner[rows, 1:-1]
        is_corner[rows, 1:-1] &= ~is_below
        rows = rows[is_below.any(axis=1)]
    left, right = _corners(is_corner)
    start, end = (np.take_along_axis(y, side, axis=1) for side in (left, right))
    majorants: Floats = start + (end - start) * (x - x[left]) / np.maximum(
        x[right] - x[left], 1e-300
    )
    return majorants


def _corners(is_corner: Bools) -> tuple[Indices, Indices]:
    """Return the index of the nearest corner to the left and to the right, both inclusive."""
    index = np.arange(is_corner.shape[1])
    left = np.maximum.accumulate(np.where(is_corner, index, 0), axis=1)
    right = np.where(is_corner, index, index.size - 1)[:, ::-1]
    return left, np.minimum.accumulate(right, axis=1)[:, ::-1]
