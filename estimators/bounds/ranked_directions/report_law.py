"""The growth of a report's exponential moments: Theorem 2 of docs/proofs/ranked-directions.md."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.ranked_directions.candidates import Candidates
from estimators.estimate import Bools, Floats, Indices

T = TypeVar("T", np.float64, np.complex128)

SQUARE_CELLS = 160
"""Cells of c^2 in [0, 1]: in each the mean square of a coordinate changes by about 1%."""
SERIES_ORDERS = 17, 25, 33, 49, 65, 97, 129
"""Orders at which a power series may end; the last one is enough for the largest tilt."""
SERIES_TOGETHER = 16  # series whose majorants are computed together: as much as a cache holds
MIN_SERIES_TERM = 1e-16  # the least term of a power series that is added, in units of the largest
MAX_REPORT_TILT = 5.0
"""The largest tilt of a report over sqrt(d): larger tilts help only if there are few reports."""


@dataclasses.dataclass(eq=False)
class PowerSeries:
    """The coefficients from t^2 on of power series in t / sqrt(d), for some values of c^2.

    `squares`, shape (k,): the values of c^2, ascending; `moments`, shape (orders, k): E[<u, e>^q |
    c] d^(q/2) / q!; `majorants`: from :func:`majorants_of`.
    """

    squares: Floats
    moments: Floats
    majorants: Floats | None = None

    @functools.cached_property
    def largest(self) -> Floats:
        """The largest moments for any c^2 up to that of each column."""
        return np.maximum.accumulate(self.moments, axis=1)


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
    def _ranked(self) -> Candidates:
        return Candidates(self.dimension, self.candidates, self.chosen)

    @functools.cached_property
    def scores(self) -> tuple[Floats, Floats, Floats]:
        """Nodes z in (0, 1), and the probabilities of the scores z and -z."""
        z, weight, _ = self._ranked.rule
        below = weight * (self.candidates * self.outside / 2)
        gain = (self.inside - self.outside) * self.candidates / 2
        return z, below + weight * gain * self._ranked.chances_inside(), below

    @functools.cached_property
    def mean(self) -> float:
        """m, the mean score; a report B u with B = 1 / m is unbiased."""
        return float((self.inside - self.outside) * self._ranked.best_scores()[-1])

    def density(self, score: Floats) -> Floats:
        """Return the density of scores with respect to the uniform law of directions."""
        ranked = self._ranked
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
    def _series(self) -> dict[int, PowerSeries]:
        """The power series that have been computed, by their order."""
        return {}

    @functools.cached_property
    def _extreme_moments(self) -> dict[int, Floats]:
        """The moments at c = 1 from q = 2 on that have been computed, by their order."""
        return {}

    def series(self, tilt: float) -> PowerSeries:
        """Return power series that have all terms that matter at tilts up to `tilt`."""
        relative = np.array([tilt / math.sqrt(self.dimension)])
        order = SERIES_ORDERS[0]
        for order in SERIES_ORDERS:
            if order not in self._extreme_moments:
                at_one = self._score_moments(order, np.ones((1, 1)))[..., 0].T.ravel()[2:]
                self._extreme_moments[order] = at_one
            terms = powers_of(relative, order + 1)[0, 2:] * self._extreme_moments[order]
            # every second term is at most tilt^2 / ((q + 1) (q + 2)) times the term before
            next_term = terms[-2:].max() * tilt**2 / order**2
            if tilt < order and next_term <= MIN_SERIES_TERM * terms.max():
                break
        return self._series_up_to(order)

    def _series_up_to(self, order: int) -> PowerSeries:
        if order not in self._series:
            self._series[order] = PowerSeries(self.squares, self._moments(order))
        return self._series[order]

    def _score_moments(self, order: int, factors: Floats) -> Floats:
        """Return E[Z^q f(Z)] d^(q/2) / q! at [p, m, i], for q = 2 m + p and factor i.

        `order`: the largest q, odd; `factors`, shape (k, nodes): f at the nodes of `scores`.
        """
        z, above, below = self.scores
        steps = z * math.sqrt(self.dimension) / np.arange(1.0, order + 1)[:, None]
        powers = np.multiply.accumulate(np.concatenate([np.ones((1, z.size)), steps]), axis=0)
        weights = np.stack([above + below, above - below])[:, None]
        moments: Floats = np.stack([powers[::2], powers[1::2]]) @ (factors * weights).swapaxes(1, 2)
        return moments

    def _moments(self, order: int) -> Floats:
        """Return E[<u, e>^q | c] d^(q/2) / q! from q = 2 up to `order`, which is odd.

        They follow from the binomial theorem for <u, e>^q; every term is at least 0 for c >= 0.
        """
        d, z, half = self.dimension, self.scores[0], np.arange(order // 2 + 1)
        # the means of (d^(1/2) (1 - Z^2)^(1/2) O)^j / j! given Z, for even j
        steps = d * (1 - z) * (1 + z) / ((d + 2 * half - 1) * (2 * half + 2.0))[:-1, None]
        sides = np.multiply.accumulate(np.concatenate([np.ones((1, z.size)), steps]), axis=0)
        score_moments = self._score_moments(order, sides)
        along, across = (powers_of(x, half.size).T for x in (self.squares, 1 - self.squares))
        total = np.empty((half.size, 2, self.squares.size))  # of q = 2 m + 0 and 2 m + 1
        for m in half.tolist():
            side = half[: m + 1]
            total[m] = score_moments[:, m - side, side] @ (along[m::-1] * across[: m + 1])
        total[:, 1] *= np.sqrt(self.squares)
        return total.reshape(order + 1, -1)[2:]

    def growth(self, tilt: Floats, columns: Indices) -> Floats:
        """Return upper bounds on the mean of r(tilt, c) over users, shape (tilts, columns).

        `tilt`: from 0 to MAX_REPORT_TILT sqrt(d); `columns`: column i is for users whose mean c^2
        is at most `squares[i]`.
        """
        return evaluate_series(
            self.dimension, tilt, majorants_of([self.series(float(tilt.max()))])[0][:, columns]
        )

    def growth_of_single_square(self, tilt: Floats) -> Floats:
        """Return bounds on r(tilt, c) for all c^2 up to each of `squares`.

        The shape is (tilts, SQUARE_CELLS + 1).
        """
        return evaluate_series(self.dimension, tilt, self.series(float(tilt.max())).largest)

    @functools.cached_property
    def log_cells(self) -> Floats:
        """Upper bounds on ln P(c^2 in a cell): Theorem 5 of docs/proofs/ranked-directions.md."""
        from scipy.special import betainc, betaincc

        half, start = (self.dimension - 1) / 2, self.squares[:-1]
        below = betainc(0.5, half, self.squares)
        cells, rare = np.diff(below), np.flatnonzero(below[1:] >= 0.5)
        cells[rare] = -np.diff(betaincc(0.5, half, self.squares[rare[0] :]))
        return np.minimum(np.log(np.maximum(cells, 1e-290)), half * np.log1p(-start))

    @functools.cached_property
    def first_moments(self) -> Floats:
        """Bounds on E[<u, e>^q] d^(q/2) / q! for q = 2, 3 and 4 and each of `squares`."""
        return self._series_up_to(SERIES_ORDERS[0]).largest[:3]

    # Theorem 3 of docs/proofs/ranked-directions.md
    def fourth_moment_line(self, unit: float) -> tuple[float, float]:
        """Return a, b with E V^2 <= a + b E u_j^2, where V is the square of the rounded u_j.

        `unit`: the step of the grid to which u_j is rounded.
        """
        low, high = self.mean_squares
        fourth = self._series_up_to(SERIES_ORDERS[0]).moments[2] * (24 / self.dimension**2)
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


def evaluate_series(dimension: int, tilt: Floats, coefficients: Floats) -> Floats:
    """Return the sums of power series in tilt / sqrt(d) from the square on, (tilts, columns).

    `dimension`: d; `tilt`, shape (tilts,); `coefficients`, shape (orders, columns).
    """
    order = len(coefficients) + 1
    return powers_of(tilt / math.sqrt(dimension), order + 1)[:, 2:] @ coefficients


def powers_of(x: NDArray[T], count: int) -> NDArray[T]:
    """Return the powers 0 to count - 1 of numbers, shape (numbers, count)."""
    table = np.repeat(x[:, None], count, axis=1)
    table[:, 0] = 1
    return np.multiply.accumulate(table, axis=1, out=table)


def majorants_of(series: Sequence[PowerSeries]) -> list[Floats]:
    """Return for each series the least concave functions above the largest moments of cells.

    They are computed for all series together, and kept.
    """
    pending = [x for x in series if x.majorants is None]
    for start in range(0, len(pending), SERIES_TOGETHER):
        part = pending[start : start + SERIES_TOGETHER]
        squares = [np.broadcast_to(x.squares, x.moments.shape) for x in part]
        steps = [np.concatenate([x.largest[:, 1:], x.largest[:, -1:]], axis=1) for x in part]
        rows = np.cumsum([len(x) for x in steps])[:-1]
        majorants = concave_majorants(np.concatenate(squares), np.concatenate(steps))
        for x, of_series in zip(part, np.split(majorants, rows), strict=True):
            x.majorants = of_series
    return [x.majorants for x in series if x.majorants is not None]


def concave_majorants(x: Floats, y: Floats) -> Floats:
    """Return the least concave functions above points, at x, shape of `y`.

    Points on or below a chord between two others are removed until all are above. `x`, `y`, shape
    (rows, points): x ascends in each row.

    >>> concave_majorants(np.arange(5.0)[None], np.array([[0.0, 0.0, 4.0, 5.0, 0.0]]))
    array([[0., 2., 4., 5., 0.]])
    """
    count, rows = x.shape[1], np.arange(len(x))
    steepest = ((y[:, :0:-1] - y[:, :1]) / (x[:, :0:-1] - x[:, :1])).argmax(axis=1)
    is_corner = np.arange(count) >= count - 1 - steepest[:, None]
    is_corner[:, 0] = True
    while rows.size:
        of_rows, points, inner = x[rows], y[rows], is_corner[rows, 1:-1]
        left, right = _corners(is_corner[rows])
        begin, end = of_rows.ravel()[left[:, :-2]], of_rows.ravel()[right[:, 2:]]
        start, stop = points.ravel()[left[:, :-2]], points.ravel()[right[:, 2:]]
        rise, run = points[:, 1:-1] - start, of_rows[:, 1:-1] - begin
        is_below = inner & (rise * (end - begin) <= (stop - start) * run)
        is_corner[rows, 1:-1] = inner & ~is_below
        rows = rows[is_below.any(axis=1)]
    left, right = _corners(is_corner)
    begin, start = x.ravel()[left], y.ravel()[left]
    slope = (y.ravel()[right] - start) / np.maximum(x.ravel()[right] - begin, 1e-300)
    majorants: Floats = start + slope * (x - begin)
    return majorants


def _corners(is_corner: Bools) -> tuple[Indices, Indices]:
    """Return the nearest corner to the left and right, inclusive, as indices of the flat array."""
    rows, count = is_corner.shape
    column, first = np.arange(count), count * np.arange(rows)[:, None]
    left = np.maximum.accumulate(np.where(is_corner, column, 0), axis=1)
    right = np.where(is_corner, column, count - 1)[:, ::-1]
    return first + left, first + np.minimum.accumulate(right, axis=1)[:, ::-1]
