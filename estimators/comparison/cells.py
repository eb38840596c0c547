r"""Bounds on the tail of a sum of two arms, for all means in a cell.

X has a mean x in [low, high], Y an independent one y = target - factor x, and U = factor X + Y - d.
For every tilt t > 0,

    ln P(U >= 0) <= K_X(factor t; x) + K_Y(t; y) - t d + ln R,

K from :meth:`Law.cumulant`. Both K are concave in x, so their tangent at any point bounds them, and
the tangent is largest at an end of the cell. A mean y above 1 is replaced by 1: the tangent of K_Y
grows. Where y would be below -1, no population has these means.

**The remainder.** With one mean and signs the tilted law P' of U = X + Y - d is a sum of signs, and
R = E'[e^(-tU); U >= 0] is at most a normal integral plus twice a Berry-Esseen term
(Theorem 3 of docs/proofs/inversion.md). In a cell, U has a variance between v1 and v2 and a mean
within w of m. The density of a normal law of variance v is at most sqrt(v2 / v1) times that of
variance v2, so that with h(m) = E[e^(-tN); N >= 0], N normal with mean m and variance v2,

    R <= sqrt(v2 / v1) h(m) e^(w |h'(m) / h(m)|) + 1.12 rho / v1^1.5,

because ln h is concave (a marginal of a log-concave function). A tilted sign's mean grows with its
mean and is concave in it, so the mean of U is concave in x: it is at least its value at an end of
the cell, and at most where the tangents at the two ends meet.

**Other laws** (values with noise, a mean for each level, the users' own values) have R = 1, or the
plain Berry-Esseen theorem with the moments that x in the cell leaves possible
(:mod:`estimators.comparison.moments`), or Hoeffding's inequality: whichever gives the least.

**A range of factors.** A ratio r of two means m = o + theta, o >= 1, is tested with the factor r
and the target (r - 1) o, so that y = r (o - x) - o: the sum itself depends on r. For all r' in [r -
back, r] at once, with x and t as they are, the exponent changes with r' by at least

    t (x - what was observed of X) + s (o - x),

s the slope of the tangent of K_Y, because a tilted mean of X is at least x. Where this is negative,
it is added for the whole of `back`. For R, the tilted variances are those of all factors in the
range; the mean of U changes with r' by the tilted mean of X less what was observed, plus r' t times
the variance of X, plus at most o - x times the derivative of Y's tilted mean, at least 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from estimators.bounds.normal import BERRY_ESSEEN
from estimators.bounds.signs.law import Law, tilted_signs
from estimators.comparison.moments import log_berry_esseen, moments_within
from estimators.estimate import Floats


class Line(NamedTuple):
    """The means that a hypothesis allows, in rows: y = target - factor x.

    For a ratio, `factor` may be smaller by up to `back`, and the target with it: `origin` is o.
    """

    target: Floats
    factor: Floats
    back: Floats
    origin: float = 1.0


class Cells(NamedTuple):
    """Rows of cells.

    Parameters
    ----------
    first, second : Law
        Of X and of Y.
    known, observed : ndarray of float64, shape (rows,)
        What was observed of X, and of factor X + Y.
    low, high : ndarray of float64, shape (rows,)
        The ends of each cell, in [-1, 1]; no y is below -1.
    line : Line
    sharp : bool
        Whether the means determine the laws: signs with one mean.
    """

    first: Law
    second: Law
    known: Floats
    observed: Floats
    low: Floats
    high: Floats
    line: Line
    sharp: bool

    def rest(self, x: Floats) -> Floats:
        """Return y within the domain."""
        return np.clip(self.line.target - self.line.factor * x, -1.0, 1.0)

    def _beyond(self, x: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return where y would be above 1."""
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
            self.line.target - self.line.factor * x > 1
        )
        return found

    def hardest(self, tilt: Floats) -> Floats:
        """Return about where K_X + K_Y is largest: a zero of its slope, which falls with x."""
        factor = self.line.factor

        def slope(x: Floats) -> Floats:
            of_second = self.second.tangent(self.rest(x), tilt)[1]
            falls = np.where(self._beyond(x), 0, factor * of_second)
            return self.first.tangent(x, factor * tilt)[1] - falls

        low, high = slope(self.low), slope(self.high)
        share = np.clip(low / np.maximum(low - high, 1e-300), 0, 1)
        share = np.where(low <= 0, 0.0, np.where(high >= 0, 1.0, share))
        return self.low + share * (self.high - self.low)

    def better(self, tilt: Floats) -> Floats:
        """Return a step of Newton's method towards the best tilt."""
        x, factor = self.hardest(tilt), self.line.factor
        one, two = self.first.cumulant(x, factor * tilt), self.second.cumulant(self.rest(x), tilt)
        excess = factor * one.by_tilt + two.by_tilt - self.observed
        moved = tilt - excess / np.maximum(factor**2 * one.curvature + two.curvature, 1e-300)
        return np.clip(moved, tilt / 4, tilt * 4)

    def log_chance(self, tilt: Floats, *, chernoff: bool = False) -> tuple[Floats, Floats]:
        """Return the bound on ln P in each cell, and the slope of K_Y.

        If the means do not determine the laws, it is the least of Chernoff's bound, Hoeffding's and
        the Berry-Esseen theorem's. `chernoff`: only the first one.
        """
        x, (target, factor, back, origin) = self.hardest(tilt), self.line
        y = self.rest(x)
        of_first, rises = self.first.tangent(x, factor * tilt)
        of_second, falls = self.second.tangent(y, tilt)
        # the lines at the ends; that of Y may go on above 1, where it is larger still
        ends = [
            rises * (end - x) + falls * (target - factor * end - y) for end in (self.low, self.high)
        ]
        by_factor = [
            tilt * (end - self.known) + falls * (origin - end) for end in (self.low, self.high)
        ]
        lost = back * np.maximum(-np.minimum(*by_factor), 0)
        bound = of_first + of_second + np.maximum(*ends) - tilt * self.observed + lost
        if chernoff:
            return bound, falls
        if self.sharp:
            return bound + self._log_remainder(tilt), falls
        bounds = [bound, np.zeros_like(bound)]
        excess = self.observed - target
        excess = np.maximum(np.minimum(excess, excess + back * (origin - self.known)), 0)
        if self.first.rate is None and self.second.rate is None:
            proxy = factor**2 * self.first.proxy + self.second.proxy
            bounds.append(-(excess**2) / (2 * proxy))
        one = moments_within(self.first, self.low, self.high)
        two = moments_within(self.second, *self._rest_range())
        if one is not None and two is not None:
            factors = factor - back, factor
            bounds.append(log_berry_esseen(one, two, excess, factors))
        return np.minimum.reduce(bounds), falls

    def _rest_range(self) -> tuple[Floats, Floats]:
        """Return the least and the largest y."""
        target, factor, back, origin = self.line
        lowest = target - factor * self.high - back * (origin - self.high)
        return np.clip(lowest, -1.0, 1.0), self.rest(self.low)

    def _log_remainder(self, tilt: Floats) -> Floats:
        """Bound ln R in each cell."""
        from scipy.special import log_ndtr

        _, factor, back, origin = self.line
        least_factor, (lowest, highest) = factor - back, self._rest_range()
        one = Tilted.within(self.first, least_factor * tilt, factor * tilt, self.low, self.high)
        two = Tilted.within(self.second, tilt, tilt, lowest, highest)
        least = least_factor**2 * one.least + two.least
        largest = factor**2 * one.largest + two.largest
        third = factor**3 * one.third + two.third
        bottom, top = self._mean_range(tilt)
        # at smaller factors
        falls = one.means[0] - self.known + least_factor * tilt * one.least
        rises = one.means[1] - self.known + factor * tilt * one.largest
        rises = rises + two.slopes[0] * (origin - self.low)
        bottom = bottom - back * np.maximum(rises, 0)
        top = top - back * np.minimum(falls, 0)
        helps = (third < least**1.5) & (least > 0)
        safe, spread = np.where(helps, least, 1.0), np.where(helps, largest, 1.0)
        sd, middle, half = np.sqrt(spread), (top + bottom) / 2, (top - bottom) / 2
        steps = tilt * sd
        place = middle / sd - steps
        log_normal = log_ndtr(place) + steps * (steps / 2 - middle / sd)
        # (ln h)' = -t + phi(place) / (Phi(place) sd)
        hazard = np.exp(-(place**2) / 2 - log_ndtr(place)) / np.sqrt(2 * np.pi)
        log_normal = log_normal + half * np.abs(hazard / sd - tilt) + np.log(spread / safe) / 2
        remainder = np.exp(np.minimum(log_normal, 0)) + 2 * BERRY_ESSEEN * third / safe**1.5
        result: Floats = np.where(helps, np.log(np.minimum(remainder, 1)), 0.0)
        return result

    def _mean_range(self, tilt: Floats) -> tuple[Floats, Floats]:
        """Enclose the mean of U, concave in x: at the ends, and where the tangents there meet."""
        factor, step = self.line.factor, self.high - self.low
        steep = factor * tilt
        one = Tilted.within(self.first, steep, steep, self.low, self.high)
        two = Tilted.within(self.second, tilt, tilt, self.rest(self.high), self.rest(self.low))
        at_low = factor * one.means[0] + two.means[1] - self.observed
        at_high = factor * one.means[1] + two.means[0] - self.observed
        moves = [np.where(self._beyond(x), 0, factor) for x in (self.low, self.high)]
        rises = factor * one.slopes[0] - moves[0] * two.slopes[1]
        falls = factor * one.slopes[1] - moves[1] * two.slopes[0]
        across = np.maximum(rises - falls, 1e-300)
        meet = np.clip((at_high - at_low - falls * step) / across, 0, step)
        top = np.where(rises <= 0, at_low, np.where(falls >= 0, at_high, at_low + rises * meet))
        return np.minimum(at_low, at_high), np.maximum(top, np.maximum(at_low, at_high))


class Tilted(NamedTuple):
    """The tilted law of a sum of signs, for all means and tilts in intervals.

    `means` and `slopes` are those at the two ends; slopes are derivatives by the mean.
    """

    means: tuple[Floats, Floats]
    slopes: tuple[Floats, Floats]
    least: Floats
    largest: Floats
    third: Floats

    @classmethod
    def within(cls, law: Law, flat: Floats, steep: Floats, low: Floats, high: Floats) -> Tilted:
        """Return the law for means in [low, high] and tilts in [flat, steep].

        A tilted sign's mean grows with both.

        Parameters
        ----------
        law : Law
            Of signs with one mean.
        flat, steep, low, high : ndarray of float64, shape (rows,)
        """
        weight = law.counts * law.coefficient
        known = 0.0 if law.offset is None else float(weight @ law.offset)
        means, slopes, ends = [], [], []
        for tilt, end in ((flat, low), (steep, high)):
            z = tilt[:, None] * law.coefficient
            _, tilted, _, tanh, bottom = tilted_signs(z, law.means(end))
            ends.append(tilted)
            means.append(tilted @ weight - known)
            slopes.append(((1 - tanh) * (1 + tanh) / bottom**2) @ (weight * law.contrast))
        squares = np.square(ends[0]), np.square(ends[1])
        largest = np.maximum(*squares)
        least = np.where(ends[0] * ends[1] <= 0, 0.0, np.minimum(*squares))
        square = weight * law.coefficient
        return cls(
            (means[0], means[1]),
            (slopes[0], slopes[1]),
            (1 - largest) @ square,
            (1 - least) @ square,
            (1 - least**2) @ (square * law.coefficient),
        )
