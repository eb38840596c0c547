"""The evidence of panes: means whose law is known, and e-values for every possible baseline.

Evidence is a function of the unknown baseline theta: log-convex, bounded below by tangents.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from estimators.comparison.arms import Arm, arm_of
from estimators.estimate import Bools, Counts, Floats
from estimators.metrics.local import LocalMetric
from estimators.question import Question
from estimators.weights import level_weights

LEAST_SHARE = 0.01
"""A level with a smaller share of the baseline's weights gets the share 0: panes may lack it."""
FINE_WIDTH, FINE_STEPS = 0.75, 10
"""The distance of points near the baseline, in its standard errors, and how many there are on each
side. Beyond them each step is twice the last. Steps half as wide shorten delays by at most 2%."""


class EValues(NamedTuple):
    """Logarithms of e-values at points theta, and their slopes there; shape (points, tilts).

    Each logarithm is a line in theta. Its value at a theta is the logarithm of an e-value against
    the hypothesis that the mean is theta.
    """

    log: Floats
    slope: Floats


@dataclasses.dataclass(frozen=True)
class PaneMean:
    """The weighted mean S of a pane, on the scale where its mean theta is in [-1, 1].

    `arm`: S and its law; `precision`: 1 / Var S for the data that the mechanism specifies, a
    function of the counts.
    """

    arm: Arm
    precision: float

    @classmethod
    def of(
        cls, metric: LocalMetric, statistic: Counts, shares: Floats | None, category: int | None
    ) -> PaneMean | None:
        """Return the mean of a `statistic`; None if it or a level with a share has no reports.

        `metric`: the metric of the statistic; `shares`, shape (levels,): the share of each level,
        if levels may have different means; None if all levels have the same mean, and the shares
        are optimal for the pane; `category`: the index of the named number, or of a distribution's
        edge; None for a metric with a single number. Raises TypeError if the mechanism has no law.
        """
        counts, facts = metric.counts(statistic), metric.randomizer.facts
        if not counts.any() or (shares is not None and not counts[shares > 0].all()):
            return None
        selected = None if category is None else np.array([category])
        weights = "optimal" if shares is None else "uniform"
        arm = arm_of(metric, statistic, Question(weights=weights, asked=selected), shares)
        if shares is None:
            shares = level_weights(weights, counts, facts)
        used = shares > 0
        variance = float((shares[used] ** 2 * facts.variances[used]) @ (1 / counts[used]))
        return cls(arm, 1 / (variance * (1 if metric.kind == "mean" else 4)))

    @property
    def mean(self) -> float:
        """The weighted mean S."""
        return float(self.arm.observed[0])

    def variance(self, theta: float) -> float:
        """Return the largest variance of S if its mean is theta."""
        if self.arm.law is None:
            return float(self.arm.stream().variance()[0])
        return float(self.arm.law.largest_variance(np.array([theta]))[0])

    def e_values(
        self, theta: Floats, tilts: Floats, sign: int, least_shift: float = 0.0
    ) -> EValues:
        """Return the e-values exp(sign tilt S - K) against means up to theta + `least_shift`.

        K, a line in theta, bounds the cumulant of S from above and does not fall with theta.
        `theta`, shape (points,): in [-1, 1]; `tilts`, shape (tilts,): above 0; `sign`: 1, or -1 for
        e-values against means from theta - `least_shift` on.
        """
        stream = self.arm.stream(mirrored=sign < 0)
        largest_mean = sign * theta + least_shift
        touching = np.minimum(largest_mean, 1.0)
        steep = np.broadcast_to(np.minimum(tilts, stream.max_tilt), (theta.size, tilts.size))
        value, slope = stream.lines(touching, steep)
        value = value + slope * (largest_mean - touching)[:, None]
        return EValues(steep * stream.observed - value, -sign * slope)


def baseline_shares(metric: LocalMetric, baseline: Counts) -> Floats:
    """Return the optimal shares of the levels in a baseline, which all panes then have.

    `baseline`: the sums of the baseline, with at least one report. The result has shape (levels,)
    and sums to one; a share is zero or at least :data:`LEAST_SHARE`.
    """
    shares = level_weights("optimal", metric.counts(baseline), metric.randomizer.facts)
    used_shares = np.where(shares >= LEAST_SHARE, shares, 0.0)
    return np.asarray(used_shares / used_shares.sum())


def points_around(middle: float, error: float) -> Floats:
    """Return points that cover [-1, 1], densely around `middle`, which is one of them.

    `middle`: in [-1, 1]; `error`: the standard error there.

    >>> points_around(0.0, 1.0)
    array([-1.  , -0.75,  0.  ,  0.75,  1.  ])
    """
    steps = [FINE_WIDTH * error] * FINE_STEPS
    while sum(steps) < 2:
        steps.append(2 * steps[-1])
    away = np.cumsum(steps)
    points = np.concatenate([middle - away, [middle], middle + away])
    return np.unique(np.concatenate([points[(points > -1) & (points < 1)], [-1.0, middle, 1.0]]))


def mixed(log: Floats, slope: Floats) -> tuple[Floats, Floats]:
    """Return the logarithm of the mean of all terms at each point, and its slope.

    `log`, `slope`, shape (points, terms): the logarithms of the terms, at least one of them finite
    at each point, and their slopes.
    """
    peak = log.max(axis=1, keepdims=True)
    share = np.exp(log - peak)
    total = share.sum(axis=1)
    return peak[:, 0] + np.log(total / log.shape[1]), (share * slope).sum(axis=1) / total


def update_bets(previous: EValues, pane: EValues, begins: Bools) -> EValues:
    """Return ln of the new M = (M + 1) L for each bet, and its slope.

    `previous`: ln M, where M is the evidence of a bet before the pane; `pane`: ln L, where L is the
    pane's e-value; `begins`, shape (tilts,): if False, the new M is M L.
    """
    grown = np.logaddexp(previous.log, np.where(begins, 0.0, -np.inf))
    carried = np.exp(previous.log - np.maximum(grown, -np.finfo(np.float64).max))
    return EValues(grown + pane.log, carried * previous.slope + pane.slope)


def lowest(points: Floats, value: Floats, slope: Floats) -> tuple[float, int]:
    """Return a lower bound on a function from tangents below it, and a point near its minimum.

    The maximum of the tangents is least at a point, or where the tangents at two neighbouring
    points meet; the point is given by its index. `points`, shape (points,): ascending; the range of
    the function goes from the first to the last; `value`, `slope`, shape (points,): the tangents.

    >>> lowest(np.array([-1.0, 1.0, 3.0]), np.array([1.0, 1.0, 9.0]), np.array([-2.0, 2.0, 6.0]))
    (-1.0, 0)
    """
    if points.size > 1:
        width, bend = np.diff(points), np.diff(slope)
        gap = value[:-1] - value[1:] + slope[1:] * width
        meet = np.divide(gap, bend, out=np.zeros_like(bend), where=bend > 0).clip(0.0, width)
        left, right = value[:-1] + slope[:-1] * meet, value[1:] + slope[1:] * (meet - width)
        between = np.maximum(left, right)
        cell = int(between.argmin())
        if between[cell] < value.min():
            return float(between[cell]), cell
    at = int(value.argmin())
    return float(value[at]), at
