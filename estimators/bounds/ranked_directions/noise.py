"""Bounds on the length of the error of directions that were ranked by the value."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.mixtures import usable_tilts
from estimators.bounds.ranked_directions.bennett import (
    CONVERGED_RATIO,
    MAX_ROUNDS,
    MIN_VARIANCE,
    bennett_factor,
    bennett_length,
)
from estimators.bounds.ranked_directions.report_law import MAX_REPORT_TILT, ReportLaw
from estimators.bounds.spheres import length_bound, log_mean_cosh, mcdiarmid_length
from estimators.estimate import Floats

MARKOV_TILTS = np.geomspace(0.02, 4, 200)  # in units of one that is near the best
RELATIVE_LENGTHS = np.geomspace(1e-3, 1e3, 400)  # tried for the bound at all times, in units of d


@dataclasses.dataclass(frozen=True)
class RankedNoise:
    """The error N = sum of s_i (Y_i - E Y_i) of independent reports of several levels.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    counts, coefficient : ndarray of float64, shape (levels,)
        Reports per level, and s_l, the factor of one report; all above zero.
    laws : tuple of ReportLaw
    unit : float
        The step of the grid that coordinates are rounded to at random.
    one_law : bool
        Whether the users of all levels are from one population.
    mean : ndarray of float64, shape (d,), or None
        The estimate, from which bounds for a fixed number learn how concentrated the data are.
    """

    dimension: int
    counts: Floats
    coefficient: Floats
    laws: tuple[ReportLaw, ...]
    unit: float
    one_law: bool = False
    mean: Floats | None = None

    @functools.cached_property
    def variance(self) -> float:
        """The largest E |N|^2 over all data."""
        rounding = self.dimension * self.unit**2 / 4
        return float(self.counts @ self.coefficient**2) * (1 + rounding)

    @functools.cached_property
    def max_tilt(self) -> float:
        """The largest tilt."""
        return MAX_REPORT_TILT * math.sqrt(self.dimension) / float(self.coefficient.max())

    # Theorem 7 of docs/proofs/ranked-directions.md
    def least_square_sum(self, gamma: Floats) -> Floats:
        """Return the least sum of the squares of all reports' means along a mean gamma."""
        of_mean = self.coefficient * np.array([law.mean for law in self.laws])
        common_mean = float(self.counts @ of_mean**2)
        separate_means = float(self.counts @ of_mean) ** 2 / float(self.counts.sum())
        return gamma**2 * (common_mean if self.one_law else separate_means)

    def max_deviation(self, size: float) -> float:
        """Return the longest s (U - E U) of a report U of this size."""
        of_mean = np.array([law.mean for law in self.laws])
        return float((self.coefficient * (size + of_mean)).max())

    def variances(self, columns: NDArray[np.intp]) -> Floats:
        """Bound the variances of k coordinates, from columns of shape (levels, k)."""
        pairs = zip(self.laws, columns, strict=True)
        level_variances = np.array([law.variances(self.unit)[column] for law, column in pairs])
        variances: Floats = (self.counts * self.coefficient**2) @ level_variances
        return variances

    def cumulants(self, tilts: Floats, columns: NDArray[np.intp]) -> Floats:
        """Bound the cumulants of k coordinates on either side, shape (k, tilts).

        Columns are those of :meth:`ReportLaw.growth`, shape (levels, k).
        """
        total = np.zeros((columns.shape[1], tilts.size))
        for law, n, s, column in zip(
            self.laws, self.counts.tolist(), self.coefficient.tolist(), columns, strict=True
        ):
            distinct_columns, column_index = np.unique(column, return_inverse=True)
            grown = law.growth(tilts * s, distinct_columns) + self._rounding(tilts * s)[:, None]
            total += n * grown.T[column_index]
        return total

    def _rounding(self, tilt: Floats) -> Floats:
        return (tilt * self.unit) ** 2 / 8

    # Theorems 5 and 8 of docs/proofs/ranked-directions.md
    def radius(self, log_beta: float) -> float:
        """Bound |N| with probability 1 - beta."""
        d = self.dimension
        scale, relative_length = math.sqrt(d * d / self.variance), math.sqrt(-2 * log_beta / d + 1)
        tilt = np.minimum(MARKOV_TILTS * scale * relative_length, self.max_tilt)
        markov = length_bound(d, tilt, lambda t: self._log_mean(t) - log_beta)
        bound = min(markov, mcdiarmid_length(self, log_beta))
        if self.mean is None:
            return bound
        largest = self.max_deviation(1 + math.sqrt(d) * self.unit)
        center = np.linalg.norm(self.mean)
        for _ in range(MAX_ROUNDS):
            steady = self.least_square_sum(np.maximum(center - bound, 0.0))
            variance = max(self.variance - float(steady), MIN_VARIANCE)
            narrower_bound = bennett_length(d, variance, largest, log_beta)
            if narrower_bound >= bound * CONVERGED_RATIO:
                break
            bound = narrower_bound
        return bound

    def _log_mean(self, tilt: Floats) -> Floats:
        """Bound ln E M(tilt |N|), with weights of users in proportion to s_i^2."""
        share = self.coefficient**2 / float(self.counts @ self.coefficient**2)
        rounding, terms = np.zeros_like(tilt), []
        for law, n, s, p in zip(
            self.laws, self.counts.tolist(), self.coefficient.tolist(), share.tolist(), strict=True
        ):
            rounding += n * self._rounding(tilt * s)
            grown = law.growth_of_single_square(tilt * s)[:, 1:] / p
            terms.append(grown + (law.log_cells + math.log(n * p)))
        every = np.concatenate(terms, axis=1)
        largest = every.max(axis=1)
        total = largest + np.log(np.exp(every - largest[:, None]).sum(axis=1))
        log_mean: Floats = total + rounding
        return log_mean

    # Theorems 6 and 10 of docs/proofs/ranked-directions.md
    def anytime_radius(self, log_beta: float, total: float) -> float:
        """Bound |N| at all times at once, also for data that follow the noise."""
        d = self.dimension
        tilt, log_weights = usable_tilts(self.max_tilt, total * math.sqrt(d))
        if not tilt.size:
            return math.inf
        length = d * RELATIVE_LENGTHS
        largest_square = 1 - (d - 1) / ((d - 1) / 2 + np.hypot(length, (d + 1) / 2))
        columns = np.array([law.column_of(largest_square[1:]) for law in self.laws])
        value = self.cumulants(tilt, columns).T
        cost = -log_beta - log_weights[:, None]
        log_mean = log_mean_cosh(d, length[:-1])

        def reached(value: Floats) -> float:
            short = log_mean < value + cost
            last = RELATIVE_LENGTHS.size - 1
            end = np.where(short.any(axis=1), last - short[:, ::-1].argmax(axis=1), 0)
            return float(np.where(short[:, -1], np.inf, length[end] / tilt).min())

        bound = reached(value)
        if self.mean is None:
            return bound
        gain = bennett_factor(tilt, self.max_deviation(1 + math.sqrt(d) * self.unit))
        trace, center = np.outer(gain, largest_square[1:]), float(np.linalg.norm(self.mean))
        for _ in range(MAX_ROUNDS):
            steady = self.least_square_sum(np.asarray(max(center - bound, 0.0)))
            variance = max(self.variance - float(steady), MIN_VARIANCE)
            narrower_bound = reached(np.minimum(value, variance * trace))
            if narrower_bound >= bound * CONVERGED_RATIO:
                break
            bound = narrower_bound
        return bound
