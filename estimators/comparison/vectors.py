"""Comparisons of mean vectors: the error of a difference is a sum of directions of both arms."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from estimators.bounds import Directions
from estimators.estimate import Counts, Floats
from estimators.mechanisms.hemisphere import ARITHMETIC, Hemisphere


@dataclasses.dataclass(frozen=True)
class CoordinateNoise:
    """One coordinate of the error N of a mean vector; its law is bounded whatever the data.

    The bounds are those of either sign, so the errors of two arms are one sum of directions.
    """

    law: Directions

    @property
    def variance(self) -> float:
        """The largest variance."""
        return self.law.variance / self.law.dimension

    @property
    def steepest(self) -> float:
        """The largest tilt for :meth:`cumulant`."""
        return self.law.steepest

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt N_j), on either side."""
        return self.law.cumulant(tilt)

    def deviation(self, log_p: float) -> float:
        """Bound abs(N_j) with probability 1 - 2 p."""
        return self.law.coordinate_deviation(log_p)

    def with_other(self, other: CoordinateNoise) -> CoordinateNoise:
        """Return the noise of the difference."""
        one, two = self.law, other.law
        both = Directions(
            one.dimension,
            np.concatenate([one.counts, two.counts]),
            np.concatenate([one.coefficient, two.coefficient]),
            np.concatenate([one.contrast, two.contrast]),
            max(one.unit, two.unit),
        )
        return CoordinateNoise(both)


def mean_and_noise(
    mechanism: Hemisphere, table: Counts, shares: Floats
) -> tuple[Floats, CoordinateNoise, float]:
    """Return the mean vector in the unit ball, its noise, and what rounding can move it by.

    Parameters
    ----------
    mechanism : Hemisphere
    table : ndarray of int64, shape (levels, columns)
        With reports.
    shares : ndarray of float64, shape (levels,)
    """
    used = table[:, 0] > 0
    n = table[used, 0].astype(np.float64)
    coefficient = shares[used] / n * mechanism.scale[used]
    mean: Floats = (coefficient / mechanism.grid) @ table[used, 1:]
    contrast, unit = mechanism.signs.contrast[used], 1 / mechanism.grid
    law = Directions(mechanism.dimension, n, coefficient, contrast, unit)
    return mean, CoordinateNoise(law), ARITHMETIC * float(n @ coefficient)


def radius(
    one: CoordinateNoise, two: CoordinateNoise, beta: float, totals: tuple[float, float] | None
) -> float:
    """Bound the length of the error of the difference, with probability 1 - beta.

    Parameters
    ----------
    one, two : CoordinateNoise
    beta : float
    totals : pair of float or None
        As in :func:`estimators.weights.total_weight`: at all times at once, where each arm's length
        has half of beta.
    """
    if totals is None:
        return one.with_other(two).law.radius(math.log(beta))
    half = math.log(beta / 2)
    return one.law.anytime_radius(half, totals[0]) + two.law.anytime_radius(half, totals[1])
