"""Limits and p-values for a difference or a ratio of two arms, from their joint law."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from estimators.bounds import FlipNoise, LaplaceNoise, Law, interval
from estimators.bounds.piecewise.noise import PiecewiseNoise
from estimators.bounds.signs.noise import Noise
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.comparison import blocks, fixed, mixtures, symbol_differences
from estimators.comparison.arms import Arm
from estimators.comparison.streams import DifferenceStream, joined
from estimators.comparison.vectors import CoordinateNoise
from estimators.estimate import Bools, Floats
from estimators.interruption import checkpoint
from estimators.roots import crossing

NUISANCE_SHARE = 0.02
"""The share of beta for the interval of the mean that the hypothesis leaves unknown."""
SMALLEST_P_VALUE = 1e-12
P_VALUE_HALVINGS = 24  # halvings of the range of ln p: p is exact to a factor of 1 + 2e-6
P_VALUE_TOLERANCE = 5e-7  # the error of ln p at which the search ends
COARSE_HALVINGS = 6  # for many numbers, for which the same p are tried: exact to a factor of 1.5
MAX_SEARCHED_P_VALUES = 4
"""The most numbers whose p-values are searched for one by one."""
LEVEL_RATIO = 1.3
"""The ratio of neighbouring levels above beta. Below, the j-th step divides by its j-th power."""


class ComparisonLimits(NamedTuple):
    """Limits and p-values, each of shape (k,), on the scale where a mean is in [-1, 1]."""

    lower: Floats
    upper: Floats
    p_value: Floats


class _Side(NamedTuple):
    """One side of an interval: the sums X and Y, and an interval for the mean of X."""

    first: Law
    second: Law
    first_observed: Floats
    second_observed: Floats
    share: float = NUISANCE_SHARE / 2

    def sums(self, beta: float) -> fixed.SumPair:
        """Return the sums, with an interval for the mean of X.

        Each of its ends is wrong with probability at most `share` times `beta`.
        """
        first_interval = interval(self.first, self.first_observed, math.log(self.share * beta))
        return fixed.SumPair(*self[:4], first_interval)


def fixed_difference(a: Arm, b: Arm, beta: float) -> ComparisonLimits:
    """Return limits for theta_A - theta_B, each pair wrong with probability at most beta.

    The p-values are those of theorem 7.1 of docs/proofs/comparisons.md. `a`, `b`: independent arms
    that have reports; `beta`: the failure probability for each of the k numbers.
    """
    if (noise := difference_noise(a.noise, b.noise)) is not None:
        return _noise_alone(noise, a.observed - b.observed, beta)
    if a.blocks is not None and b.blocks is not None:
        return _of_blocks(a.blocks, b.blocks, beta)
    if a.bets is not None and b.bets is not None:
        lower, upper, p = (np.array([x]) for x in symbol_differences.limits(a.bets, b.bets, beta))
        return consistent(lower, upper, p, beta, 0.0)
    assert a.law is not None  # noqa: S101
    assert b.law is not None  # noqa: S101
    sides = _sides(a, b, a.law, b.law)
    log_p = math.log((1 - NUISANCE_SHARE) / 2 * beta)
    lower, upper = (fixed.lower_limit(side.sums(beta), log_p) for side in sides)
    p_value = np.minimum(*(_p_value(side, beta) for side in sides))
    return consistent(lower, -upper, p_value, beta, 0.0)


def fixed_ratio(a: Arm, b: Arm, beta: float, origin: float) -> ComparisonLimits:
    """Return limits for the ratio m_A / m_B with m = origin + theta.

    The upper limit is the inverse of the lower limit of m_B / m_A, and infinite if that is 0. Each
    side has its own interval for an unknown mean, at half of NUISANCE_SHARE. `a`, `b`, `beta`: as
    in :func:`fixed_difference`; `origin`: at least 1.
    """
    assert a.law is not None  # noqa: S101
    assert b.law is not None  # noqa: S101
    sides = (
        _Side(b.law.mirrored(), a.law, -b.observed, a.observed, NUISANCE_SHARE / 4),
        _Side(a.law.mirrored(), b.law, -a.observed, b.observed, NUISANCE_SHARE / 4),
    )
    log_p = math.log((1 - NUISANCE_SHARE) / 2 * beta)
    lower, inverse_limit = (fixed.lower_ratio(side.sums(beta), origin, log_p) for side in sides)
    with np.errstate(divide="ignore"):
        upper = np.where(inverse_limit > 0, 1 / inverse_limit, np.inf)
    p_value = np.minimum(*(_p_value(side, beta) for side in sides))
    return consistent(lower, upper, p_value, beta, 1.0)


def anytime(
    a: Arm, b: Arm, beta: float, split: float | None, origin: float | None = None
) -> ComparisonLimits:
    """Return limits for a difference or ratio that hold at all times at once.

    With probability at least 1 - beta they are always right. The p-value is valid at any time; it
    is 2 / M, where M is the larger of both sides' mixtures for equal means. `a`, `b`, `beta`: as in
    :func:`fixed_difference`; `split`: the planned ratio of reports, a to b; `origin`: o, at least
    1, for a ratio of means o + theta; None for a difference.
    """
    log_p = math.log(beta / 2)
    plan = mixtures.TiltPlan.of(split)
    above = mixtures.Mixture(a.stream(), b.stream(mirrored=True), plan)
    below = mixtures.Mixture(a.stream(mirrored=True), b.stream(), plan)
    if origin is None:
        null, lower = 0.0, mixtures.lower_limit(above, log_p)
        upper = -mixtures.lower_limit(below, log_p)
    else:
        null, lower = 1.0, mixtures.lower_ratio(above.swapped(), origin, log_p)
        inverse_limit = mixtures.lower_ratio(below, origin, log_p)
        with np.errstate(divide="ignore"):
            upper = np.where(inverse_limit > 0, 1 / inverse_limit, np.inf)
    evidence = np.maximum(*(_evidence(mixture, log_p) for mixture in (above, below)))
    p_value = np.minimum(2 * np.exp(LOG_P_SAFETY - evidence), 1.0)
    return consistent(lower, upper, p_value, beta, null)


def _evidence(mixture: mixtures.Mixture, log_p: float) -> Floats:
    """Return ln M for equal means: the larger of two results, with different choices of tilts."""
    ones = np.ones_like(mixture.first.observed)
    difference = mixture.first.observed + mixture.second.observed
    variance = mixture.first.variance() + mixture.second.variance()
    means = mixtures.Means(0 * ones, ones, ones)
    tilts = mixture.tilt(ones, -log_p), np.maximum(difference, 1e-12) / variance
    return np.maximum(*(mixture.log_evidence(means, tilt) for tilt in tilts))


def consistent(
    lower: Floats, upper: Floats, p_value: Floats, beta: float, null: float
) -> ComparisonLimits:
    """Return limits and p-values that agree: p is at most beta exactly if `null` is outside.

    Both come from the same bounds; they can disagree only because searches stop early. `lower`,
    `upper`, `p_value`, shape (k,); `beta`: the failure probability of the limits; `null`: the value
    that means no difference.
    """
    excludes_null = (lower > null) | (upper < null)
    more = np.nextafter(beta, 2)
    p_value = np.where(excludes_null, np.minimum(p_value, beta), np.maximum(p_value, more))
    return ComparisonLimits(lower, upper, np.minimum(p_value, 1.0))


def _sides(a: Arm, b: Arm, of_a: Law, of_b: Law) -> list[_Side]:
    """Return the sums S_A - S_B and S_B - S_A; X is the sum of the more precise arm."""
    sides = [
        _Side(of_a, of_b.mirrored(), a.observed, -b.observed),
        _Side(of_a.mirrored(), of_b, -a.observed, b.observed),
    ]
    if of_a.worst_variance <= of_b.worst_variance:
        return sides
    return [_Side(x.second, x.first, x.second_observed, x.first_observed) for x in sides]


def _p_value(side: _Side, beta: float) -> Floats:
    """Return twice a p-value of the hypothesis that the sum of the means is at most 0."""
    p_value, gamma = np.ones_like(side.first_observed), beta
    for _ in range(3):
        chance = fixed.log_chance(side.sums(gamma), math.log((1 - NUISANCE_SHARE) / 2 * gamma))
        q = np.exp(chance + LOG_P_SAFETY) / ((1 - NUISANCE_SHARE) / 2)
        p_value = np.minimum(p_value, np.maximum(q, gamma))
        smallest_q = float(q.min())
        if smallest_q >= gamma / 2 or smallest_q < 1e-300:
            break
        gamma = max(smallest_q, 1e-290)
    return p_value


def _noise_alone(noise: Noise, difference: Floats, beta: float) -> ComparisonLimits:
    """Return limits for the difference of the users' values, given the `difference` of the sums."""

    @functools.cache
    def margin(share: float) -> float:
        return noise.deviation(math.log(share / 2))

    half, p_value = margin(beta), np.ones_like(difference)
    for row, distance in enumerate(np.abs(difference).tolist()):
        is_coarse = difference.size > MAX_SEARCHED_P_VALUES
        p_value[row] = smallest_p_value(margin, distance, coarse=is_coarse)
    return consistent(difference - half, difference + half, p_value, beta, 0.0)


def _of_blocks(a: DifferenceStream, b: DifferenceStream, beta: float) -> ComparisonLimits:
    """Return limits for twice the difference of frequencies.

    The p-value is at least the part of beta for the statements other than the tail, because a
    smaller beta would have different tilts and different rejected sums.
    """
    lower, tail = blocks.lower_side(a, b, math.log(beta / 2))
    lower_of_mirror, other_tail = blocks.lower_side(b, a, math.log(beta / 2))
    p_value = 2 * np.minimum(tail, other_tail) + blocks.STATEMENTS_SHARE * beta
    return consistent(2 * lower, -2 * lower_of_mirror, np.minimum(p_value, 1), beta, 0.0)


def difference_noise(a: Noise | None, b: Noise | None) -> Noise | None:
    """Return the noise of S_A - S_B, given the users' values.

    None if an arm's noise depends on the values, or if the arms' noises have no common grid.
    """
    if isinstance(a, CoordinateNoise) and isinstance(b, CoordinateNoise):
        return a.joined_with(b)
    if not isinstance(a, FlipNoise | PiecewiseNoise | LaplaceNoise) or type(a) is not type(b):
        return None
    if isinstance(a, LaplaceNoise) and isinstance(b, LaplaceNoise) and a.unit != b.unit:
        return None
    return dataclasses.replace(a, **joined(a, b))


def smallest_p_value(
    margin: Callable[[float], float], distance: float, *, coarse: bool = False
) -> float:
    """Return a beta at or slightly above the smallest one with margin(beta) < distance.

    This is a p-value if the intervals are nested: a value outside at one beta is outside at all
    larger ones. It is found faster if the margin is almost that of a normal law, whose square is
    almost linear in ln beta. `margin`: half of an interval's width as a function of beta; it falls
    with beta; `distance`: at least 0; `coarse`: whether a p exact to a factor of 1.5 suffices.

    >>> round(smallest_p_value(lambda beta: (-math.log(beta)) ** 0.5, 2.0), 4)  # e^-4
    0.0183
    """
    low, high = SMALLEST_P_VALUE, 1 - SMALLEST_P_VALUE
    if margin(low) < distance:
        return low
    if not margin(high) < distance:
        return 1.0
    if not coarse:
        ends = math.log(low), math.log(high)
        square = distance**2
        root = crossing(lambda log: margin(math.exp(log)) ** 2 - square, *ends, P_VALUE_TOLERANCE)
        p_value = math.exp(min(root + 2 * P_VALUE_TOLERANCE, ends[1]))
        if margin(p_value) < distance:
            return p_value
    for _ in range(COARSE_HALVINGS if coarse else P_VALUE_HALVINGS):
        checkpoint()
        middle = (low * high) ** 0.5
        low, high = (low, middle) if margin(middle) < distance else (middle, high)
    return high


def chained_p_values(excludes_null: Callable[[float], Bools], beta: float) -> Floats:
    """Return p-values of intervals that may not be nested.

    They are at most beta if the null hypothesis is outside at beta: theorem 7.2 of
    docs/proofs/comparisons.md. `excludes_null`: a function that returns, for each of k numbers,
    whether the null hypothesis is outside the interval with a given failure probability; `beta`:
    the failure probability of the intervals that are shown.

    >>> def outside(share):
    ...     return np.array([share >= 0.2, share >= 0.001, False])
    >>> chained_p_values(outside, 0.05).round(3)
    array([0.257, 0.004, 1.   ])
    """
    excluded = excludes_null(beta)
    p_values, searched, level, j = np.where(excluded, beta, 1.0), excluded.copy(), beta, 0
    while searched.any() and level > SMALLEST_P_VALUE:
        checkpoint()
        j += 1
        level /= LEVEL_RATIO**j
        searched &= excludes_null(level)
        p_values[searched] = level
    searched, level = ~excluded, 1 / LEVEL_RATIO
    while searched.any() and level > beta:
        checkpoint()
        searched &= excludes_null(level)
        p_values[searched] = np.minimum(level + beta, 1.0)
        level /= LEVEL_RATIO
    return p_values
