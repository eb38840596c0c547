r"""Bounds on two means that hold at all times at once: a mixture over pairs of tilts.

Reports of two independent streams X and Y arrive in any interleaving. Which stream is next, and at
which level, may depend on everything before, but not on values or noise to come. On the scale where
a report of a level has a fixed coefficient (:mod:`estimators.bounds.mixtures`), T_X and T_Y are the
sums, K_X and K_Y bound their cumulants, and for every pair of tilts

    exp(x T_X - K_X(x) + y T_Y - K_Y(y))

is a nonnegative supermartingale at the true means that starts at 1: each report multiplies it by a
factor whose mean is at most 1, given the past. So is every mixture M of these with fixed weights,
and by Ville's inequality M ever reaches 1/p with probability at most p. A pair of means is rejected
once M has reached 1/p there. M falls with both means, as each K grows. So if all pairs (x, target -
factor x) are rejected for one target, they are for all smaller ones.

**The weights.** Without a plan they are the product of the weights of
:mod:`estimators.bounds.mixtures`: M is the product of two mixtures. With a planned ratio of
reports, 0.8 of the weight is on pairs near that ratio, because the best tilt t of the difference is
t / N on the scale of each T, N its total weight. 0.2 stay with the product, so that a plan that
fails costs width, and nothing else. The ratio must be stated before the start. (Frozen after a look
at the counts, it may have looked at values: if each arm was stopped by its own values, the mean of
M at that time is above 1.)

**The least over the unknown mean.** ln M is convex in the means (K is concave), so it is convex
along the line of the pairs, too. K is replaced by tangents, which makes M smaller, and a sum of
exponentials of lines. Newton's method finds its least value, and its tangent there bounds it from
below on all of the domain. Omitting terms of M makes it smaller, too. So the pairs near the best
ones are summed, and their choice may depend on anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from estimators.bounds.mixtures import (
    CENTRAL_TILT,
    LOG_MIXTURE_WEIGHTS,
    LOG_TILT_SPREAD,
    MIXTURE_TILTS,
    TILT_RATIO,
    TILTS_PER_SIDE,
    RowIndices,
)
from estimators.bounds.tolerances import LOG_P_SAFETY, LOG_P_TOLERANCE, THETA_ROUNDING
from estimators.comparison.streams import Stream
from estimators.estimate import Floats
from estimators.interruption import checkpoint

PLANNED = 0.8
"""The weight of pairs near the planned ratio."""
NEAR = 0.15  # of the ratio, in units of its logarithm
TERMS, BELOW = 8, 4  # tilts of each stream that are summed, and how many of them below the best
ROUNDS, STEPS, TURNS = 4, 30, 20  # of tangents, of the target, of the unknown mean


class Plan(NamedTuple):
    """The tilts of both streams on the scale of T, and the weights of their pairs."""

    first: Floats
    second: Floats
    log_weights: Floats

    @classmethod
    def of(cls, split: float | None) -> Plan:
        """Return the plan for a ratio of reports, first to second; None: there is none.

        Examples
        --------
        >>> plan = Plan.of(3.0)
        >>> round(float(np.exp(plan.log_weights).sum()), 6)
        1.0
        """
        if split is None:
            return cls(
                MIXTURE_TILTS, MIXTURE_TILTS, LOG_MIXTURE_WEIGHTS[:, None] + LOG_MIXTURE_WEIGHTS
            )
        second, steps = MIXTURE_TILTS * split, np.arange(MIXTURE_TILTS.size) * np.log(TILT_RATIO)
        own = _cauchy(np.log(second / CENTRAL_TILT))
        middle = (np.log(MIXTURE_TILTS[:, None] / CENTRAL_TILT) + np.log(second / CENTRAL_TILT)) / 2
        apart = steps[:, None] - steps
        near = -np.log1p((apart / NEAR) ** 2) - np.log1p((middle / LOG_TILT_SPREAD) ** 2)
        near -= np.log(np.exp(near).sum())
        product = LOG_MIXTURE_WEIGHTS[:, None] + own
        weights = np.logaddexp(np.log(PLANNED) + near, np.log1p(-PLANNED) + product)
        return cls(MIXTURE_TILTS, second, weights)

    def swapped(self) -> Plan:
        """Return the plan for the streams in the other order."""
        return Plan(self.second, self.first, self.log_weights.T)


def _cauchy(offsets: Floats) -> Floats:
    found = -np.log1p((offsets / LOG_TILT_SPREAD) ** 2)
    result: Floats = found - np.log(np.exp(found).sum())
    return result


class Means(NamedTuple):
    """The means that a hypothesis allows: (x, target - factor x), in rows.

    `by_value` is about how fast y grows with the value that the hypothesis is about.
    """

    target: Floats
    factor: Floats
    by_value: Floats


class Pairs(NamedTuple):
    """Terms of the mixture whose cumulants are lines that touch at (x, y); shapes (k, TERMS)."""

    x: Floats
    y: Floats
    first: tuple[Floats, Floats]
    second: tuple[Floats, Floats]
    log_weights: Floats

    def at(self, x: Floats, means: Means) -> tuple[Floats, Floats, Floats, Floats]:
        """Return ln M at x, its two derivatives along the line, and that by y."""
        inside = means.target - means.factor * x
        y = np.minimum(inside, 1.0)
        one, slope = self.first
        two, steep = self.second
        one = one - slope * (x - self.x)[:, None]
        two = two - steep * (y - self.y)[:, None]
        terms = self.log_weights + one[:, :, None] + two[:, None, :]
        largest = terms.max(axis=(1, 2))
        shifted = np.exp(terms - np.where(np.isfinite(largest), largest, 0.0)[:, None, None])
        mass = np.maximum(shifted.sum(axis=(1, 2)), 1e-300)
        along = np.where(inside > 1, 0.0, means.factor)[:, None, None] * steep[:, None, :]
        along = along - slope[:, :, None]
        rise = (shifted * along).sum(axis=(1, 2)) / mass
        bend = (shifted * along**2).sum(axis=(1, 2)) / mass - rise**2
        fall = (shifted * steep[:, None, :]).sum(axis=(1, 2)) / mass
        return largest + np.log(mass), rise, np.maximum(bend, 0.0), fall


class Mixture(NamedTuple):
    """The mixture of two streams, with the terms near the best tilt of their sum.

    Parameters
    ----------
    first, second : Stream
        X and Y.
    plan : Plan
    """

    first: Stream
    second: Stream
    plan: Plan

    def at(self, rows: RowIndices) -> Mixture:
        """Return the mixture for these of the k numbers."""
        return Mixture(self.first.at(rows), self.second.at(rows), self.plan)

    def swapped(self) -> Mixture:
        """Return the same mixture with the streams in the other order."""
        return Mixture(self.second, self.first, self.plan.swapped())

    def pairs(self, x: Floats, y: Floats, tilt: Floats, factor: Floats) -> Pairs:
        """Return lines that touch at (x, y), for terms near a tilt of factor X + Y.

        Parameters
        ----------
        x, y, tilt, factor : ndarray of float64, shape (k,)
        """
        parts, chosen = [], []
        for stream, theta, grid, steep in (
            (self.first, x, self.plan.first, factor * tilt),
            (self.second, y, self.plan.second, tilt),
        ):
            steps = np.log(np.maximum(steep, 1e-300) / (stream.total * grid[TILTS_PER_SIDE]))
            place = np.floor(
                np.clip(steps / np.log(TILT_RATIO), -TILTS_PER_SIDE, TILTS_PER_SIDE)
            ).astype(np.intp)
            start = np.clip(place + TILTS_PER_SIDE - BELOW, 0, grid.size - TERMS)
            index = start[:, None] + np.arange(TERMS)
            tilts = grid[index] * stream.total
            allowed = tilts <= stream.max_tilt
            tilts = np.minimum(tilts, stream.max_tilt)
            value, slope = stream.lines(theta, tilts)
            score = np.where(allowed, tilts * stream.observed[:, None] - value, -np.inf)
            parts.append((score, slope))
            chosen.append(index)
        weights = self.plan.log_weights[chosen[0][:, :, None], chosen[1][:, None, :]]
        return Pairs(x, y, parts[0], parts[1], weights)

    def least(self, pairs: Pairs, x: Floats, means: Means) -> tuple[Floats, Floats, Floats]:
        """Return where ln M is least along the line, a lower bound on it, and its slope by y.

        Parameters
        ----------
        pairs : Pairs
        x : ndarray of float64, shape (k,)
            Where to begin.
        means : Means
        """
        low = np.full_like(x, -1.0)
        high = np.clip((means.target + 1) / means.factor, -1.0, 1.0)
        x = np.clip(x, low, high)
        value, rise, bend, fall = pairs.at(x, means)
        for _ in range(TURNS):
            low, high = np.where(rise <= 0, x, low), np.where(rise >= 0, x, high)
            moved = x - rise / np.maximum(bend, 1e-300)
            x = np.where((moved > low) & (moved < high), moved, (low + high) / 2)
            value, rise, bend, fall = pairs.at(x, means)
            unsure = np.abs(rise) * np.maximum(np.where(rise > 0, x - low, high - x), 0)
            if unsure.max(initial=0.0) < LOG_P_TOLERANCE / 100:
                break
        return x, value - unsure, fall

    def log_evidence(self, means: Means, tilt: Floats) -> Floats:
        """Return a lower bound on ln M for all means on the line, at least 0.

        Parameters
        ----------
        means : Means
        tilt : ndarray of float64, shape (k,)
            About the best one of factor X + Y.
        """
        x = np.clip(self.first.observed, -1.0, 1.0)
        best = np.zeros_like(x)
        for _ in range(ROUNDS):
            checkpoint()
            y = np.clip(means.target - means.factor * x, -1.0, 1.0)
            pairs = self.pairs(x, y, tilt, means.factor)
            x, found, _ = self.least(pairs, x, means)
            if (found <= best + LOG_P_TOLERANCE).all():  # one more tangent gains nothing
                return np.maximum(best, found)
            best = np.maximum(best, found)
        return best

    def tilt(self, factor: Floats, goal: float) -> Floats:
        """Return about the best tilt of factor X + Y where ln M reaches `goal`."""
        variance = factor**2 * self.first.variance() + self.second.variance()
        result: Floats = np.sqrt(2 * (goal + 2) / variance)
        return result


def lower_limit(mixture: Mixture, log_p: float) -> Floats:
    """Return a sum of means x + y that is rejected as too small, now or before, or -2.

    Parameters
    ----------
    mixture : Mixture
    log_p : float
        ln p, the failure probability over all times.
    """

    def means(delta: Floats, _: RowIndices) -> Means:
        ones = np.ones_like(delta)
        return Means(delta, ones, ones)

    observed = mixture.first.observed + mixture.second.observed
    found = _search(mixture, means, observed, (-2.0, 2.0), log_p)
    return np.maximum(found - 4 * THETA_ROUNDING, -2.0)


def lower_ratio(mixture: Mixture, origin: float, log_p: float) -> Floats:
    """Return a ratio of means origin + theta that is rejected as too small, now or before, or 0.

    The pair of means decides, and not the ratio: M is the same for all ratios.

    Parameters
    ----------
    mixture : Mixture
        X is -S_B, Y is S_A.
    origin : float
        At least 1.
    log_p : float
    """
    least = np.sqrt(mixture.first.variance())
    below = np.maximum(origin + np.clip(-mixture.first.observed, -1, 1), least)
    above = origin + np.clip(mixture.second.observed, -1, 1)

    def means(ratio: Floats, rows: RowIndices) -> Means:
        ratio = np.maximum(ratio, 1e-12)
        return Means((ratio - 1) * origin, ratio, below[rows])

    observed = np.maximum(above, 1e-9) / below
    found = _search(mixture, means, observed, (0.0, np.inf), log_p)
    return np.maximum(found * (1 - 4 * THETA_ROUNDING), 0.0)


def _search(
    mixture: Mixture,
    means: Callable[[Floats, RowIndices], Means],
    observed: Floats,
    domain: tuple[float, float],
    log_p: float,
) -> Floats:
    """Return a value whose means are rejected, close to the largest one.

    Parameters
    ----------
    mixture : Mixture
    means : callable
        From values to lines of means.
    observed : ndarray of float64, shape (k,)
    domain : tuple of float
    log_p : float
    """
    goal, (least, most) = LOG_P_SAFETY - log_p, domain
    value, rows = np.clip(observed, least, most), np.arange(observed.size)
    at = means(value, rows)
    width = (goal + 2) / mixture.tilt(at.factor, goal) * 2 / at.by_value
    low, high = np.full_like(value, least), value
    value = np.maximum(value - width, (value + least) / 2)
    x, found = np.clip(mixture.first.observed, -1.0, 1.0), low.copy()
    for _ in range(STEPS):
        checkpoint()
        at, here = means(value, rows), mixture.at(rows)
        tilt = here.tilt(at.factor, goal)
        for _ in range(2):  # tangents, first at the former x
            y = np.clip(at.target - at.factor * x, -1.0, 1.0)
            x, evidence, fall = here.least(here.pairs(x, y, tilt, at.factor), x, at)
        rejected = evidence >= goal
        low = np.where(rejected, np.maximum(low, value), low)
        high = np.where(rejected, high, np.minimum(high, value))
        found[rows] = low
        left = ~(rejected & (evidence <= goal + LOG_P_TOLERANCE)) & (
            high - low > LOG_P_TOLERANCE / 4 * width
        )
        if not left.any():
            break
        moved = value + (evidence - goal - LOG_P_TOLERANCE / 2) / np.maximum(
            fall * at.by_value, 1e-300
        )
        value = np.where((moved > low) & (moved < high), moved, (low + high) / 2)
        rows, value, x = rows[left], value[left], x[left]
        low, high, width = low[left], high[left], width[left]
    return found
