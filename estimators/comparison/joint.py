"""Limits for a difference of two arms, from their joint law."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from estimators.bounds import FlipNoise, LaplaceNoise, Law, interval
from estimators.bounds.deviations import Noise
from estimators.bounds.inversion import SAFETY
from estimators.comparison import fixed
from estimators.comparison.arms import Arm
from estimators.comparison.search import COARSE, FEW, HALVINGS, smallest
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
    observed: Floats
    known: Floats

    def near(self, log_p: float) -> tuple[Floats, Floats]:
        """Return an interval for the mean of X, each side failing with probability at most p."""
        return interval(self.first, self.known, log_p)


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
    assert a.law is not None  # noqa: S101
    assert b.law is not None  # noqa: S101
    sides = _sides(a, b, a.law, b.law)
    lower, upper = (_limit(side, beta) for side in sides)
    upper = -upper
    p_value = np.minimum(*(_p_value(side, beta, 0.0) for side in sides))
    return consistent(lower, upper, p_value, beta, 0.0)


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
    apart = a.observed - b.observed
    minus_a, minus_b = of_a.mirrored(), of_b.mirrored()
    if of_a.worst_variance <= of_b.worst_variance:
        return (
            _Side(of_a, minus_b, apart, a.observed),
            _Side(minus_a, of_b, -apart, -a.observed),
        )
    return (
        _Side(minus_b, of_a, apart, -b.observed),
        _Side(of_b, minus_a, -apart, b.observed),
    )


def _limit(side: _Side, beta: float) -> Floats:
    near = side.near(math.log(NUISANCE / 2 * beta))
    log_p = math.log((1 - NUISANCE) / 2 * beta)
    return fixed.lower_limit(side.first, side.second, side.observed, near, log_p)


def _p_value(side: _Side, beta: float, delta: float) -> Floats:
    """Return a p-value, for both sides, of the sum of means `delta` or less."""
    found = np.ones_like(side.observed)
    gamma = beta
    for _ in range(3):
        log_p = math.log((1 - NUISANCE) / 2 * gamma)
        near = side.near(math.log(NUISANCE / 2 * gamma))
        chance = fixed.log_chance(side.first, side.second, side.observed, near, log_p, delta)
        q = np.exp(chance + SAFETY) / ((1 - NUISANCE) / 2)
        found = np.minimum(found, np.maximum(q, gamma))
        least = float(q.min())
        if least >= gamma / 2 or least < 1e-300:
            break
        gamma = max(least, 1e-290)
    return found


def _noise_alone(noise: Noise, apart: Floats, beta: float) -> Found:
    """Return limits for the users' own values: only the noise counts."""
    half, p_value = noise.deviation(math.log(beta / 2)), np.ones_like(apart)
    halvings = HALVINGS if apart.size <= FEW else COARSE
    known: dict[float, float] = {}

    def margin(share: float) -> float:
        if share not in known:
            known[share] = noise.deviation(math.log(share / 2))
        return known[share]

    for row, far in enumerate(np.abs(apart).tolist()):
        p_value[row] = smallest(functools.partial(_is_below, margin, far), halvings)
    return consistent(apart - half, apart + half, p_value, beta, 0.0)


def _is_below(margin: Callable[[float], float], far: float, share: float) -> bool:
    return margin(share) < far


def both_noises(one: Noise | None, two: Noise | None) -> Noise | None:
    """Return the noise of S_A - S_B: that of both, whose bounds are those of either sign.

    None if the users' own values determine a law, or the two have no common grid.
    """
    if isinstance(one, FlipNoise) and isinstance(two, FlipNoise):
        return FlipNoise(*(np.concatenate(x) for x in zip(_flips(one), _flips(two), strict=True)))
    if not isinstance(one, LaplaceNoise) or not isinstance(two, LaplaceNoise):
        return None
    if one.unit != two.unit:
        return None
    contrast = [np.ones_like(x.rate) if x.contrast is None else x.contrast for x in (one, two)]
    return LaplaceNoise(
        np.concatenate([one.counts, two.counts]),
        np.concatenate([one.coefficient, two.coefficient]),
        np.concatenate([one.rate, two.rate]),
        one.unit,
        np.concatenate(contrast),
    )


def _flips(noise: FlipNoise) -> tuple[Floats, Floats, Floats]:
    return noise.counts, noise.coefficient, noise.flip
