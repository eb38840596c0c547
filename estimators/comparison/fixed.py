r"""The test of a sum of two means, for a fixed number of reports: one probability for both arms.

A comparison of two arms is a statement about x + y: x is the mean of the first sum of reports X, y
that of an independent second one Y. (For a difference, Y is the sum of the second arm with its sign
changed.) The hypothesis x + y = delta leaves x unknown. After Berger and Boos (1994), an interval C
for x, which fails with a small probability, is computed from X alone, and delta is rejected if

    P(X + Y >= what was observed) is proved to be at most p, for every x in C with y = delta - x.

The true x is outside C, or its own p-value is at most p: so the test fails with probability at most
p plus that of C. One such delta proves all smaller ones: with x as it is, y is smaller, and Y
stochastically smaller. It does not matter how delta, the tilts or the cells below were found.

**A ratio** m_A / m_B of means m = o + theta, o >= 1, is at most r if the mean of S_A - r S_B is at
most (r - 1) o. X is -S_B with the factor r, Y is S_A. Here the sum depends on r, so that one r does
not prove all smaller ones. They are proved in cells of r: a few within some standard errors below
the limit, and one for all the rest, with Chernoff's bound alone.

C is cut into cells; :mod:`estimators.comparison.cells` has the bound in each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from estimators.bounds.mixtures import RowIndices
from estimators.bounds.signs.law import Law
from estimators.bounds.signs.repeated import RepeatedLaw
from estimators.bounds.tolerances import LOG_P_SAFETY, LOG_P_TOLERANCE, THETA_ROUNDING
from estimators.comparison.cells import Cells, Line
from estimators.estimate import Floats
from estimators.interruption import checkpoint

CELLS = 4  # of the interval for the first mean
STEPS = 40
TURNS = 2  # of Newton's method for a tilt, at each step
BACK = 0.03 * 1.3 ** np.arange(17)
"""Widths of cells of ratios, in standard errors: 8.6 together."""


class Sums(NamedTuple):
    """A comparison: two independent sums, and their observed values.

    Parameters
    ----------
    first, second : Law
        The laws of X and of Y.
    known, other : ndarray of float64, shape (k,)
        X and Y, for each of k categories.
    near : pair of ndarray of float64, shape (k,)
        C: the ends of an interval for the mean of X.
    """

    first: Law
    second: Law
    known: Floats
    other: Floats
    near: tuple[Floats, Floats]

    @property
    def slack(self) -> float:
        """The largest change of a mean by rounding."""
        return THETA_ROUNDING * 2 + self.first.offset_rounding + self.second.offset_rounding

    def variance(self, factor: Floats) -> Floats:
        """Return about the variance of factor X + Y."""
        middle = np.clip((self.near[0] + self.near[1]) / 2, -1, 1)
        rest = np.clip(self.other, -1, 1)
        return factor**2 * self.first.largest_variance(middle) + self.second.largest_variance(rest)

    def tilts(self, factor: Floats, log_p: float) -> Floats:
        """Return first tilts of the cells, shape (k, CELLS)."""
        tilt = np.minimum(np.sqrt(-2 * log_p / self.variance(factor)), self.max_tilt(factor))
        return np.repeat(tilt[:, None], CELLS, axis=1)

    def max_tilt(self, factor: Floats) -> Floats:
        """Return the largest tilts."""
        limit: Floats = np.minimum(self.first.max_tilt / factor, self.second.max_tilt)
        return limit

    def worst(self, line: Line, tilts: Floats, *, chernoff: bool = False) -> Worst:
        """Return the largest bound over the cells of C, for lines of shape (k,).

        Parameters
        ----------
        line : Line
        tilts : ndarray of float64, shape (k, CELLS)
        chernoff : bool
            As in :meth:`Cells.log_chance`.
        """
        low, high = self.near
        edges = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, CELLS + 1)
        target, factor, back = (np.repeat(x, CELLS) for x in line[:3])
        lines = Line(target, factor, back, line.origin)
        start = np.minimum(edges[:, :-1].ravel(), 1.0)
        end = np.minimum(edges[:, 1:].ravel(), (lines.target + 1) / lines.factor)  # y >= -1
        cells = Cells(
            self.first,
            self.second,
            np.repeat(self.known, CELLS),
            np.repeat(line.factor * self.known + self.other, CELLS),
            start,
            np.maximum(start, end),
            lines,
            all(
                x.is_determined_by_mean and not isinstance(x, RepeatedLaw)
                for x in (self.first, self.second)
            ),
        )
        tilt, max_tilt = tilts.ravel(), self.max_tilt(lines.factor)
        for _ in range(TURNS):
            tilt = np.minimum(cells.better(tilt), max_tilt)
        chance, slope = cells.log_chance(tilt, chernoff=chernoff)
        chance = np.where(start > end, -np.inf, chance).reshape(tilts.shape)
        place = chance.argmax(axis=1)[:, None]
        return Worst(
            np.take_along_axis(chance, place, axis=1)[:, 0],
            np.take_along_axis(slope.reshape(tilts.shape), place, axis=1)[:, 0],
            tilt.reshape(tilts.shape),
        )

    def at(self, rows: RowIndices) -> Sums:
        """Return the sums of these categories; some may be repeated."""
        near = self.near[0][rows], self.near[1][rows]
        return self._replace(known=self.known[rows], other=self.other[rows], near=near)


class Worst(NamedTuple):
    """The largest bound on ln P over the cells, shape (k,); its slope; the cells' next tilts."""

    log_chance: Floats
    slope: Floats
    tilts: Floats


def lower_limit(sums: Sums, log_p: float) -> Floats:
    """Return a sum of means that each observed sum rejects as too small, or -2.

    Parameters
    ----------
    sums : Sums
    log_p : float
        ln p, the failure probability beside that of C.

    Returns
    -------
    ndarray of float64, shape (k,)
        Within [-2, 2].
    """
    ones = np.ones_like(sums.known)
    width = np.sqrt(-2 * log_p * sums.variance(ones))

    def line(delta: Floats, _: RowIndices) -> Line:
        return Line(delta, np.ones_like(delta), np.zeros_like(delta))

    observed = sums.known + sums.other
    found = _search(sums, line, observed, width, (-2.0, 2.0), log_p)
    return np.maximum(found - sums.slack, -2.0)


def lower_ratio(sums: Sums, origin: float, log_p: float) -> Floats:
    """Return a ratio of means that each pair of sums rejects as too small, with all smaller ones.

    Parameters
    ----------
    sums : Sums
        X is -S_B, Y is S_A.
    origin : float
        o, at least 1.
    log_p : float
        As in :func:`lower_limit`.

    Returns
    -------
    ndarray of float64, shape (k,)
        At least 0.
    """
    above, below = origin + np.clip(sums.other, -1, 1), origin + np.clip(-sums.known, -1, 1)
    below = np.maximum(below, np.sqrt(sums.first.largest_variance(np.clip(sums.known, -1, 1))))
    most = np.maximum(above, 1e-9) / below
    sd = np.sqrt(sums.variance(most)) / below
    step = float(BACK[0]) * sd

    def line(ratio: Floats, rows: RowIndices) -> Line:
        ratio = np.maximum(ratio, 1e-12)
        return Line((ratio - 1) * origin, ratio, np.minimum(step[rows], ratio), origin)

    width = np.sqrt(-2 * log_p) * sd
    found = _search(sums, line, most, width, (0.0, np.inf), log_p)
    for _ in range(STEPS):
        checkpoint()
        proved = _proves_smaller(sums, origin, found, sd, log_p) | (found <= 0)
        if proved.all():
            break
        found = np.where(proved, found, np.maximum(found - step, 0))
    found = np.where(proved, found, 0.0)
    return np.maximum(found * (1 - 4 * sums.slack), 0.0)


def _proves_smaller(
    sums: Sums, origin: float, ratio: Floats, sd: Floats, log_p: float
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether `ratio` and all smaller ones are rejected, cell by cell."""
    k, number = ratio.size, BACK.size + 1
    tops = ratio[:, None] - sd[:, None] * np.append(0, np.cumsum(BACK))
    tops = np.maximum(tops, 0)
    ends = np.append(tops[:, 1:], np.zeros((k, 1)), axis=1)
    top = np.maximum(tops.ravel(), 1e-12)
    line = Line((top - 1) * origin, top, np.maximum(top - ends.ravel(), 0), origin)
    many = sums.at(np.repeat(np.arange(k), number))
    tilts, rest = many.tilts(top, log_p), np.tile(np.arange(number) == BACK.size, k)
    rejected = np.zeros(top.size, dtype=np.bool_)
    for _ in range(3):
        at = many.worst(line, tilts)
        plain = many.worst(line, tilts, chernoff=True)
        chance = np.where(rest, plain.log_chance, np.minimum(at.log_chance, plain.log_chance))
        rejected |= chance <= log_p - LOG_P_SAFETY
        tilts = at.tilts
    result: np.ndarray[tuple[int], np.dtype[np.bool_]]
    result = (rejected | (tops.ravel() <= 0)).reshape(k, number).all(axis=1)
    return result


def _search(
    sums: Sums,
    line: Callable[[Floats, RowIndices], Line],
    observed: Floats,
    width: Floats,
    domain: tuple[float, float],
    log_p: float,
) -> Floats:
    """Return a value whose line is rejected, close to the largest one, or the least of the domain.

    Parameters
    ----------
    sums : Sums
    line : callable
        From values to lines.
    observed, width : ndarray of float64, shape (k,)
        About where half of the tail is, and how far the limit is from there.
    domain : tuple of float
    log_p : float
    """
    goal, (least, most) = log_p - LOG_P_SAFETY, domain
    aim = goal - LOG_P_TOLERANCE / 2
    # for a normal tail, the slope of ln p(delta) is that of the cumulant times this
    sharper = 1 + 1 / max(1.0, -2 * log_p - 2)
    low = np.full_like(observed, least)
    high = np.where(observed > most, np.inf, np.maximum(observed, least))
    value = np.clip(np.minimum(observed, most) - 0.9 * width, low + (observed - low) / 16, most)
    value = np.clip(value, least, most)
    rows, found = np.arange(observed.size), low.copy()
    tilts = sums.tilts(line(value, rows).factor, log_p)
    for _ in range(STEPS):
        at = sums.at(rows).worst(line(value, rows), tilts)
        rejected = at.log_chance <= goal
        low = np.where(rejected, np.maximum(low, value), low)
        high = np.where(rejected, high, np.minimum(high, value))
        found[rows] = low
        left = ~(rejected & (at.log_chance >= goal - LOG_P_TOLERANCE)) & (low < most)
        left &= high - low > LOG_P_TOLERANCE / 4 * width
        if not left.any():
            break
        wanted = value + (aim - at.log_chance) / np.maximum(at.slope * sharper, 1e-12)
        between = np.where(np.isfinite(high), (low + high) / 2, low + width)
        between = np.where(wanted <= low, low + (np.minimum(high, most) - low) / 16, between)
        inside = (wanted > low) & (wanted < high)
        value = np.minimum(np.where(inside, wanted, between), most)
        rows, value, tilts = rows[left], value[left], at.tilts[left]
        low, high, width = low[left], high[left], width[left]
    return found


def log_chance(sums: Sums, log_p: float, delta: float = 0.0) -> Floats:
    """Bound ln P(X + Y >= observed) for the sum of means `delta` and all x in C, at most 0.

    Parameters
    ----------
    sums : Sums
    log_p : float
        About ln P: for a first guess of the tilts.
    delta : float
    """
    ones = np.ones_like(sums.known)
    tilts, least = sums.tilts(ones, log_p), 0 * ones
    for _ in range(6):
        worst = sums.worst(Line(delta * ones, ones, 0 * ones), tilts)
        least, tilts = np.minimum(least, worst.log_chance), worst.tilts
    return least
