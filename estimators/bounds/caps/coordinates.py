"""Bounds on the coordinates of the error of directions that were ranked by the value.

An upper bound q+ on the mean of c^2 holds with probability 1 - p for each level. The deviation
grows with q; so the deviation at q+ is above that at the true q, unless the bound fails.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from estimators.bounds import anytime
from estimators.bounds.caps import concentration
from estimators.bounds.caps.lengths import CapNoise
from estimators.bounds.caps.remainder import log_remainder
from estimators.bounds.caps.unevenness import largest_squares
from estimators.bounds.fourier.deviation import sharpened_deviation
from estimators.estimate import Floats

SPENT = 0.04  # of beta, for the upper bounds on q
FINE = 1.03  # ratio of tilts
ALIKE, GROUPS = 0.08, 8  # of ln variance: coordinates that share a remainder, and how many groups


@dataclasses.dataclass(frozen=True)
class CapReports(CapNoise):
    """Bounds of each coordinate's own, from the sums of squares of reports.

    Parameters
    ----------
    squares : ndarray of float64, shape (levels, d)
        The observed mean square of each coordinate.
    levels : int
        All levels of the metric, in use or not.
    """

    squares: Floats = dataclasses.field(kw_only=True)
    levels: int = dataclasses.field(kw_only=True)

    @property
    def coordinate_variance(self) -> Floats:
        """The variance of each coordinate of N, from the observed squares."""
        each: Floats = (self.counts * self.coefficient**2) @ self.squares
        return each

    def coordinate_deviation(self, log_p: float) -> Floats:
        """Bound each coordinate of N: |N_j| stays below its bound with probability 1 - 2 p.

        Chernoff's bound at q+, which takes 4% of the failure probability, and times the remainder
        for coordinates that are alike: at the largest q+ among them.
        """
        tilts, goal = self._tilts(log_p), log_p + math.log1p(-SPENT)
        columns = self._columns(math.log(2 * SPENT) + log_p, fixed=True)
        found: Floats = ((self._cumulants(tilts, columns) - goal) / tilts).min(axis=1)
        for alike in self._alike(columns):
            sharp = self.even_at(columns[:, alike].max(axis=1)).coordinate_deviation(goal)
            found[alike] = np.minimum(found[alike], sharp)
        if self.mean is None:
            return found
        square = np.zeros_like(found)
        for law, n, s, column in zip(
            self.laws, self.counts.tolist(), self.coefficient.tolist(), columns, strict=True
        ):
            square += n * s * s * law.variances(self.unit)[column]
        for _ in range(concentration.ROUNDS):
            nearest = np.maximum(np.abs(self.mean) - found, 0.0)
            variance = np.maximum(square - self.steady(nearest), 0.0)
            shorter = concentration.deviation(variance, self.largest(1.0), goal)
            if (shorter >= found).all():
                break
            found = np.minimum(found, shorter)
        return found

    def _alike(self, columns: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Return groups of coordinates whose variances at q+ are within 8%, or as few as GROUPS."""
        variance = np.zeros(self.dimension)
        for law, n, s, column in zip(
            self.laws, self.counts.tolist(), self.coefficient.tolist(), columns, strict=True
        ):
            variance += n * s * s * law.variances(self.unit)[column]
        apart = np.log(variance / variance.min())
        group = np.floor(apart / max(ALIKE, float(apart.max()) / GROUPS)).astype(np.intp)
        return [np.flatnonzero(group == one) for one in np.unique(group).tolist()]

    def _tilts(self, log_p: float) -> Floats:
        """Return tilts around the best ones of normal laws with the least and the largest noise."""
        extremes = np.array([law.mean_squares for law in self.laws]).T + self.unit**2 / 4
        least, most = (extremes @ (self.counts * self.coefficient**2)).tolist()
        normal = np.sqrt(-2 * log_p / np.array([most, least]))
        steps = math.ceil(math.log(2.5 * normal[1] / normal[0]) / math.log(FINE))
        tilts: Floats = normal[0] / 2 * FINE ** np.arange(steps + 1)
        return np.minimum(tilts, self.steepest)

    def _cumulants(self, tilts: Floats, columns: NDArray[np.intp]) -> Floats:
        """Bound the cumulants of the coordinates at these columns, (levels, d); (d, tilts)."""
        total = np.zeros((self.dimension, tilts.size))
        for level, column in enumerate(columns):
            each, place = np.unique(column, return_inverse=True)
            total += self.cumulants(level, tilts, each).T[place]
        return total

    def _columns(self, log_p: float, *, fixed: bool) -> NDArray[np.intp]:
        """Return the columns of q+, which fail with probability p a coordinate; (levels, d)."""
        every = len(self.laws)
        groups = [slice(0, every)] if self.one_law else [slice(i, i + 1) for i in range(every)]
        if len(groups) > 1:  # for all times, any level may come into use
            log_p -= math.log(every if fixed else self.levels)
        found = []
        for group in groups:
            observed = self.laws[group], self.counts[group], self.squares[group]
            q = largest_squares(*observed, self.unit, log_p, at_all_times=not fixed)
            found += [law.column(q) for law in self.laws[group]]
        return np.array(found)

    def even(self, log_p: float, bound: str) -> EvenCapReports:
        """Return bounds that are the same for all coordinates: those of the largest q+ of a level.

        Parameters
        ----------
        log_p : float
            ln p, the failure probability of the bounds on q of one coordinate.
        bound : str
            ``"anytime"`` or another of :data:`estimators.question.BOUNDS`.
        """
        return self.even_at(self._columns(log_p, fixed=bound != "anytime").max(axis=1))

    def even_at(self, columns: NDArray[np.intp]) -> EvenCapReports:
        """Return bounds for every coordinate of which q is at most at these columns.

        Parameters
        ----------
        columns : ndarray of intp, shape (levels,)
            Of :meth:`ReportLaw.growth`.
        """
        parts = self.dimension, self.counts, self.coefficient, self.laws, self.unit
        return EvenCapReports(*parts, columns=columns)

    def anytime_coordinate_deviation(self, log_p: float, total: float) -> Floats:
        """Bound each coordinate of N at all times at once."""
        tilts, log_weights = anytime.usable_tilts(self.steepest, total)
        if not tilts.size:
            return np.full(self.dimension, np.inf)
        columns = self._columns(math.log(2 * SPENT) + log_p, fixed=False)
        value = self._cumulants(tilts, columns)
        return anytime.deviations(value, tilts, log_weights, log_p + math.log1p(-SPENT))


@dataclasses.dataclass(frozen=True)
class EvenCapReports(CapNoise):
    """Bounds that hold for every coordinate of which q is at most some value.

    Parameters
    ----------
    columns : ndarray of intp, shape (levels,)
        The column of :meth:`ReportLaw.growth` of these values.
    """

    columns: NDArray[np.intp] = dataclasses.field(kw_only=True)

    @property
    def coordinate_variance(self) -> float:
        """The largest variance of a coordinate."""
        each = zip(self.laws, self.columns.tolist(), strict=True)
        of_one = np.array([law.variances(self.unit)[column] for law, column in each])
        return float(self.counts * self.coefficient**2 @ of_one)

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt N_j) for every coordinate, on either side."""
        total = np.zeros_like(tilt)
        for level, column in enumerate(self.columns):
            total += self.cumulants(level, tilt, column[None])[:, 0]
        return total

    def coordinate_deviation(self, log_p: float) -> float:
        """Bound one coordinate of N with probability 1 - 2 p.

        The true q has a bound of its own, the least over all tilts, which grows with q. So tilts
        may be chosen by looking at the data.
        """
        scale = math.sqrt(-2 * log_p / self.coordinate_variance)
        return sharpened_deviation(self.cumulant, self._log_remainder, scale, self.steepest, log_p)

    def _log_remainder(self, tilt: Floats) -> Floats:
        columns = self.columns.tolist()
        parts = self.laws, self.counts, self.coefficient, columns, self.unit
        return np.array([log_remainder(*parts, one) for one in tilt.tolist()])
