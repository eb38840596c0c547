"""Bounds for the mean of directions that were ranked by the value, with proved inequalities only.

The error is N = sum of s_i (Y_i - E Y_i), Y_i a direction as in
:mod:`estimators.bounds.caps.growth`, with coordinates rounded to a grid of step `unit`. Given u,
rounding adds at most t^2 unit^2 / 8 to the cumulant along any direction (Hoeffding's lemma).

**A coordinate.** An upper bound q+ on the mean of c^2 holds with probability 1 - p for each level.
The deviation grows with q; so the deviation at q+ is above that at the true q, unless the bound
fails.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from estimators.bounds import anytime
from estimators.bounds.caps import concentration
from estimators.bounds.caps.growth import STEEPEST, ReportLaw
from estimators.bounds.caps.remainder import log_remainder
from estimators.bounds.caps.unevenness import largest_squares
from estimators.bounds.fourier.deviation import sharpened_deviation
from estimators.bounds.spheres import log_mean_cosh, longest, steady_length
from estimators.estimate import Floats

SPENT = 0.04  # of beta, for the upper bounds on q
FINE = 1.03  # ratio of tilts
ALIKE, GROUPS = 0.08, 8  # of ln variance: coordinates that share a remainder, and how many groups
LENGTHS = 400  # tried for the bound on the length at all times


@dataclasses.dataclass(frozen=True)
class CapReports:
    """Independent reports of several levels.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    counts, coefficient : ndarray of float64, shape (levels,)
        Reports per level, and s_l, the factor of one report; all above zero.
    laws : tuple of ReportLaw
    unit : float
        The step of the grid that coordinates are rounded to at random.
    squares : ndarray of float64, shape (levels, d)
        The observed mean square of each coordinate.
    levels : int
        All levels of the metric, in use or not.
    one_law : bool
        Whether the users of all levels have the same mean.
    mean : ndarray of float64, shape (d,), or None
        The estimate, from which bounds for a fixed number learn how concentrated the data are.
    """

    dimension: int
    counts: Floats
    coefficient: Floats
    laws: tuple[ReportLaw, ...]
    unit: float
    squares: Floats
    levels: int
    one_law: bool = False
    mean: Floats | None = None

    @functools.cached_property
    def variance(self) -> float:
        """The largest E |N|^2 over all data."""
        rounding = self.dimension * self.unit**2 / 4
        return float(self.counts @ self.coefficient**2) * (1 + rounding)

    @property
    def coordinate_variance(self) -> Floats:
        """The variance of each coordinate of N, from the observed squares."""
        each: Floats = (self.counts * self.coefficient**2) @ self.squares
        return each

    @functools.cached_property
    def steepest(self) -> float:
        """The largest tilt."""
        return STEEPEST * math.sqrt(self.dimension) / float(self.coefficient.max())

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
            variance = np.maximum(square - self._steady(nearest), 0.0)
            found = np.minimum(found, concentration.deviation(variance, self._largest(1.0), goal))
        return found

    def _steady(self, gamma: Floats) -> Floats:
        """Return the least sum of the squares of all reports' means along a mean gamma.

        Of n s^2 m^2 gamma^2 of each level. Where levels have means of their own, with n s m their
        shares, it is gamma^2 (sum of shares)^2 / sum n, by Cauchy's and Schwarz's inequality.
        """
        of_mean = self.coefficient * np.array([law.mean for law in self.laws])
        together = float(self.counts @ of_mean**2)
        apart = float(self.counts @ of_mean) ** 2 / float(self.counts.sum())
        least: Floats = gamma**2 * (together if self.one_law else apart)
        return least

    def _largest(self, size: float) -> float:
        """Return the longest s (U - E U) of a report U of this size."""
        of_mean = np.array([law.mean for law in self.laws])
        return float((self.coefficient * (size + of_mean)).max())

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
        for (grown, n), column in zip(self._grown(tilts), columns, strict=True):
            total += n * grown.T[column]
        return total

    def _columns(self, log_p: float, *, fixed: bool) -> NDArray[np.intp]:
        """Return the columns of q+, which fail with probability p a coordinate; (levels, d).

        Levels whose users have the same mean may still have another q each.
        """
        log_p -= math.log(len(self.laws) if fixed else self.levels)  # any level may come into use
        found = []
        for index, law in enumerate(self.laws):
            one = slice(index, index + 1)
            observed = self.laws[one], self.counts[one], self.squares[one]
            q = largest_squares(*observed, self.unit, log_p, at_all_times=not fixed)
            found.append(law.column(q))
        return np.array(found)

    def _grown(self, tilts: Floats) -> Iterator[tuple[Floats, float]]:
        """Yield the growth of one report for any mean c^2, with rounding, and n, of each level."""
        for law, n, s in zip(
            self.laws, self.counts.tolist(), self.coefficient.tolist(), strict=True
        ):
            own = tilts * s
            yield law.growth(own, concave=True) + self._rounding(own)[:, None], n

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
        parts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return EvenCapReports(**{**parts, "mean": None}, columns=columns)

    def _rounding(self, tilt: Floats) -> Floats:
        rounding: Floats = (tilt * self.unit) ** 2 / 8
        return rounding

    def anytime_coordinate_deviation(self, log_p: float, total: float) -> Floats:
        """Bound each coordinate of N at all times at once."""
        tilts, log_weights = anytime.usable_tilts(self.steepest, total)
        if not tilts.size:
            return np.full(self.dimension, np.inf)
        columns = self._columns(math.log(2 * SPENT) + log_p, fixed=False)
        value = self._cumulants(tilts, columns)
        return anytime.deviations(value, tilts, log_weights, log_p + math.log1p(-SPENT))

    def radius(self, log_beta: float) -> float:
        """Bound the length of N: |N| stays below it with probability 1 - beta.

        As for :class:`estimators.bounds.spheres.Directions`, with e uniform on the sphere, E M(t
        |N|) <= E_e exp(sum of r_i(t s_i, <v_i, e>)). For weights p_i of the users that sum to one,
        the exponential is at most the sum of p_i exp(r_i / p_i) by Jensen's inequality, and E_e of
        a term does not depend on v_i: <v_i, e> is a coordinate of the uniform sphere. p_i is in
        proportion to s_i^2. Cells of c^2 have their largest value. The smaller of this bound and of
        McDiarmid's is used.
        """
        d = self.dimension
        tilt = np.minimum(
            np.geomspace(0.02, 4, 200)
            * math.sqrt(d * d / self.variance)
            * math.sqrt(-2 * log_beta / d + 1),
            self.steepest,
        )
        share = self.coefficient**2 / float(self.counts @ self.coefficient**2)
        rounding, terms = np.zeros_like(tilt), []
        for law, n, s, p in zip(
            self.laws, self.counts.tolist(), self.coefficient.tolist(), share.tolist(), strict=True
        ):
            rounding += n * self._rounding(tilt * s)
            grown = law.growth(tilt * s, concave=False)[:, 1:] / p
            terms.append(grown + self._log_cells(law) + math.log(n * p))
        every = np.concatenate(terms, axis=1)
        largest = every.max(axis=1)
        total = largest + np.log(np.exp(every - largest[:, None]).sum(axis=1))
        markov = longest(d, tilt, total + rounding - log_beta)
        found = min(markov, steady_length(self, log_beta))
        if self.mean is None:
            return found
        largest, center = self._largest(1 + math.sqrt(d) * self.unit), np.linalg.norm(self.mean)
        for _ in range(concentration.ROUNDS):
            steady = self._steady(np.maximum(center - found, 0.0))
            variance = max(self.variance - float(steady), 1e-300)
            shorter = concentration.length(d, variance, largest, log_beta)
            if shorter >= found * 0.999:
                break
            found = shorter
        return found

    def _log_cells(self, law: ReportLaw) -> Floats:
        """Bound ln P(c^2 in a cell) from above, c a coordinate of the uniform sphere.

        P(c^2 >= q) = I_(1-q)((d - 1) / 2, 1 / 2) <= (1 - q)^((d - 1) / 2): their ratio grows with 1
        - q, and is 1 at q = 0.
        """
        from scipy.special import betainc, betaincc

        half, start = (self.dimension - 1) / 2, law.squares[:-1]
        below, above = (f(0.5, half, law.squares) for f in (betainc, betaincc))
        cells = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
        tails: Floats = np.minimum(np.log(np.maximum(cells, 1e-290)), half * np.log1p(-start))
        return tails

    def anytime_radius(self, log_beta: float, total: float) -> float:
        """Bound the length of N at all times at once, also for data that follow the noise.

        For a fixed tilt t the mean over e of exp(t <N, e> - sum of r_i(<v_i, e>)) is a
        supermartingale. It is M(t |N|) times the mean of exp(-sum of r_i) under the law of e with
        density in proportion to exp(t <N, e>); by Jensen's inequality that is at least the
        exponential of -n times the majorant of r at the largest mean of <v, e>^2, which is that
        along N. For k = t |N| it is 1 - (d - 1) A / k, A = I_(d/2)(k) / I_(d/2 - 1)(k), with A from
        below by Amos (1974). Tilts and their shares of beta are those of `anytime`, steeper by
        sqrt(d). Lengths are tried on a grid; every part is monotone between its nodes.
        """
        d = self.dimension
        tilt, log_weights = anytime.usable_tilts(self.steepest, total * math.sqrt(d))
        if not tilt.size:
            return math.inf
        length = d * np.geomspace(1e-3, 1e3, LENGTHS)
        with_e = 1 - (d - 1) / ((d - 1) / 2 + np.hypot(length, (d + 1) / 2))
        value = np.zeros((tilt.size, LENGTHS - 1))
        for (grown, n), law in zip(self._grown(tilt), self.laws, strict=True):
            value += n * grown[:, law.column(with_e[1:])]
        needed = value - log_beta - log_weights[:, None]
        short = log_mean_cosh(d, length[:-1]) < needed
        end = np.where(short.any(axis=1), LENGTHS - 1 - short[:, ::-1].argmax(axis=1), 0)
        return float(np.where(short[:, -1], np.inf, length[end] / tilt).min())


@dataclasses.dataclass(frozen=True)
class EvenCapReports(CapReports):
    """The same with bounds that hold for every coordinate of which q is at most some value.

    Parameters
    ----------
    columns : ndarray of intp, shape (levels,)
        The column of :meth:`ReportLaw.growth` of these values.
    """

    columns: NDArray[np.intp] = dataclasses.field(kw_only=True)

    @property
    def coordinate_variance(self) -> float:  # type: ignore[override]
        """The largest variance of a coordinate."""
        each = zip(self.laws, self.columns.tolist(), strict=True)
        of_one = np.array([law.variances(self.unit)[column] for law, column in each])
        return float(self.counts * self.coefficient**2 @ of_one)

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt N_j) for every coordinate, on either side."""
        total = np.zeros_like(tilt)
        for (grown, n), column in zip(self._grown(tilt), self.columns.tolist(), strict=True):
            total += n * grown[:, column]
        return total

    def coordinate_deviation(self, log_p: float) -> float:  # type: ignore[override]
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
