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
from estimators.bounds.fourier.deviation import likely_tilt
from estimators.estimate import Floats

SPENT = 0.04  # of beta, for the upper bounds on q
FINE = 1.03  # ratio of tilts
ALIKE, GROUPS = 0.1, 16  # of ln variance: coordinates that share a tilt, and how many groups
LITTLE = 0.05  # of the mean square: if squares of means are less, the variance says nothing more
SAME = 0.002  # of ln variance: coordinates that share a bound


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

        Chernoff's bound at q+, which takes 4% of the failure probability, and times the remainder.
        """
        tilts, goal = self._tilts(log_p), log_p + math.log1p(-SPENT)
        columns = self.columns(math.log(2 * SPENT) + log_p, fixed=True)
        found: Floats = ((self.cumulants(tilts, columns) - goal) / tilts).min(axis=1)
        variance = self.variances(columns)
        found = np.minimum(found, self._sharpened(columns, variance, goal))
        if self.mean is None:
            return found
        for _ in range(concentration.ROUNDS):
            nearest = np.maximum(np.abs(self.mean) - found, 0.0)
            rest = np.maximum(variance - self.steady(nearest), 0.0)
            shorter = concentration.deviation(rest, self.largest(1.0), goal)
            if (shorter >= found).all():
                break
            found = np.minimum(found, shorter)
        return found

    def _sharpened(self, columns: NDArray[np.intp], variance: Floats, log_p: float) -> Floats:
        """Bound the coordinates at these columns by Chernoff's bound times the remainder.

        The true q has a bound of its own, the least over all tilts and prices, which grows with q.
        So both may be chosen by looking at the data. Coordinates whose variances are within ALIKE
        share them; those within SAME have the largest columns of one of them.
        """
        apart = np.log(variance / variance.min())
        same, place = np.unique(np.floor(apart / SAME), return_inverse=True)
        each = np.zeros((len(columns), same.size), dtype=np.intp)
        for column, largest in zip(columns, each, strict=True):
            np.maximum.at(largest, place, column)
        found = np.zeros(same.size)
        group = np.floor(same * SAME / max(ALIKE, float(apart.max()) / GROUPS))
        for one in np.unique(group).tolist():
            alike = each[:, group == one]
            middle = self.even_at(alike[:, alike.shape[1] // 2])
            found[group == one] = middle.deviations(alike, log_p)
        return found[place]

    def _tilts(self, log_p: float) -> Floats:
        """Return tilts around the best ones of normal laws with the least and the largest noise."""
        extremes = np.array([law.mean_squares for law in self.laws]).T + self.unit**2 / 4
        least, most = (extremes @ (self.counts * self.coefficient**2)).tolist()
        normal = np.sqrt(-2 * log_p / np.array([most, least]))
        steps = math.ceil(math.log(2.5 * normal[1] / normal[0]) / math.log(FINE))
        tilts: Floats = normal[0] / 2 * FINE ** np.arange(steps + 1)
        return np.minimum(tilts, self.steepest)

    def columns(self, log_p: float, *, fixed: bool) -> NDArray[np.intp]:
        """Return the columns of q+, which fail with probability p a coordinate; (levels, d).

        Levels whose users have the same mean may still have another q each.

        Parameters
        ----------
        log_p : float
            ln p.
        fixed : bool
            Whether the number of reports is fixed; else they hold at all times at once.
        """
        log_p -= math.log(len(self.laws) if fixed else self.levels)  # any level may come into use
        found = []
        for law, n, squares in zip(self.laws, self.counts.tolist(), self.squares, strict=True):
            q = largest_squares(law, n, squares, self.unit, log_p, at_all_times=not fixed)
            found.append(law.column(q))
        return np.array(found)

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
        """Bound each coordinate of N at all times at once; see :mod:`.concentration`."""
        tilts, log_weights = anytime.usable_tilts(self.steepest, total)
        if not tilts.size:
            return np.full(self.dimension, np.inf)
        columns = self.columns(math.log(2 * SPENT) + log_p, fixed=False)
        value = self.cumulants(tilts, columns)
        known = tilts, log_weights, log_p + math.log1p(-SPENT)
        found = anytime.deviations(value, *known)
        if self.mean is None:
            return found
        variance, mean = self.variances(columns), np.abs(self.mean)
        gain = concentration.bennett(tilts, self.largest(1.0))
        narrow = np.flatnonzero(self.steady(mean) > LITTLE * variance)
        for _ in range(concentration.ROUNDS):
            if not narrow.size:
                break
            nearest = np.maximum(mean[narrow] - found[narrow], 0.0)
            rest = np.maximum(variance[narrow] - self.steady(nearest), concentration.LEAST)
            least = np.minimum(value[narrow], rest[:, None] * gain)
            shorter = np.minimum(anytime.deviations(least, *known), found[narrow])
            moved = shorter < found[narrow] * concentration.SETTLED
            found[narrow], narrow = shorter, narrow[moved]
        return found


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
        return float(self.variances(self.columns[:, None])[0])

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt N_j) for every coordinate, on either side."""
        found: Floats = self.cumulants(tilt, self.columns[:, None])[0]
        return found

    def coordinate_deviation(self, log_p: float) -> float:
        """Bound one coordinate of N with probability 1 - 2 p."""
        return float(self.deviations(self.columns[:, None], log_p)[0])

    def deviations(self, columns: NDArray[np.intp], log_p: float) -> Floats:
        """Bound coordinates that are like these, each with probability 1 - 2 p, shape (k,).

        Chernoff's bound times the remainder, at the tilt that is likely the best for `self`.

        Parameters
        ----------
        columns : ndarray of intp, shape (levels, k)
            Of each coordinate, in the place of `self.columns`.
        log_p : float
        """
        scale = math.sqrt(-2 * log_p / self.coordinate_variance)
        tilt = likely_tilt(self.cumulant, scale, self.steepest, log_p)
        cumulant = self.cumulants(np.array([tilt]), columns)[:, 0]
        parts = self.laws, self.counts, self.coefficient, columns, self.unit
        found: Floats = (cumulant + log_remainder(*parts, tilt) - log_p) / tilt
        return found
