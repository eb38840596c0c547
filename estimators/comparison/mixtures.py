r"""Bounds on two means that hold at all times at once: a mixture over pairs of tilts.

Theorem 9 of docs/proofs/comparisons.md, where X and Y are the arms. On the scale where a report of
a level has a fixed coefficient (:mod:`estimators.bounds.signs.anytime`), the mixture is over pairs
of tilts x, y of exp(x T_X - K_X(x) + y T_Y - K_Y(y)).

**The weights.** Without a plan, a pair's weight is the product of the weights of :mod:`.anytime`.
With a planned ratio of reports, stated before the start, pairs near this ratio have 0.8 of the
weight.

**The least value over the unknown mean.** Tangents replace K, which makes M smaller. Newton's
method finds the least ln M along the line of the pairs, and the tangent of ln M there bounds it
from below on the whole domain. M without some of its terms is smaller, so only the pairs near the
best pair are summed.
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
)
from estimators.bounds.tolerances import LOG_P_SAFETY, LOG_P_TOLERANCE, THETA_ROUNDING
from estimators.comparison.streams import ReportStream
from estimators.estimate import Floats, Indices
from estimators.interruption import checkpoint

PLANNED_SHARE = 0.8
"""The weight of pairs near the planned ratio."""
RATIO_SPREAD = 0.15  # standard deviation of the logarithm of the ratio
TERMS_PER_STREAM, TERMS_BELOW_BEST = 8, 4
"""How many tilts of each stream are summed, and how many of them are below the best one."""
MAX_TANGENT_ROUNDS, MAX_TARGET_STEPS, MAX_MEAN_STEPS = 4, 30, 20
"""The most rounds of tangents, steps of the target, and steps of the unknown mean."""


class TiltPlan(NamedTuple):
    """The tilts of both streams on the scale of T, and the weights of their pairs."""

    first: Floats
    second: Floats
    log_weights: Floats

    @classmethod
    def of(cls, split: float | None) -> TiltPlan:
        """Return the plan for a planned ratio of reports, first to second.

        `split`: the ratio; None if none is planned.

        >>> plan = TiltPlan.of(3.0)
        >>> round(float(np.exp(plan.log_weights).sum()), 6)
        1.0
        """
        if split is None:
            log_weights = LOG_MIXTURE_WEIGHTS[:, None] + LOG_MIXTURE_WEIGHTS
            return cls(MIXTURE_TILTS, MIXTURE_TILTS, log_weights)
        second, steps = MIXTURE_TILTS * split, np.arange(MIXTURE_TILTS.size) * np.log(TILT_RATIO)
        log_second = _cauchy(np.log(second / CENTRAL_TILT))
        middle = (np.log(MIXTURE_TILTS[:, None] / CENTRAL_TILT) + np.log(second / CENTRAL_TILT)) / 2
        log_distance = steps[:, None] - steps
        log_planned = -np.log1p((log_distance / RATIO_SPREAD) ** 2)
        log_planned -= np.log1p((middle / LOG_TILT_SPREAD) ** 2)
        log_planned -= np.log(np.exp(log_planned).sum())
        log_product = np.log1p(-PLANNED_SHARE) + (LOG_MIXTURE_WEIGHTS[:, None] + log_second)
        weights = np.logaddexp(np.log(PLANNED_SHARE) + log_planned, log_product)
        return cls(MIXTURE_TILTS, second, weights)

    def swapped(self) -> TiltPlan:
        """Return the plan for the streams in the other order."""
        return TiltPlan(self.second, self.first, self.log_weights.T)


def _cauchy(offsets: Floats) -> Floats:
    log_density = -np.log1p((offsets / LOG_TILT_SPREAD) ** 2)
    return np.asarray(log_density - np.log(np.exp(log_density).sum()))


class Means(NamedTuple):
    """The pairs of means (x, target - factor x) that a hypothesis allows, in rows.

    `by_value`: about how fast y grows with the value that the hypothesis states.
    """

    target: Floats
    factor: Floats
    by_value: Floats


class Pairs(NamedTuple):
    """Terms of the mixture, where lines that touch the cumulants at (x, y) replace them.

    `first`, `second`, shapes (k, terms): the exponents of X and of Y at (x, y), and the slopes of
    their lines.
    """

    x: Floats
    y: Floats
    first: tuple[Floats, Floats]
    second: tuple[Floats, Floats]
    log_weights: Floats

    def at(self, x: Floats, means: Means) -> tuple[Floats, Floats, Floats, Floats]:
        """Return ln M at x, its first two derivatives along the line, and its derivative in y."""
        y_on_line = means.target - means.factor * x
        y = np.minimum(y_on_line, 1.0)
        log_first, slope = self.first
        log_second, steep = self.second
        log_first = log_first - slope * (x - self.x)[:, None]
        log_second = log_second - steep * (y - self.y)[:, None]
        terms = self.log_weights + log_first[:, :, None] + log_second[:, None, :]
        largest = terms.max(axis=(1, 2))
        shifted = np.exp(terms - np.where(np.isfinite(largest), largest, 0.0)[:, None, None])
        mass = np.maximum(shifted.sum(axis=(1, 2)), 1e-300)
        along = np.where(y_on_line > 1, 0.0, means.factor)[:, None, None] * steep[:, None, :]
        along = along - slope[:, :, None]
        rise = (shifted * along).sum(axis=(1, 2)) / mass
        bend = (shifted * along**2).sum(axis=(1, 2)) / mass - rise**2
        fall = (shifted * steep[:, None, :]).sum(axis=(1, 2)) / mass
        return largest + np.log(mass), rise, np.maximum(bend, 0.0), fall


class Mixture(NamedTuple):
    """The mixture of two streams, with the terms near the best tilt of their sum.

    `first`, `second`: X and Y.
    """

    first: ReportStream
    second: ReportStream
    plan: TiltPlan

    def at(self, rows: Indices) -> Mixture:
        """Return the mixture of some of the k numbers, given by their indices."""
        return Mixture(self.first.at(rows), self.second.at(rows), self.plan)

    def swapped(self) -> Mixture:
        """Return the same mixture with the streams in the other order."""
        return Mixture(self.second, self.first, self.plan.swapped())

    def pairs(self, x: Floats, y: Floats, tilt: Floats, factor: Floats) -> Pairs:
        """Return terms near a tilt of factor X + Y, with cumulants replaced by lines.

        The lines touch the cumulants at the means (x, y). `x`, `y`, `tilt`, `factor`, shape (k,).
        """
        parts, chosen = [], []
        for stream, theta, grid, steep in (
            (self.first, x, self.plan.first, factor * tilt),
            (self.second, y, self.plan.second, tilt),
        ):
            steps = np.log(np.maximum(steep, 1e-300) / (stream.total * grid[TILTS_PER_SIDE]))
            steps = np.clip(steps / np.log(TILT_RATIO), -TILTS_PER_SIDE, TILTS_PER_SIDE)
            first = np.floor(steps).astype(np.intp) + TILTS_PER_SIDE - TERMS_BELOW_BEST
            start = np.clip(first, 0, grid.size - TERMS_PER_STREAM)
            index = start[:, None] + np.arange(TERMS_PER_STREAM)
            tilts = grid[index] * stream.total
            allowed = tilts <= stream.max_tilt
            tilts = np.minimum(tilts, stream.max_tilt)
            value, slope = stream.lines(theta, tilts)
            score = np.where(allowed, tilts * stream.observed[:, None] - value, -np.inf)
            parts.append((score, slope))
            chosen.append(index)
        weights = self.plan.log_weights[chosen[0][:, :, None], chosen[1][:, None, :]]
        return Pairs(x, y, parts[0], parts[1], weights)

    def minimize(self, pairs: Pairs, x: Floats, means: Means) -> tuple[Floats, Floats, Floats]:
        """Return the x at which ln M is least along the line, a lower bound on ln M, and its slope.

        The slope is the derivative in y. `pairs`: the terms of M; `x`, shape (k,): where the search
        begins; `means`: the line.
        """
        low = np.full_like(x, -1.0)
        high = np.clip((means.target + 1) / means.factor, -1.0, 1.0)
        x = np.clip(x, low, high)
        value, rise, bend, fall = pairs.at(x, means)
        for _ in range(MAX_MEAN_STEPS):
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

        `tilt`, shape (k,): an approximation of the best tilt of factor X + Y.
        """
        x = np.clip(self.first.observed, -1.0, 1.0)
        best = np.zeros_like(x)
        for _ in range(MAX_TANGENT_ROUNDS):
            checkpoint()
            y = np.clip(means.target - means.factor * x, -1.0, 1.0)
            pairs = self.pairs(x, y, tilt, means.factor)
            x, evidence, _ = self.minimize(pairs, x, means)
            if (evidence <= best + LOG_P_TOLERANCE).all():  # one more tangent gains nothing
                return np.maximum(best, evidence)
            best = np.maximum(best, evidence)
        return best

    def tilt(self, factor: Floats, goal: float) -> Floats:
        """Return nearly the best tilt of factor X + Y for means at which ln M reaches `goal`."""
        variance = factor**2 * self.first.variance() + self.second.variance()
        return np.sqrt(2 * (goal + 2) / variance)


def lower_limit(mixture: Mixture, log_p: float) -> Floats:
    """Return a sum of means x + y that is rejected as too small, or -2 if none is.

    With probability 1 - p the true sum is never rejected, at any time. `log_p`: ln p.
    """

    def means(delta: Floats, _: Indices) -> Means:
        ones = np.ones_like(delta)
        return Means(delta, ones, ones)

    observed = mixture.first.observed + mixture.second.observed
    limit = _search(mixture, means, observed, (-2.0, 2.0), log_p)
    return np.maximum(limit - 4 * THETA_ROUNDING, -2.0)


def lower_ratio(mixture: Mixture, origin: float, log_p: float) -> Floats:
    """Return a ratio of means origin + theta that is rejected as too small, or 0 if none is.

    A ratio is rejected if M rejects all pairs of means with this ratio; M does not depend on the
    ratio. `mixture`: X is -S_B and Y is S_A; `origin`: at least 1; `log_p`: as for lower_limit.
    """
    sd = np.sqrt(mixture.first.variance())
    below = np.maximum(origin + np.clip(-mixture.first.observed, -1, 1), sd)
    above = origin + np.clip(mixture.second.observed, -1, 1)

    def means(ratio: Floats, rows: Indices) -> Means:
        ratio = np.maximum(ratio, 1e-12)
        return Means((ratio - 1) * origin, ratio, below[rows])

    observed = np.maximum(above, 1e-9) / below
    limit = _search(mixture, means, observed, (0.0, np.inf), log_p)
    return np.maximum(limit * (1 - 4 * THETA_ROUNDING), 0.0)


def _search(
    mixture: Mixture,
    means: Callable[[Floats, Indices], Means],
    observed: Floats,
    domain: tuple[float, float],
    log_p: float,
) -> Floats:
    """Return a rejected value close to the largest such value.

    `means`: a function from values to the means that they allow; `observed`, shape (k,): the value
    at which nothing is rejected; `domain`: the range of values.
    """
    goal, (domain_low, domain_high) = LOG_P_SAFETY - log_p, domain
    value, rows = np.clip(observed, domain_low, domain_high), np.arange(observed.size)
    at = means(value, rows)
    width = (goal + 2) / mixture.tilt(at.factor, goal) * 2 / at.by_value
    low, high = np.full_like(value, domain_low), value
    value = np.maximum(value - width, (value + domain_low) / 2)
    x, limits = np.clip(mixture.first.observed, -1.0, 1.0), low.copy()
    for _ in range(MAX_TARGET_STEPS):
        checkpoint()
        at, active = means(value, rows), mixture.at(rows)
        tilt = active.tilt(at.factor, goal)
        for _ in range(2):  # tangents are first taken at the x of the last iteration
            y = np.clip(at.target - at.factor * x, -1.0, 1.0)
            x, evidence, fall = active.minimize(active.pairs(x, y, tilt, at.factor), x, at)
        rejected = evidence >= goal
        low = np.where(rejected, np.maximum(low, value), low)
        high = np.where(rejected, high, np.minimum(high, value))
        limits[rows] = low
        searched = ~(rejected & (evidence <= goal + LOG_P_TOLERANCE))
        searched &= high - low > LOG_P_TOLERANCE / 4 * width
        if not searched.any():
            break
        slope = np.maximum(fall * at.by_value, 1e-300)
        moved = value + (evidence - goal - LOG_P_TOLERANCE / 2) / slope
        value = np.where((moved > low) & (moved < high), moved, (low + high) / 2)
        rows, value, x = rows[searched], value[searched], x[searched]
        low, high, width = low[searched], high[searched], width[searched]
    return limits
