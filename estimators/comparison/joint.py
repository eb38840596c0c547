"""Limits for a difference of two arms, from their joint law."""

from __future__ import annotations

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
from estimators.comparison.p_values import COARSE, FEW, crossing, smallest
from estimators.comparison.streams import DifferenceStream
from estimators.comparison.vectors import CoordinateNoise
from estimators.estimate import Floats

NUISANCE = 0.02
"""The share of beta for the interval of the mean that the hypothesis leaves unknown."""


class Found(NamedTuple):
    """Limits and p-values, each of shape (k,), on the scale where a mean is in [-1, 1]."""

    lower: Floats
    upper: Floats
    p_value: Floats


class _Side(NamedTuple):
    """A sum X + Y whose mean one side of an interval is about; X has the known interval."""

    first: Law
    second: Law
    known: Floats
    other: Floats
    share: float = NUISANCE / 2

    def sums(self, beta: float) -> fixed.Sums:
        """Return the sums, with an interval for the mean of X that has its share of beta a side."""
        near = interval(self.first, self.known, math.log(self.share * beta))
        return fixed.Sums(*self[:4], near)


def fixed_difference(a: Arm, b: Arm, beta: float) -> Found:
    """Return limits for theta_A - theta_B, each pair failing with probability at most beta.

    Parameters
    ----------
    a, b : Arm
        Independent of each other, with reports.
    beta : float
        Of each of the k numbers.

    Notes
    -----
    **The p-value.** For every gamma, C at 0.02 gamma holds the unknown mean, or its p-value is at
    most 0.01 gamma on one side; so with q the largest bound on the tail over C, P(q / 0.49 <= gamma
    for some gamma) <= gamma. The p-value is max(q / 0.49, gamma) for a gamma that may be chosen
    after looking: first beta, so that it is at most beta exactly where 0 is outside the interval,
    and then, where it would be smaller, about its own value.
    """
    if (noise := both_noises(a.noise, b.noise)) is not None:
        return _noise_alone(noise, a.observed - b.observed, beta)
    if a.blocks is not None and b.blocks is not None:
        return _of_blocks(a.blocks, b.blocks, beta)
    if a.bets is not None and b.bets is not None:
        lower, upper, p = (np.array([x]) for x in symbol_differences.limits(a.bets, b.bets, beta))
        return consistent(lower, upper, p, beta, 0.0)
    assert a.law is not None  # noqa: S101
    assert b.law is not None  # noqa: S101
    sides = _sides(a, b, a.law, b.law)
    log_p = math.log((1 - NUISANCE) / 2 * beta)
    lower, upper = (fixed.lower_limit(side.sums(beta), log_p) for side in sides)
    p_value = np.minimum(*(_p_value(side, beta) for side in sides))
    return consistent(lower, -upper, p_value, beta, 0.0)


def fixed_ratio(a: Arm, b: Arm, beta: float, origin: float) -> Found:
    """Return limits for m_A / m_B, m = origin + theta, failing with probability at most beta.

    Parameters
    ----------
    a, b, beta
        As in :func:`fixed_difference`.
    origin : float
        At least 1.

    Notes
    -----
    The upper limit is the inverse of the lower limit of m_B / m_A; it is infinite where that is 0.
    Each side has an interval of its own for an unknown mean, at half of NUISANCE.
    """
    assert a.law is not None  # noqa: S101
    assert b.law is not None  # noqa: S101
    sides = (
        _Side(b.law.mirrored(), a.law, -b.observed, a.observed, NUISANCE / 4),
        _Side(a.law.mirrored(), b.law, -a.observed, b.observed, NUISANCE / 4),
    )
    log_p = math.log((1 - NUISANCE) / 2 * beta)
    lower, other = (fixed.lower_ratio(side.sums(beta), origin, log_p) for side in sides)
    with np.errstate(divide="ignore"):
        upper = np.where(other > 0, 1 / other, np.inf)
    p_value = np.minimum(*(_p_value(side, beta) for side in sides))
    return consistent(lower, upper, p_value, beta, 1.0)


def anytime(a: Arm, b: Arm, beta: float, split: float | None, origin: float | None = None) -> Found:
    """Return limits that hold at all times at once, failing with probability at most beta.

    Parameters
    ----------
    a, b, beta
        As in :func:`fixed_difference`.
    split : float or None
        The planned ratio of reports, a to b.
    origin : float or None
        o, at least 1, for a ratio of means o + theta; None for a difference.

    Notes
    -----
    The p-value is 2 / M where both means are equal, M the larger of both sides' mixtures: it may be
    looked at at any time.
    """
    log_p = math.log(beta / 2)
    plan = mixtures.Plan.of(split)
    above = mixtures.Mixture(a.stream(), b.stream(mirrored=True), plan)
    below = mixtures.Mixture(a.stream(mirrored=True), b.stream(), plan)
    if origin is None:
        null, lower = 0.0, mixtures.lower_limit(above, log_p)
        upper = -mixtures.lower_limit(below, log_p)
    else:
        null, lower = 1.0, mixtures.lower_ratio(above.swapped(), origin, log_p)
        other = mixtures.lower_ratio(below, origin, log_p)
        with np.errstate(divide="ignore"):
            upper = np.where(other > 0, 1 / other, np.inf)
    evidence = np.maximum(*(_evidence(mixture, log_p) for mixture in (above, below)))
    p_value = np.minimum(2 * np.exp(LOG_P_SAFETY - evidence), 1.0)
    return consistent(lower, upper, p_value, beta, null)


def _evidence(mixture: mixtures.Mixture, log_p: float) -> Floats:
    """Return ln M for equal means; tilts are for the limit and for what was observed."""
    ones = np.ones_like(mixture.first.observed)
    apart = mixture.first.observed + mixture.second.observed
    variance = mixture.first.variance() + mixture.second.variance()
    means = mixtures.Means(0 * ones, ones, ones)
    tilts = mixture.tilt(ones, -log_p), np.maximum(apart, 1e-12) / variance
    result: Floats = np.maximum(*(mixture.log_evidence(means, tilt) for tilt in tilts))
    return result


def consistent(lower: Floats, upper: Floats, p_value: Floats, beta: float, null: float) -> Found:
    """Return limits and p-values that agree: a p-value is at most beta where `null` is outside.

    Both come from the same bounds; only searches that stop early can tell them apart.

    Parameters
    ----------
    lower, upper, p_value : ndarray of float64, shape (k,)
    beta : float
    null : float
        The value of no difference.
    """
    outside = (lower > null) | (upper < null)
    more = np.nextafter(beta, 2)
    p_value = np.where(outside, np.minimum(p_value, beta), np.maximum(p_value, more))
    return Found(lower, upper, np.minimum(p_value, 1.0))


def _sides(a: Arm, b: Arm, of_a: Law, of_b: Law) -> tuple[_Side, _Side]:
    """Return the sums S_A - S_B and S_B - S_A; the mean of the more precise arm is X's."""
    minus_a, minus_b = of_a.mirrored(), of_b.mirrored()
    if of_a.worst_variance <= of_b.worst_variance:
        return (
            _Side(of_a, minus_b, a.observed, -b.observed),
            _Side(minus_a, of_b, -a.observed, b.observed),
        )
    return (
        _Side(minus_b, of_a, -b.observed, a.observed),
        _Side(of_b, minus_a, b.observed, -a.observed),
    )


def _p_value(side: _Side, beta: float) -> Floats:
    """Return a p-value, for both sides, of a sum of means that is at most 0."""
    found, gamma = np.ones_like(side.known), beta
    for _ in range(3):
        chance = fixed.log_chance(side.sums(gamma), math.log((1 - NUISANCE) / 2 * gamma))
        q = np.exp(chance + LOG_P_SAFETY) / ((1 - NUISANCE) / 2)
        found = np.minimum(found, np.maximum(q, gamma))
        least = float(q.min())
        if least >= gamma / 2 or least < 1e-300:
            break
        gamma = max(least, 1e-290)
    return found


def _noise_alone(noise: Noise, apart: Floats, beta: float) -> Found:
    """Return limits for the users' own values: only the noise counts."""
    half, p_value = noise.deviation(math.log(beta / 2)), np.ones_like(apart)
    known: dict[float, float] = {}

    def margin(share: float) -> float:
        if share not in known:
            known[share] = noise.deviation(math.log(share / 2))
        return known[share]

    for row, far in enumerate(np.abs(apart).tolist()):
        if apart.size <= FEW:
            p_value[row] = crossing(margin, far)
        else:
            p_value[row] = smallest(functools.partial(_is_below, margin, far), COARSE)
    return consistent(apart - half, apart + half, p_value, beta, 0.0)


def _of_blocks(a: DifferenceStream, b: DifferenceStream, beta: float) -> Found:
    """Return limits for twice the difference of frequencies.

    The p-value is at least what the statements beside the tail have: the tilts, and with them the
    rejected sums, would be others for a smaller beta.
    """
    above, below = (blocks.lower_side(*arms, math.log(beta / 2)) for arms in ((a, b), (b, a)))
    p_value = 2 * np.minimum(above.tail, below.tail) + blocks.BESIDE * beta
    return consistent(2 * above.lower, -2 * below.lower, np.minimum(p_value, 1), beta, 0.0)


def _is_below(margin: Callable[[float], float], far: float, share: float) -> bool:
    return margin(share) < far


def both_noises(one: Noise | None, two: Noise | None) -> Noise | None:
    """Return the noise of S_A - S_B: that of both, whose bounds are those of either sign.

    None if the users' own values determine a law, or the two have no common grid.
    """
    if isinstance(one, CoordinateNoise) and isinstance(two, CoordinateNoise):
        return one.joined_with(two)
    if isinstance(one, FlipNoise) and isinstance(two, FlipNoise):
        return FlipNoise(*(np.concatenate(x) for x in zip(_flips(one), _flips(two), strict=True)))
    if isinstance(one, PiecewiseNoise) and isinstance(two, PiecewiseNoise):
        return one.joined_with(two)
    if not isinstance(one, LaplaceNoise) or not isinstance(two, LaplaceNoise):
        return None
    if one.unit != two.unit:
        return None
    return LaplaceNoise(
        np.concatenate([one.counts, two.counts]),
        np.concatenate([one.coefficient, two.coefficient]),
        np.concatenate([one.rate, two.rate]),
        one.unit,
    )


def _flips(noise: FlipNoise) -> tuple[Floats, Floats, Floats]:
    return noise.counts, noise.coefficient, noise.flip
