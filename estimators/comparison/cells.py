r"""Bounds on the tail of a sum of two arms, for all means in a cell.

Theorems 2, 3 and 8 of docs/proofs/comparisons.md. X and Y are independent sums with the means x in
[low, high] and y = target - factor x, and U = factor X + Y - d, where d is the observed value of
factor X + Y. For every tilt t > 0 the bound uses a tangent of the concave sum of cumulants K_X +
K_Y; a mean y above 1 is replaced by 1. R is the tilted remainder if reports are signs with the same
mean, and 1 otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from estimators.bounds.normal import BERRY_ESSEEN
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.signs.law import Law, Moments, tilted_signs
from estimators.bounds.signs.repeated import RepeatedLaw
from estimators.estimate import Bools, Floats


class HypothesisLine(NamedTuple):
    """The means x, y that a hypothesis allows: y = target - factor x, for each row.

    For a ratio of means o + theta with o = `origin`, `factor` may be smaller by up to `back`, which
    changes the target accordingly.
    """

    target: Floats
    factor: Floats
    back: Floats
    origin: float = 1.0


class Cells(NamedTuple):
    """Cells of means x, one in each row, and what their bounds are computed from.

    `first`, `second`: the laws of X and of Y; `first_observed`, `observed`, shape (rows,): the
    observed values of X and of factor X + Y; `low`, `high`, shape (rows,): the ends of each cell of
    x, in [-1, 1], where y is at least -1; `line`: the hypothesis of each row; `sharp`: whether the
    means determine the laws, because reports are signs with the same mean.
    """

    first: Law
    second: Law
    first_observed: Floats
    observed: Floats
    low: Floats
    high: Floats
    line: HypothesisLine
    sharp: bool

    def second_mean(self, x: Floats) -> Floats:
        """Return the mean y that belongs to x, clipped to its domain."""
        return np.clip(self.line.target - self.line.factor * x, -1.0, 1.0)

    def _exceeds_one(self, x: Floats) -> Bools:
        return self.line.target - self.line.factor * x > 1

    def worst_mean(self, tilt: Floats) -> Floats:
        """Return nearly the x of the largest K_X + K_Y: a zero of its slope, which falls with x."""
        factor = self.line.factor

        def slope(x: Floats) -> Floats:
            of_second = self.second.tangent(self.second_mean(x), tilt)[1]
            falls = np.where(self._exceeds_one(x), 0, factor * of_second)
            return self.first.tangent(x, factor * tilt)[1] - falls

        low, high = slope(self.low), slope(self.high)
        share = np.clip(low / np.maximum(low - high, 1e-300), 0, 1)
        share = np.where(low <= 0, 0.0, np.where(high >= 0, 1.0, share))
        return self.low + share * (self.high - self.low)

    def improve_tilt(self, tilt: Floats) -> Floats:
        """Return the tilts after one step of Newton's method towards the best tilts."""
        x, factor = self.worst_mean(tilt), self.line.factor
        first = self.first.cumulant(x, factor * tilt)
        second = self.second.cumulant(self.second_mean(x), tilt)
        excess = factor * first.by_tilt + second.by_tilt - self.observed
        moved = tilt - excess / np.maximum(factor**2 * first.curvature + second.curvature, 1e-300)
        return np.clip(moved, tilt / 4, tilt * 4)

    def log_chance(self, tilt: Floats, *, chernoff: bool = False) -> tuple[Floats, Floats]:
        """Return an upper bound on ln P(U >= 0) in each cell, and the slope of K_Y.

        If the means do not determine the laws, the bound is the least of Chernoff's, Hoeffding's
        and that of the Berry-Esseen theorem. `chernoff`: whether to use only Chernoff's.
        """
        x, (target, factor, back, origin) = self.worst_mean(tilt), self.line
        y = self.second_mean(x)
        of_first, rises = self.first.tangent(x, factor * tilt)
        of_second, falls = self.second.tangent(y, tilt)
        # lines at the ends of the cell; that of Y is also valid above 1, where it is larger
        ends = self.low, self.high
        lines = [rises * (end - x) + falls * (target - factor * end - y) for end in ends]
        by_factor = [tilt * (end - self.first_observed) + falls * (origin - end) for end in ends]
        lost = back * np.maximum(-np.minimum(*by_factor), 0)
        bound = of_first + of_second + np.maximum(*lines) - tilt * self.observed + lost
        if chernoff:
            return bound, falls
        if self.sharp:
            return bound + self._log_remainder(tilt), falls
        bounds = [bound, np.zeros_like(bound)]
        excess = self.observed - target
        excess = np.maximum(np.minimum(excess, excess + back * (origin - self.first_observed)), 0)
        if self.first.rate is None and self.second.rate is None:
            proxy = factor**2 * self.first.proxy + self.second.proxy
            bounds.append(-(excess**2) / (2 * proxy))
        first_moments = moments_within(self.first, self.low, self.high)
        second_moments = moments_within(self.second, *self._second_mean_range())
        if first_moments is not None and second_moments is not None:
            factors = factor - back, factor
            bounds.append(log_berry_esseen(first_moments, second_moments, excess, factors))
        return np.minimum.reduce(bounds), falls

    def _second_mean_range(self) -> tuple[Floats, Floats]:
        target, factor, back, origin = self.line
        lowest = target - factor * self.high - back * (origin - self.high)
        return np.clip(lowest, -1.0, 1.0), self.second_mean(self.low)

    def _log_remainder(self, tilt: Floats) -> Floats:
        from scipy.special import log_ndtr

        _, factor, back, origin = self.line
        least_factor, (lowest, highest) = factor - back, self._second_mean_range()
        first = TiltedSigns.of_range(
            self.first, least_factor * tilt, factor * tilt, self.low, self.high
        )
        second = TiltedSigns.of_range(self.second, tilt, tilt, lowest, highest)
        least_variance = least_factor**2 * first.least_variance + second.least_variance
        largest_variance = factor**2 * first.largest_variance + second.largest_variance
        third = factor**3 * first.third + second.third
        bottom, top = self._mean_range(tilt)
        # bounds at smaller factors
        falls = first.means[0] - self.first_observed + least_factor * tilt * first.least_variance
        rises = first.means[1] - self.first_observed + factor * tilt * first.largest_variance
        rises = rises + second.slopes[0] * (origin - self.low)
        bottom = bottom - back * np.maximum(rises, 0)
        top = top - back * np.minimum(falls, 0)
        helps = (third < least_variance**1.5) & (least_variance > 0)
        safe, spread = np.where(helps, least_variance, 1.0), np.where(helps, largest_variance, 1.0)
        sd, middle, half = np.sqrt(spread), (top + bottom) / 2, (top - bottom) / 2
        steps = tilt * sd
        z = middle / sd - steps
        log_normal = log_ndtr(z) + steps * (steps / 2 - middle / sd)
        # (ln h)' = -t + phi(z) / (Phi(z) sd)
        hazard = np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi)
        log_normal = log_normal + half * np.abs(hazard / sd - tilt) + np.log(spread / safe) / 2
        remainder = np.exp(np.minimum(log_normal, 0)) + 2 * BERRY_ESSEEN * third / safe**1.5
        return np.where(helps, np.log(np.minimum(remainder, 1)), 0.0)

    def _mean_range(self, tilt: Floats) -> tuple[Floats, Floats]:
        """Return bounds on U's tilted mean, concave in x, from values and tangents at the ends."""
        factor, step = self.line.factor, self.high - self.low
        steep = factor * tilt
        first = TiltedSigns.of_range(self.first, steep, steep, self.low, self.high)
        second = TiltedSigns.of_range(
            self.second, tilt, tilt, self.second_mean(self.high), self.second_mean(self.low)
        )
        at_low = factor * first.means[0] + second.means[1] - self.observed
        at_high = factor * first.means[1] + second.means[0] - self.observed
        moves = [np.where(self._exceeds_one(x), 0, factor) for x in (self.low, self.high)]
        rises = factor * first.slopes[0] - moves[0] * second.slopes[1]
        falls = factor * first.slopes[1] - moves[1] * second.slopes[0]
        across = np.maximum(rises - falls, 1e-300)
        meet = np.clip((at_high - at_low - falls * step) / across, 0, step)
        top = np.where(rises <= 0, at_low, np.where(falls >= 0, at_high, at_low + rises * meet))
        return np.minimum(at_low, at_high), np.maximum(top, np.maximum(at_low, at_high))


class TiltedSigns(NamedTuple):
    """Bounds on the tilted law of a sum of signs, for all means and tilts in intervals.

    `means`, `slopes`: the tilted means, and their derivatives in the mean, at the two ends;
    `third`: an upper bound on the sum of the third absolute central moments.
    """

    means: tuple[Floats, Floats]
    slopes: tuple[Floats, Floats]
    least_variance: Floats
    largest_variance: Floats
    third: Floats

    @classmethod
    def of_range(
        cls, law: Law, flat: Floats, steep: Floats, low: Floats, high: Floats
    ) -> TiltedSigns:
        """Return the bounds for all means in [low, high] and all tilts in [flat, steep].

        The tilted mean of a sign grows with its mean and the tilt. `law`: the law of signs with the
        same mean; `flat`, `steep`, `low`, `high`, shape (rows,): the ends of the intervals.
        """
        weight = law.counts * law.coefficient
        offset_mean = 0.0 if law.offset is None else float(weight @ law.offset)
        means, slopes, ends = [], [], []
        for tilt, end in ((flat, low), (steep, high)):
            z = tilt[:, None] * law.coefficient
            _, tilted, _, tanh, bottom = tilted_signs(z, law.means(end))
            ends.append(tilted)
            means.append(tilted @ weight - offset_mean)
            slopes.append(((1 - tanh) * (1 + tanh) / bottom**2) @ (weight * law.contrast))
        squares = np.square(ends[0]), np.square(ends[1])
        largest_square = np.maximum(*squares)
        least_square = np.where(ends[0] * ends[1] <= 0, 0.0, np.minimum(*squares))
        square = weight * law.coefficient
        return cls(
            (means[0], means[1]),
            (slopes[0], slopes[1]),
            (1 - largest_square) @ square,
            (1 - least_square) @ square,
            (1 - least_square**2) @ (square * law.coefficient),
        )


def moments_within(law: Law, low: Floats, high: Floats) -> Moments | None:
    """Return bounds on the moments of a sum for all means within [low, high], in [-1, 1].

    Without an offset, variances fall with abs(theta), and so do third moments up to a factor of at
    most 1 + abs(theta). With an offset and free means, both are concave in the levels' means, and
    below their tangent planes at the middle of the interval. None if there are no such bounds.
    `law`: the law of the sum; `low`, `high`, shape (rows,): the ends of the intervals.
    """
    if isinstance(law, PiecewiseLaw):
        return law.moments_around((low + high) / 2, (high - low) / 2)
    repeated_and_free = law.free and isinstance(law, RepeatedLaw)
    if law.offset is None and not repeated_and_free:
        ends = np.abs(low), np.abs(high)
        farthest = np.maximum(*ends)
        nearest = np.where(low * high <= 0, 0.0, np.minimum(*ends))
        at_nearest, at_farthest = law.moments(nearest), law.moments(farthest)
        grown = ((1 + farthest) / (1 + nearest))[:, None]
        return Moments(
            np.minimum(at_nearest.least_variance, at_farthest.least_variance),
            np.maximum(at_nearest.largest_variance, at_farthest.largest_variance),
            np.maximum(at_nearest.third, at_farthest.third) * grown,
        )
    if repeated_and_free or not law.free:
        return None
    return law.free_sign_moments((low + high) / 2, (high - low) / 2)


def log_berry_esseen(
    first: Moments, second: Moments, excess: Floats, factors: tuple[Floats, Floats]
) -> Floats:
    """Return an upper bound on ln P(factor X + Y exceeds its mean by `excess`).

    The bound is the largest over all pairs of pieces. `first`, `second`: the moments of X and of Y,
    shapes (rows, pieces); `excess`, shape (rows,): at least 0, and at most the distance of the
    observed sum from its mean; `factors`: the least and the largest factor, at least 0, shapes
    (rows,).
    """
    from scipy.special import ndtr

    flat, steep = (x[:, None] for x in factors)
    powers = flat**2, steep**2, steep**3
    scaled = [moment * power for moment, power in zip(first, powers, strict=True)]
    least_variance, largest_variance, third = (
        x[:, :, None] + y[:, None, :] for x, y in zip(scaled, second, strict=True)
    )
    safe = np.maximum(least_variance, 1e-300)
    chance = ndtr(-excess[:, None, None] / np.sqrt(np.maximum(largest_variance, 1e-300)))
    chance = np.where(least_variance > 0, chance + BERRY_ESSEEN * third / safe**1.5, 1.0)
    return np.asarray(np.log(np.minimum(chance.max(axis=(1, 2)), 1.0)))
