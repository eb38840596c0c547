"""Comparisons of mean vectors: the error of a difference is a sum of directions of both arms."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bounds import Directions
from estimators.bounds.ranked_directions.bennett import (
    MIN_VARIANCE,
    bennett_deviation,
    bennett_factor,
    bennett_length,
)
from estimators.bounds.ranked_directions.coordinates import (
    SQUARES_SHARE,
    CoordinateBounds,
    UniformCoordinateBounds,
)
from estimators.bounds.spheres import VectorLaw
from estimators.estimate import Counts, Floats
from estimators.mechanisms.caps import Caps
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from estimators.question import Question

NARROW = 0.5
"""The share of a report's largest mean square that the square of its mean can have at some level:
from here on, a part of beta is spent on learning how much it is. A constant of the metric."""


@dataclasses.dataclass(frozen=True)
class CoordinateNoise:
    """One coordinate of the error N of a mean vector; its law is bounded for every coordinate.

    The bounds are those of either sign, so the errors of two arms are one sum of directions.

    Parameters
    ----------
    law : Directions or UniformCoordinateBounds
    own : VectorLaw
        The law of one arm by itself.
    spread : float
        A bound on the variance of N_j, which `law` does not know of; infinite without.
    trace : float
        The same for E |N|^2.
    outside : float
        The probability that `trace` is too small.
    """

    law: Directions | UniformCoordinateBounds
    own: VectorLaw
    spread: float = math.inf
    trace: float = math.inf
    outside: float = 0.0

    @property
    def variance(self) -> float:
        """The largest variance."""
        return min(self.law.coordinate_variance, self.spread)

    @property
    def max_tilt(self) -> float:
        """The largest tilt for :meth:`cumulant`."""
        return self.law.max_tilt

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt N_j), on either side."""
        found = self.law.cumulant(tilt)
        if isinstance(self.law, Directions) or math.isinf(self.spread):
            return found
        return np.minimum(found, self.spread * bennett_factor(tilt, self.law.max_deviation(1.0)))

    def deviation(self, log_p: float) -> float:
        """Bound abs(N_j) with probability 1 - 2 p."""
        found = self.law.coordinate_deviation(log_p)
        if isinstance(self.law, Directions) or math.isinf(self.spread):
            return found
        narrow = np.array([self.spread]), self.law.max_deviation(1.0), log_p
        return min(found, float(bennett_deviation(*narrow)[0]))

    def radius(self, beta: float) -> float:
        """Bound abs(N) with probability 1 - beta."""
        log_beta = math.log(beta - self.outside)
        found = self.law.radius(log_beta)
        if isinstance(self.law, Directions) or math.isinf(self.trace):
            return found
        longest = self.law.max_deviation(1 + math.sqrt(self.law.dimension) * self.law.unit)
        return min(found, bennett_length(self.law.dimension, self.trace, longest, log_beta))

    def joined_with(self, other: CoordinateNoise) -> CoordinateNoise:
        """Return the noise of the difference."""
        one, two = self.law, other.law
        both: dict[str, Any] = {"unit": max(one.unit, two.unit)}
        for field in dataclasses.fields(one):
            first, second = getattr(one, field.name), getattr(two, field.name)
            if isinstance(first, np.ndarray):
                both[field.name] = np.concatenate([first, second])
            elif isinstance(first, tuple):
                both[field.name] = first + second
        return dataclasses.replace(
            self,
            law=dataclasses.replace(one, **both),
            spread=self.spread + other.spread,
            trace=self.trace + other.trace,
            outside=self.outside + other.outside,
        )


def mean_and_noise(
    mechanism: RankedDirections, table: Counts, shares: Floats, question: Question, total: float
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
    total : float
        From :func:`estimators.weights.total_weight`.

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
    if not isinstance(law, CoordinateBounds):
        assert isinstance(law, Directions)  # noqa: S101
        return mean, CoordinateNoise(law, law), 0.0, slack
    share = SQUARES_SHARE / 2 * question.beta
    columns = law.columns(math.log(share / law.dimension), fixed=question.bound != "anytime")
    noise = CoordinateNoise(law.uniform_at(columns.max(axis=1)), law)
    assert isinstance(mechanism, Caps)  # noqa: S101
    if max(each.mean**2 / each.mean_squares[1] for each in mechanism.laws) < NARROW:
        return mean, noise, share, slack
    return mean, _narrow(noise, law, columns, question, total), 2 * share, slack


def _narrow(
    noise: CoordinateNoise,
    law: CoordinateBounds,
    columns: NDArray[np.intp],
    question: Question,
    total: float,
) -> CoordinateNoise:
    """Return the noise with bounds on its variance, in case the users hold nearly one vector.

    Bounds on the arm's own mean fail with probability SPENT / 2 of beta. Unless they do, the true
    variance is below `spread`. The bound on the difference for a given variance grows with it, and
    which of several bounds is the smallest depends on the truth alone.
    """
    assert law.mean is not None  # noqa: S101
    share = SQUARES_SHARE / 2 * question.beta
    each, whole = math.log(share / (2 * law.dimension)), math.log(share)
    if question.bound == "anytime":
        side, radius = law.anytime_coordinate_deviation(each, total), math.inf
    else:
        side, radius = law.coordinate_deviation(each), law.radius(whole)
    nearest = np.maximum(np.abs(law.mean) - side, 0.0)
    left = law.variances(columns) - law.least_square_sum(nearest)
    around = max(float(np.linalg.norm(law.mean)) - radius, 0.0)
    trace = law.variance - float(law.least_square_sum(np.array([around]))[0])
    return dataclasses.replace(
        noise,
        spread=max(float(left.max()), MIN_VARIANCE),
        trace=max(trace, MIN_VARIANCE),
        outside=share,
    )


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
        return one.joined_with(two).radius(beta)
    half = math.log(beta / 2)
    return one.own.anytime_radius(half, totals[0]) + two.own.anytime_radius(half, totals[1])
