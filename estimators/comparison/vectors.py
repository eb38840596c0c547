"""Comparisons of mean vectors: the error of a difference is a sum of directions of both arms."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from estimators.bounds import Directions
from estimators.bounds.caps.coordinates import SPENT, CapReports, EvenCapReports
from estimators.estimate import Counts, Floats
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from estimators.question import Question


@dataclasses.dataclass(frozen=True)
class CoordinateNoise:
    """One coordinate of the error N of a mean vector; its law is bounded for every coordinate.

    The bounds are those of either sign, so the errors of two arms are one sum of directions.
    """

    law: Directions | EvenCapReports

    @property
    def variance(self) -> float:
        """The largest variance."""
        return self.law.coordinate_variance

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
        both: dict[str, Any] = {"unit": max(one.unit, two.unit)}
        for field in dataclasses.fields(one):
            first, second = getattr(one, field.name), getattr(two, field.name)
            if isinstance(first, np.ndarray):
                both[field.name] = np.concatenate([first, second])
            elif isinstance(first, tuple):
                both[field.name] = first + second
        return CoordinateNoise(dataclasses.replace(one, **both))


def mean_and_noise(
    mechanism: RankedDirections, table: Counts, shares: Floats, question: Question
) -> tuple[Floats, CoordinateNoise, float, float]:
    """Return the mean vector in the unit ball, its noise, and what can move it beyond.

    Parameters
    ----------
    mechanism : RankedDirections
    table : ndarray of int64, shape (levels, columns)
        With reports.
    shares : ndarray of float64, shape (levels,)
    question : Question
        Its `beta` is that of the comparison; a part of it may be spent on the noise.

    Returns
    -------
    mean : ndarray of float64, shape (d,)
    noise : CoordinateNoise
    outside : float
        The probability that the noise is larger than that.
    slack : float
        What rounding can move the mean by.
    """
    mean, law, slack = mechanism.mean_and_law(table, shares)
    if isinstance(law, CapReports):
        outside = SPENT / 2 * question.beta
        each = math.log(outside / law.dimension)
        return mean, CoordinateNoise(law.even(each, question.bound)), outside, slack
    assert isinstance(law, Directions)  # noqa: S101
    return mean, CoordinateNoise(law), 0.0, slack


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
