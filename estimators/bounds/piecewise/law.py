"""The law of a sum of piecewise reports, whatever the values are: docs/proofs/laws.md."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.bounds.signs.law import MAX_SIGN_TILT, VARIANCE_PIECES, Cumulant, Law, Moments
from estimators.estimate import Floats
from estimators.exact.piecewise_shapes import WindowShape
from estimators.exact.thresholds import WORD


class Symbols(NamedTuple):
    """Constants of the levels' symbols; short rows end in zeros, or repeat the last window.

    `values`, shape (levels, symbols): y_j; `moments`, shape (levels, symbols, 6): P(j | x) y_j^k
    for (x, k) = (-1, 0), (1, 0), (-1, 1), ..., (1, 2); `squares`, shape (levels, windows): E[Y^2 |
    x_s]; `largest`, `least_noise`, shape (levels,): the largest y_j, and the least variance at a
    knot.
    """

    values: Floats
    moments: Floats
    squares: Floats
    largest: Floats
    least_noise: Floats


class Tilted(NamedTuple):
    """ln(A + B m) of one report, its derivatives, A + B m, B, and the derivative of B by z."""

    value: Floats
    mean: Floats
    variance: Floats
    mass: Floats
    slope: Floats
    rise: Floats

    @property
    def by_mean(self) -> Floats:
        """B / (A + B m), the derivative of `value` by m."""
        return self.slope / self.mass

    @property
    def cross(self) -> Floats:
        """The derivative of `by_mean` by z."""
        return self.rise / self.mass - self.by_mean * self.mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class PiecewiseLaw(Law):
    """The law of a sum of reports Y of the mechanism `windows`, with E Y = x; contrasts are one.

    `shapes`: the mechanism of each level.
    """

    shapes: tuple[WindowShape, ...]

    @classmethod
    def of(
        cls, shapes: Sequence[WindowShape], counts: Floats, coefficient: Floats, *, free: bool
    ) -> PiecewiseLaw:
        """Return the law of a sum of reports.

        `shapes`: the mechanism of each level; `counts`, `coefficient`, shape (levels,): the number
        of reports of each level, and the factor by which each of them is multiplied; `free`: as in
        :class:`estimators.bounds.Law`.
        """
        ones = np.ones_like(coefficient)
        return cls(counts, coefficient, ones, free=free, shapes=tuple(shapes))

    @property
    def is_determined_by_mean(self) -> bool:
        """Whether theta alone determines the law: never, as the spread of values matters, too."""
        return False

    @functools.cached_property
    def symbols(self) -> Symbols:
        """Constants of the levels' symbols."""
        return _symbols_of(self.shapes)

    @functools.cached_property
    def max_tilt(self) -> float:
        """The largest tilt for :meth:`cumulant`."""
        return MAX_SIGN_TILT / float((self.coefficient * self.symbols.largest).max())

    @property
    def proxy(self) -> float:
        """Hoeffding's variance proxy: the cumulant of S is at most that of N(theta, proxy).

        It is valid because each report is between minus and plus its largest number.
        """
        return float(self.counts @ (self.coefficient * self.symbols.largest) ** 2)

    @property
    def expected_misses(self) -> Floats:
        """The expected number of reports outside their windows, for each window, shape (...)."""
        misses: Floats = self.counts @ np.array([x.threshold / WORD for x in self.shapes])
        return misses

    def tilted(self, mean: Floats, z: Floats) -> Tilted:
        """Return the bound of Theorem 5 of docs/proofs/laws.md, and its derivatives.

        `mean`, `z`: the means m and the exponents, which broadcast to the shape (..., levels).
        """
        symbols = self.symbols
        grown = z[..., None] * symbols.values
        np.expm1(grown, out=grown)
        # one product of matrices for each level
        rows = grown.reshape(-1, *symbols.values.shape).swapaxes(0, 1)
        sums = (rows @ symbols.moments).swapaxes(0, 1).reshape(*grown.shape[:-1], 6)
        terms = (sums[..., term] for term in range(6))
        mass_low, mass_high, low_mean, high_mean, low_square, high_square = terms
        slope, share = mass_high - mass_low, (1 + mean) / 2
        bound = mass_low + slope * share
        mass = 1 + bound
        rise = 2 + high_mean - low_mean  # reports are unbiased: their means are -1 and 1
        first = (low_mean - 1 + rise * share) / mass
        square = symbols.squares[:, 0] + low_square + (high_square - low_square) * share
        variance = square / mass - first**2
        return Tilted(np.log1p(bound), first, variance, mass, slope / 2, rise / 2)

    def cumulant(self, theta: Floats, tilt: Floats) -> Cumulant:
        """Return an upper bound on ln E exp(tilt S).

        It is attained if all values are -1 or 1, with the same mean.
        """
        z = tilt[:, None] * self.coefficient
        cumulants = self.tilted(theta[:, None], z)
        weight = self.counts * self.coefficient
        value = cumulants.value @ self.counts
        if self.free:
            value = value + self._free_increase(theta, cumulants.by_mean)
        farthest = self.symbols.largest + np.abs(cumulants.mean)
        return Cumulant(
            value=value,
            by_tilt=cumulants.mean @ weight,
            by_theta=cumulants.by_mean @ self.counts,
            curvature=cumulants.variance @ (weight * self.coefficient),
            cross=cumulants.cross @ weight,
            third=(cumulants.variance * farthest) @ (weight * self.coefficient**2),
        )

    def tangent(self, theta: Floats, tilt: Floats) -> tuple[Floats, Floats]:
        """Return the value of :meth:`cumulant`, and the slope of a line in theta above it."""
        cumulants = self.tilted(theta[:, None], tilt[:, None] * self.coefficient)
        return self._line(cumulants.value @ self.counts, theta, cumulants.by_mean)[:2]

    def variances(self, theta: Floats) -> Floats:
        """Return an upper bound on the variance of Y at each level, shape (k, levels)."""
        return self.symbols.squares[:, 0] - theta[:, None] ** 2

    def _variance_slopes(self, theta: Floats) -> Floats:
        return -2 * theta[:, None] * self.contrast

    @property
    def worst_variance(self) -> float:
        """The largest variance of S over all data."""
        worst: Any = self.worst_variances
        return worst  # type: ignore[no-any-return]

    @functools.cached_property
    def worst_variances(self) -> Floats:
        """The largest variance of S over all data, for each window, shape (...)."""
        return self._summed(self.symbols.squares[:, 0])

    @functools.cached_property
    def least_variances(self) -> Floats:
        """The least variance of S over all data, which is that of the noise; shape (...)."""
        return self._summed(self.symbols.least_noise)

    def _summed(self, variances: Floats) -> Floats:
        """Return the variance of S, given that of one report of each level."""
        variance: Floats = np.vecdot(self.counts * self.coefficient**2, variances)
        return variance

    # Theorem 6 of docs/proofs/laws.md
    def moments(self, theta: Floats) -> Moments:
        """Return ranges that contain the moments of S for all data with the mean `theta`."""
        if self.free:
            return self.moments_around(theta, 0.0)
        weight = self.counts * self.coefficient**2
        edges = (1 - theta[:, None] ** 2) * np.linspace(0, 1, VARIANCE_PIECES + 1)
        noise = float(np.array([float(x.worst_variance) for x in self.shapes]) @ weight)
        variance_limit = self.largest_variance(theta)[:, None]
        largest_variance = np.minimum(noise + weight.sum() * edges[:, 1:], variance_limit)
        max_report = float((self.symbols.largest * self.coefficient).max())
        max_deviation = max_report + np.abs(theta)[:, None] * float(self.coefficient.max())
        return Moments(
            self.least_variances + weight.sum() * edges[:, :-1],
            largest_variance,
            largest_variance * max_deviation,
        )

    def moments_around(self, theta: Floats, radius: Floats | float) -> Moments:
        """Return ranges that contain the moments of S, for all means within `radius` of theta."""
        square = self.coefficient**2
        largest_variance = (square * self.variances(theta)) @ self.counts
        slopes = square * self._variance_slopes(theta)
        gain, slope, _ = self._free_tangent(theta, slopes)
        largest_variance = largest_variance + gain + np.abs(slope) * radius
        max_deviation = ((self.symbols.largest + 1) * self.coefficient).max()
        least_variance = np.full((theta.size, 1), self.least_variances)
        return Moments(
            least_variance, largest_variance[:, None], (largest_variance * max_deviation)[:, None]
        )


@functools.lru_cache(maxsize=64)
def _symbols_of(shapes: tuple[WindowShape, ...]) -> Symbols:
    levels = len(shapes)
    symbols = max(shape.symbols for shape in shapes)
    windows = max(shape.windows for shape in shapes)
    values, squares = np.zeros((levels, symbols)), np.empty((levels, windows))
    moments = np.zeros((levels, symbols, 6))
    for row, shape in enumerate(shapes):
        y = shape.values
        probabilities = np.full(y.shape, float(shape.outside))
        probabilities[: shape.window] = float(shape.inside)
        chances = np.stack([probabilities, probabilities[::-1]], axis=1)
        values[row, : y.size] = y
        moments[row, : y.size] = np.concatenate([chances * y[:, None] ** k for k in range(3)], 1)
        at_knots = np.array([float(x) for x in shape.exact_squares])
        squares[row] = at_knots[np.minimum(np.arange(windows), shape.windows - 1)]
    largest = np.array([shape.values[-1] for shape in shapes])
    least_noise = np.array([shape.noise.min() for shape in shapes])
    return Symbols(values, moments, squares, largest, least_noise)
