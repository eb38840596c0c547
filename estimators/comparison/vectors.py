"""Comparisons of mean vectors: the error of a difference is a sum of directions of both arms."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from estimators.bounds import Directions
from estimators.bounds.ranked_directions.coordinates import (
    SQUARES_SHARE,
    CoordinateBounds,
    UniformCoordinateBounds,
)
from estimators.bounds.ranked_directions.noise import (
    MIN_VARIANCE,
    bennett_deviation,
    bennett_factor,
    bennett_length,
)
from estimators.bounds.spheres import VectorLaw
from estimators.comparison.streams import joined
from estimators.estimate import Counts, Floats
from estimators.mechanisms.caps import Caps
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from estimators.question import Question

NARROW_MEAN_SHARE = 0.5
"""If the square of a report's mean can have this share of its mean square at some level, a part of
beta is spent on bounding the variance. The decision depends on the metric only, not on the data."""


@dataclasses.dataclass(frozen=True)
class CoordinateNoise:
    """Bounds on the error N of a mean vector, which hold for each of its coordinates N_j.

    They hold for N_j and -N_j, so the errors of two arms are treated as one sum. `law`: the law of
    N, of one arm or of both; `arm_law`: the law of one arm alone; `spread`, `trace`: bounds on the
    variance of N_j and on E |N|^2 besides those of `law`, infinite if there are none; `failure`:
    the probability that `trace` is too small.
    """

    law: Directions | UniformCoordinateBounds
    arm_law: VectorLaw
    spread: float = math.inf
    trace: float = math.inf
    failure: float = 0.0

    @property
    def variance(self) -> float:
        """An upper bound on the variance of a coordinate N_j."""
        return min(self.law.coordinate_variance, self.spread)

    @property
    def max_tilt(self) -> float:
        """The largest tilt for :meth:`cumulant`."""
        return float(self.law.max_tilt)

    def cumulant(self, tilt: Floats) -> Floats:
        """Return an upper bound on ln E exp(tilt N_j) and on ln E exp(-tilt N_j)."""
        bound = self.law.cumulant(tilt)
        if isinstance(self.law, Directions) or math.isinf(self.spread):
            return bound
        return np.minimum(bound, self.spread * bennett_factor(tilt, self.law.max_deviation(1.0)))

    def deviation(self, log_p: float) -> float:
        """Return a bound that abs(N_j) exceeds with probability at most 2 p; `log_p`: ln p."""
        bound = float(self.law.coordinate_deviation(log_p))
        if isinstance(self.law, Directions) or math.isinf(self.spread):
            return bound
        narrow = np.array([self.spread]), self.law.max_deviation(1.0), log_p
        return min(bound, float(bennett_deviation(*narrow)[0]))

    def radius(self, beta: float) -> float:
        """Return a bound that the length of N exceeds with probability at most `beta`."""
        log_beta = math.log(beta - self.failure)
        bound = float(self.law.radius(log_beta))
        if isinstance(self.law, Directions) or math.isinf(self.trace):
            return bound
        longest = self.law.max_deviation(1 + math.sqrt(self.law.dimension) * self.law.unit)
        return min(bound, float(bennett_length(self.law.dimension, self.trace, longest, log_beta)))

    def joined_with(self, second_noise: CoordinateNoise) -> CoordinateNoise:
        """Return the noise of the difference of two arms."""
        law, second_law = self.law, second_noise.law
        unit = max(law.unit, second_law.unit)
        return dataclasses.replace(
            self,
            law=dataclasses.replace(law, unit=unit, **joined(law, second_law)),
            spread=self.spread + second_noise.spread,
            trace=self.trace + second_noise.trace,
            failure=self.failure + second_noise.failure,
        )


def mean_and_noise(
    mechanism: RankedDirections, table: Counts, shares: Floats, question: Question, total: float
) -> tuple[Floats, CoordinateNoise, float, float]:
    """Return the mean vector in the unit ball, its noise, failure probability and rounding.

    Returns `mean`, shape (d,); `noise`: bounds on its error; `failure`: the probability that these
    bounds are wrong; `slack`: how far rounding can move the mean. `mechanism`, `table`: the
    mechanism and the sums of the arm, which has reports; `shares`, shape (levels,): the weights of
    the levels; `question`: a part of its `beta`, that of the comparison, may be spent on the noise;
    `total`: the result of :func:`estimators.weights.total_weight`.
    """
    mean, law, slack = mechanism.mean_and_law(table, shares)
    if not isinstance(law, CoordinateBounds):
        assert isinstance(law, Directions)  # noqa: S101
        return mean, CoordinateNoise(law, law), 0.0, slack
    share = SQUARES_SHARE / 2 * question.beta
    columns = law.columns(math.log(share / law.dimension), fixed=question.bound != "anytime")
    noise = CoordinateNoise(law.uniform_at(columns.max(axis=1)), law)
    assert isinstance(mechanism, Caps)  # noqa: S101
    assert law.mean is not None  # noqa: S101
    ratios = (level.mean**2 / level.mean_squares[1] for level in mechanism.laws)
    if max(ratios) < NARROW_MEAN_SHARE:
        return mean, noise, share, slack
    # theorem 10 of docs/proofs/comparisons.md: the variance is small if users' vectors are similar
    coordinate_log_p, length_log_p = math.log(share / (2 * law.dimension)), math.log(share)
    if question.bound == "anytime":
        side, length = law.anytime_coordinate_deviation(coordinate_log_p, total), math.inf
    else:
        side, length = law.coordinate_deviation(coordinate_log_p), law.radius(length_log_p)
    left = law.variances(columns) - law.least_square_sum(np.maximum(np.abs(law.mean) - side, 0.0))
    around = max(float(np.linalg.norm(law.mean)) - length, 0.0)
    trace = law.variance - float(law.least_square_sum(np.array([around]))[0])
    spread, trace = max(float(left.max()), MIN_VARIANCE), max(trace, MIN_VARIANCE)
    narrow = dataclasses.replace(noise, spread=spread, trace=trace, failure=share)
    return mean, narrow, 2 * share, slack


def radius(
    a: CoordinateNoise, b: CoordinateNoise, beta: float, totals: tuple[float, float] | None
) -> float:
    """Return a bound on the length of the difference's error.

    It is wrong with probability at most `beta`.

    `a`, `b`: the arms' noise; `totals`: None for fixed numbers of reports; for a bound at all
    times, the arms' results of :func:`estimators.weights.total_weight`; each arm then has half of
    beta.
    """
    if totals is None:
        return a.joined_with(b).radius(beta)
    half = math.log(beta / 2)
    radii = (arm.arm_law.anytime_radius(half, x) for arm, x in zip((a, b), totals, strict=True))
    return float(sum(radii))
