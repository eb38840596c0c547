r"""The test of a sum of two means, for a fixed number of reports: one probability for both arms.

A comparison of two arms is a statement about x + y: x is the mean of the first sum of reports X, y
that of an independent second one Y. (For a difference, Y is the sum of the second arm with its sign
changed.) The hypothesis x + y = delta leaves x unknown. After Berger and Boos (1994), an interval C
for x, which fails with a small probability, is computed from X alone, and delta is rejected if

    P(X + Y >= what was observed) is proved to be at most p, for every x in C with y = delta - x.

The true x is outside C, or its own p-value is at most p: so the test fails with probability at most
p plus that of C. One such delta proves all smaller ones: with x as it is, y is smaller, and Y
stochastically smaller. It does not matter how delta, the tilts or the cells below were found.

**The bound.** For every tilt t > 0,

    ln P(X + Y >= d) <= K_X(t; x) + K_Y(t; y) - t d + ln R,

K from :meth:`Law.cumulant`. C is cut into cells, each with a tilt of its own. Within a cell K_X +
K_Y is concave in x, so its tangent at any point bounds it, and the tangent is largest at an end of
the cell. A mean y above 1 is replaced by 1: the tangent of K_Y grows. Where y would be below -1
for all of a cell, no population has these means.

**The remainder.** With one mean and signs the tilted law P' of U = X + Y - d is a sum of signs, and
R = E'[e^(-tU); U >= 0] is at most a normal integral plus twice a Berry-Esseen term
(:mod:`estimators.bounds.tails`). In a cell, U has a variance between v1 and v2 and a mean within w
of m. The density of a normal law of variance v is at most sqrt(v2 / v1) times that of variance v2,
so that with h(m) = E[e^(-tN); N >= 0], N normal with mean m and variance v2,

    R <= sqrt(v2 / v1) h(m) e^(w |h'(m) / h(m)|) + 1.12 rho / v1^1.5,

because ln h is concave (a marginal of a log-concave function). A tilted sign's mean grows with its
mean and is concave in it, so the mean of U is concave in x: it is at least its value at an end of
the cell, and at most where the tangents at the two ends meet.

**Other laws** (values with noise, a mean for each level, the users' own values) have R = 1, or the
plain Berry-Esseen theorem with the moments that x in the cell leaves possible
(:mod:`estimators.comparison.moments`), or Hoeffding's inequality: whichever gives the least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from estimators.bounds.inversion import CLOSE, ROUNDING, SAFETY
from estimators.bounds.laws.law import Law, tilted_signs
from estimators.bounds.laws.repeated import RepeatedLaw
from estimators.bounds.tails import BERRY_ESSEEN
from estimators.comparison.moments import log_berry_esseen, moments_within
from estimators.estimate import Floats

CELLS = 4  # of the interval for the first mean
STEPS = 40
TURNS = 2  # of Newton's method for a tilt, at each step


class _Worst(NamedTuple):
    """The largest bound on ln P over the cells, shape (k,); its slope; the cells' next tilts."""

    log_chance: Floats
    slope: Floats
    tilts: Floats


def lower_limit(
    first: Law, second: Law, observed: Floats, near: tuple[Floats, Floats], log_p: float
) -> Floats:
    """Return a sum of means that each observed sum rejects as too small, or -2.

    Parameters
    ----------
    first, second : Law
        The laws of X and of Y.
    observed : ndarray of float64, shape (k,)
        X + Y, for each of k categories.
    near : pair of ndarray of float64, shape (k,)
        C: the ends of an interval for the mean of X.
    log_p : float
        ln p, the failure probability beside that of C.

    Returns
    -------
    ndarray of float64, shape (k,)
        Within [-2, 2].
    """
    goal, test = log_p - SAFETY, _Test(first, second, observed, near, log_p)
    aim = goal - CLOSE / 2
    # for a normal tail, the slope of ln p(delta) is that of the cumulant times this
    sharper = 1 + 1 / max(1.0, -2 * log_p - 2)
    found = np.full_like(observed, -2.0)
    low, high = found.copy(), np.where(observed > 2, np.inf, np.maximum(observed, -2.0))
    delta = np.clip(np.minimum(observed, 2.0) - 0.9 * test.width, -2.0, 2.0)
    tilts = test.first_tilts
    for _ in range(STEPS):
        at = test.worst(delta, tilts)
        rejected = at.log_chance <= goal
        low = np.where(rejected, np.maximum(low, delta), low)
        high = np.where(rejected, high, np.minimum(high, delta))
        found = np.maximum(found, low)
        done = (rejected & (at.log_chance >= goal - CLOSE)) | (low >= 2)
        done |= high - low <= CLOSE / 4 * test.width
        if done.all():
            break
        wanted = delta + (aim - at.log_chance) / np.maximum(at.slope * sharper, 1e-12)
        between = np.where(np.isfinite(high), (low + high) / 2, low + test.width)
        between = np.where(wanted <= low, low + (np.minimum(high, 2) - low) / 16, between)
        inside = (wanted > low) & (wanted < high)
        delta = np.where(done, low, np.minimum(np.where(inside, wanted, between), 2.0))
        tilts = at.tilts
    slack = ROUNDING * 2 + first.offset_rounding + second.offset_rounding
    return np.maximum(found - slack, -2.0)


def log_chance(
    first: Law,
    second: Law,
    observed: Floats,
    near: tuple[Floats, Floats],
    log_p: float,
    delta: float = 0.0,
) -> Floats:
    """Bound ln P(X + Y >= observed) for the sum of means `delta` and all x in C, at most 0.

    Parameters
    ----------
    first, second, observed, near
        As in :func:`lower_limit`.
    log_p : float
        About ln P: for a first guess of the tilts.
    delta : float
    """
    test, at = _Test(first, second, observed, near, log_p), np.full_like(observed, delta)
    tilts, least = test.first_tilts, np.zeros_like(observed)
    for _ in range(6):
        worst = test.worst(at, tilts)
        least, tilts = np.minimum(least, worst.log_chance), worst.tilts
    return least


class _Test:
    """The cells of C and the bound in each, for k categories."""

    def __init__(
        self,
        first: Law,
        second: Law,
        observed: Floats,
        near: tuple[Floats, Floats],
        log_p: float,
    ) -> None:
        self.first, self.second, self.observed = first, second, observed
        low, high = near
        edges = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, CELLS + 1)
        self.low, self.high = edges[:, :-1].copy(), edges[:, 1:].copy()
        middle = np.clip((low + high) / 2, -1, 1)
        rest = np.clip(observed - middle, -1, 1)
        variance = first.largest_variance(middle) + second.largest_variance(rest)
        self.width = np.sqrt(-2 * log_p * variance)
        steepest = min(first.steepest, second.steepest)
        tilt = np.minimum(np.sqrt(-2 * log_p / variance), steepest)
        self.steepest, self.first_tilts = steepest, np.repeat(tilt[:, None], CELLS, axis=1)
        self.sharp = all(x.exact and not isinstance(x, RepeatedLaw) for x in (first, second))

    def worst(self, delta: Floats, tilts: Floats) -> _Worst:
        """Return the largest bound over the cells, for a sum of means `delta`, shape (k,)."""
        shape = self.low.shape
        target = np.repeat(delta, CELLS)
        low = np.minimum(self.low.ravel(), 1.0)
        high = np.minimum(self.high.ravel(), target + 1)  # beyond, y would be below -1
        empty = low > high
        high = np.maximum(low, high)
        cells = _Cells(self.first, self.second, np.repeat(self.observed, CELLS), low, high, target)
        tilt = tilts.ravel()
        for _ in range(TURNS):
            tilt = np.minimum(cells.better(tilt), self.steepest)
        chance, slope = cells.log_chance(tilt, self.sharp)
        chance = np.where(empty, -np.inf, chance).reshape(shape)
        place = chance.argmax(axis=1)[:, None]
        return _Worst(
            np.take_along_axis(chance, place, axis=1)[:, 0],
            np.take_along_axis(slope.reshape(shape), place, axis=1)[:, 0],
            tilt.reshape(shape),
        )


class _Cells(NamedTuple):
    """Rows of cells: x within [low, high], y = target - x."""

    first: Law
    second: Law
    observed: Floats
    low: Floats
    high: Floats
    target: Floats

    def rest(self, x: Floats) -> Floats:
        """Return y within the domain."""
        return np.clip(self.target - x, -1.0, 1.0)

    def hardest(self, tilt: Floats) -> Floats:
        """Return about where K_X + K_Y is largest: a zero of its slope, which falls with x."""

        def slope(x: Floats) -> Floats:
            of_second = self.second.tangent(self.rest(x), tilt)[1]
            return self.first.tangent(x, tilt)[1] - np.where(self.target - x > 1, 0, of_second)

        low, high = slope(self.low), slope(self.high)
        share = np.clip(low / np.maximum(low - high, 1e-300), 0, 1)
        share = np.where(low <= 0, 0.0, np.where(high >= 0, 1.0, share))
        return self.low + share * (self.high - self.low)

    def better(self, tilt: Floats) -> Floats:
        """Return a step of Newton's method towards the best tilt."""
        x = self.hardest(tilt)
        one, two = self.first.cumulant(x, tilt), self.second.cumulant(self.rest(x), tilt)
        excess = one.by_tilt + two.by_tilt - self.observed
        moved = tilt - excess / np.maximum(one.curvature + two.curvature, 1e-300)
        return np.clip(moved, tilt / 4, tilt * 4)

    def log_chance(self, tilt: Floats, sharp: bool) -> tuple[Floats, Floats]:
        """Return the bound on ln P in each cell, and how fast its exponent grows with the target.

        If the means do not determine the laws, it is the least of Chernoff's bound, Hoeffding's and
        the Berry-Esseen theorem's.
        """
        x = self.hardest(tilt)
        y = self.rest(x)
        of_first, rises = self.first.tangent(x, tilt)
        of_second, falls = self.second.tangent(y, tilt)
        # the lines at the ends; that of Y may go on above 1, where it is larger still
        ends = [
            rises * (end - x) + falls * (self.target - end - y) for end in (self.low, self.high)
        ]
        chernoff = of_first + of_second + np.maximum(*ends) - tilt * self.observed
        if sharp:
            return chernoff + self._log_remainder(tilt), falls
        laws = self.first, self.second
        excess = np.maximum(self.observed - self.target, 0)
        bounds = [chernoff, np.zeros_like(chernoff)]
        if all(law.rate is None for law in laws):
            bounds.append(-(excess**2) / (2 * sum(law.proxy for law in laws)))
        one = moments_within(self.first, self.low, self.high)
        two = moments_within(self.second, self.rest(self.high), self.rest(self.low))
        if one is not None and two is not None:
            bounds.append(log_berry_esseen(one, two, excess))
        return np.minimum.reduce(bounds), falls

    def _log_remainder(self, tilt: Floats) -> Floats:
        from scipy.special import log_ndtr

        top, bottom = self.rest(self.low), self.rest(self.high)
        one = _Tilted.within(self.first, tilt, self.low, self.high)
        two = _Tilted.within(self.second, tilt, bottom, top)
        least, largest = one.least + two.least, one.largest + two.largest
        third = one.third + two.third
        # the mean of U, concave in x: at the ends, and where the tangents there meet
        at_low = one.means[0] + two.means[1] - self.observed
        at_high = one.means[1] + two.means[0] - self.observed
        rises = one.slopes[0] - np.where(self.target - self.low > 1, 0, two.slopes[1])
        falls = one.slopes[1] - np.where(self.target - self.high > 1, 0, two.slopes[0])
        step = self.high - self.low
        across = np.maximum(rises - falls, 1e-300)
        meet = np.clip((at_high - at_low - falls * step) / across, 0, step)
        top = np.where(rises <= 0, at_low, np.where(falls >= 0, at_high, at_low + rises * meet))
        top = np.maximum(top, np.maximum(at_low, at_high))
        bottom = np.minimum(at_low, at_high)
        helps = (third < least**1.5) & (least > 0)
        safe = np.where(helps, least, 1.0)
        spread = np.where(helps, largest, 1.0)
        sd = np.sqrt(spread)
        middle, half = (top + bottom) / 2, (top - bottom) / 2
        steps = tilt * sd
        place = middle / sd - steps
        log_normal = log_ndtr(place) + steps * (steps / 2 - middle / sd)
        # (ln h)' = -t + phi(place) / (Phi(place) sd)
        hazard = np.exp(-(place**2) / 2 - log_ndtr(place)) / np.sqrt(2 * np.pi)
        log_normal = log_normal + half * np.abs(hazard / sd - tilt) + np.log(spread / safe) / 2
        remainder = np.exp(np.minimum(log_normal, 0)) + 2 * BERRY_ESSEEN * third / safe**1.5
        result: Floats = np.where(helps, np.log(np.minimum(remainder, 1)), 0.0)
        return result


class _Tilted(NamedTuple):
    """The tilted law of a sum of signs, for all means in an interval.

    `means` and `slopes` are those at the two ends; slopes are derivatives by the mean.
    """

    means: tuple[Floats, Floats]
    slopes: tuple[Floats, Floats]
    least: Floats
    largest: Floats
    third: Floats

    @classmethod
    def within(cls, law: Law, tilt: Floats, low: Floats, high: Floats) -> _Tilted:
        z, weight = tilt[:, None] * law.coefficient, law.counts * law.coefficient
        known = 0.0 if law.offset is None else float(weight @ law.offset)
        means, slopes, ends = [], [], []
        for end in (low, high):
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
