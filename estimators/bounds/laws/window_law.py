"""The law of a sum of reports of windows of symbols, whatever the values are.

A report of the symbol j stands for y_j, and E[e^(z Y) | x] is a line in x between two knots. Of
data with mean m, the largest E e^(z Y) is therefore on the least concave majorant of its values at
the knots. That is the chord from -1 to 1, so values -1 and 1 are the worst data. Then ln E e^(z Y)
is at most ln(A + B m), which is concave in m and grows with it, and by Jensen's inequality the mean
of a level's users bounds their sum: users may be of one population or have means, or values, of
their own.

**The chord is above all knots.** At the knot x_s, chord less value is D(z) = sum c_j e^(z y_j).
With a > 0 for what a symbol of a window has more than others, c_j is a (1 - x_s) / 2 for symbols of
the first window that come before window s, a (1 + x_s) / 2 for those of the last window that come
after it, and 0 or less in window s. So the c_j change their sign twice, and D has at most two real
zeros (Descartes' rule of signs for exponentials). Both are at z = 0: reports have mean 1 in total,
and are unbiased, so D(0) = D'(0) = 0. For large z, the last symbols count, so D > 0 for all z but 0
(or D = 0 everywhere). In particular D''(0) >= 0: E Y^2 is below its chord, too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from estimators.bounds.laws.law import PIECES, STEEPEST, Cumulant, Law, Moments
from estimators.estimate import Floats
from estimators.exact.piecewise_shapes import WindowShape


class Symbols(NamedTuple):
    """Constants of the levels' symbols; rows are padded with zeros, windows with the last one.

    `values`, of shape (levels, symbols), has the y_j. `moments`, of shape (levels, symbols, 6), has
    P(j | x) y_j^k for x = -1 and 1 and k = 0, 1 and 2, in this order: (-1, 0), (1, 0), (-1, 1) ...
    `squares`, of shape (levels, windows), has E[Y^2 | x_s]. The others, of shape (levels,), are the
    largest y_j, and the least variance at a knot.
    """

    values: Floats
    moments: Floats
    squares: Floats
    largest: Floats
    least_noise: Floats


class Tilted(NamedTuple):
    """Of one report of each level: ln(A + B m), its first two derivatives by z, and those by m.

    `by_mean` is B / (A + B m), and `cross` the derivative of it by z.
    """

    value: Floats
    mean: Floats
    variance: Floats
    by_mean: Floats
    cross: Floats


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowLaw(Law):
    """Independent reports Y of windows of symbols, with E Y = x; the contrasts are one.

    Parameters
    ----------
    shapes : tuple of WindowShape
        One for each level.
    """

    shapes: tuple[WindowShape, ...]

    @classmethod
    def of(
        cls, shapes: Sequence[WindowShape], counts: Floats, coefficient: Floats, *, free: bool
    ) -> WindowLaw:
        """Return the law of levels with these shapes.

        Parameters
        ----------
        shapes : sequence of WindowShape
            One for each level.
        counts, coefficient : ndarray of float64, shape (levels,)
            Reports per level, and s_l, as in :class:`estimators.bounds.Law`.
        free : bool
            As in :class:`estimators.bounds.Law`.
        """
        ones = np.ones_like(coefficient)
        return cls(counts, coefficient, ones, free=free, shapes=tuple(shapes))

    @property
    def exact(self) -> bool:
        """Whether theta alone determines the law: never."""
        return False

    @functools.cached_property
    def symbols(self) -> Symbols:
        """Constants of the levels' symbols."""
        return _symbols_of(self.shapes)

    @functools.cached_property
    def steepest(self) -> float:
        """The largest tilt for :meth:`cumulant`."""
        return STEEPEST / float((self.coefficient * self.symbols.largest).max())

    @property
    def proxy(self) -> float:
        """Hoeffding's variance proxy: no report is larger than the largest number."""
        return float(self.counts @ (self.coefficient * self.symbols.largest) ** 2)

    def tilted(self, mean: Floats, z: Floats) -> Tilted:
        """Return the bound on ln E exp(z Y), and its derivatives.

        Parameters
        ----------
        mean, z : ndarray of float64, shape (..., levels)
            Of one broadcast shape.
        """
        one = self.symbols
        grown = np.expm1(z[..., None] * one.values)
        # one product of matrices for each level
        rows = grown.reshape(-1, *one.values.shape).swapaxes(0, 1)
        sums = (rows @ one.moments).swapaxes(0, 1).reshape(*grown.shape[:-1], 6)
        low, high, low_mean, high_mean, low_square, high_square = np.moveaxis(sums, -1, 0)
        half, share = (high - low) / 2, (1 + mean) / 2
        bound = low + (high - low) * share
        bottom = 1 + bound
        square = one.squares[:, 0]
        rise = 2 + high_mean - low_mean  # reports are unbiased: their means are -1 and 1
        first = (low_mean - 1 + rise * share) / bottom
        second = (square + low_square + (high_square - low_square) * share) / bottom
        by_mean = half / bottom
        cross = rise / 2 / bottom - by_mean * first
        return Tilted(np.log1p(bound), first, second - first**2, by_mean, cross)

    def cumulant(self, theta: Floats, tilt: Floats) -> Cumulant:
        """Bound ln E exp(tilt S) from above: attained by values of -1 and 1, with one mean.

        The third moment of the tilted law is bounded by its variance times its range.
        """
        z = tilt[:, None] * self.coefficient
        at = self.tilted(theta[:, None], z)
        weight = self.counts * self.coefficient
        value = at.value @ self.counts
        if self.free:
            value = value + self._freedom(theta, at.by_mean)
        farthest = self.symbols.largest + np.abs(at.mean)
        return Cumulant(
            value=value,
            by_tilt=at.mean @ weight,
            by_theta=at.by_mean @ self.counts,
            curvature=at.variance @ (weight * self.coefficient),
            cross=at.cross @ weight,
            third=(at.variance * farthest) @ (weight * self.coefficient**2),
        )

    def tangent(self, theta: Floats, tilt: Floats) -> tuple[Floats, Floats]:
        """Return the value of :meth:`cumulant`, and the slope of a line that bounds it."""
        at = self.tilted(theta[:, None], tilt[:, None] * self.coefficient)
        value = at.value @ self.counts
        if self.free:
            gain, slope = self._free_tangent(theta, at.by_mean)
            return value + gain, slope
        return value, at.by_mean @ self.counts

    def variances(self, theta: Floats) -> Floats:
        """Return an upper bound on the variance of Y at each level, shape (k, levels).

        E[Y^2] is below the chord of its values at -1 and 1, which are equal.
        """
        found: Floats = self.symbols.squares[:, 0] - theta[:, None] ** 2
        return found

    def _variance_slopes(self, theta: Floats) -> Floats:
        slopes: Floats = -2 * theta[:, None] * self.contrast
        return slopes

    @functools.cached_property
    def worst_variance(self) -> float:
        """The largest variance of S over all data."""
        return float(self.variances(np.zeros(1))[0] @ (self.counts * self.coefficient**2))

    @functools.cached_property
    def least_variance(self) -> float:
        """The least variance of S over all data: that of the noise."""
        return float(self.symbols.least_noise @ (self.counts * self.coefficient**2))

    def moments(self, theta: Floats) -> Moments:
        """Enclose the moments of S that the mean leaves possible.

        The variance of Y is that of the noise, given the value, plus that of the values, at most
        1 - theta^2. With one mean the latter is common to all levels; its range is cut into pieces.
        E |Y - E Y|^3 is at most the variance times the largest |Y - E Y|.
        """
        if self.free:
            return self.moments_around(theta, 0.0)
        weight = self.counts * self.coefficient**2
        edges = (1 - theta[:, None] ** 2) * np.linspace(0, 1, PIECES + 1)
        noise = float(np.array([float(x.worst_variance) for x in self.shapes]) @ weight)
        most = self.largest_variance(theta)[:, None]
        largest = np.minimum(noise + weight.sum() * edges[:, 1:], most)
        farthest = float((self.symbols.largest * self.coefficient).max())
        reach = farthest + np.abs(theta)[:, None] * float(self.coefficient.max())
        return Moments(self.least_variance + weight.sum() * edges[:, :-1], largest, largest * reach)

    def moments_around(self, theta: Floats, apart: Floats | float) -> Moments:
        """Enclose the moments of S for all means that are at most so far from theta.

        Parameters
        ----------
        theta : ndarray of float64, shape (k,)
        apart : float or ndarray of float64, shape (k,)

        Notes
        -----
        The bound on the variance is concave in the levels' means, so it lies below its tangent
        plane at theta.
        """
        square = self.coefficient**2
        largest = (square * self.variances(theta)) @ self.counts
        slopes = square * self._variance_slopes(theta)
        gain, slope = self._free_tangent(theta, slopes)
        largest = largest + gain + np.abs(slope) * apart
        farthest = ((self.symbols.largest + 1) * self.coefficient).max()
        least = np.full((theta.size, 1), self.least_variance)
        return Moments(least, largest[:, None], (largest * farthest)[:, None])


@functools.lru_cache(maxsize=64)
def _symbols_of(shapes: tuple[WindowShape, ...]) -> Symbols:
    levels = len(shapes)
    symbols = max(shape.symbols for shape in shapes)
    windows = max(shape.windows for shape in shapes)
    values, squares = np.zeros((levels, symbols)), np.empty((levels, windows))
    moments = np.zeros((levels, symbols, 6))
    for row, shape in enumerate(shapes):
        y = shape.values
        bottom = np.full(y.shape, float(shape.outside))
        bottom[: shape.window] = float(shape.inside)
        chances = np.stack([bottom, bottom[::-1]], axis=1)
        values[row, : y.size] = y
        moments[row, : y.size] = np.concatenate([chances * y[:, None] ** k for k in range(3)], 1)
        at_knots = np.array([float(x) for x in shape.exact_squares])
        squares[row] = at_knots[np.minimum(np.arange(windows), shape.windows - 1)]
    largest = np.array([shape.values[-1] for shape in shapes])
    least = np.array([shape.noise.min() for shape in shapes])
    return Symbols(values, moments, squares, largest, least)
