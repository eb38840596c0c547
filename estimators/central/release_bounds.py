"""Bounds for a release: for the noise, whose law is known, and for the sampling of the users."""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds import Law, interval
from estimators.bounds.normal import BERRY_ESSEEN
from estimators.bounds.signs.tails import log_tail
from estimators.central.release import ReleaseNoise
from estimators.estimate import Floats, Limits

NOISE_SHARES = (0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)
"""The shares of the failure probability to try for the noise; sampling has the rest."""
SUM_ROUNDING = 1e-12
"""A margin in the unit of the sum, above the rounding errors of doubles here."""
RELATIVE_SAFETY = 1e-6
"""A margin relative to p, far above the rounding errors of the sums."""
VARIANCE_PIECES = 16  # the range of an unknown variance is cut into these
BISECTION_STEPS = 12  # they find a limit to 1/4000 of the possible gain
FINE_BINS, COARSE_BINS = 40, 16
"""The numbers of bins of the noise on each side: beyond its quantile at p, and within it."""
NEWTON_STEPS = 4  # towards the best tilt; every tilt gives a valid bound
SHARED_LIMIT_WIDTH = 0.02  # categories share a limit if they differ by this part of a half-width
MAX_UNSHARED_LIMITS = 100  # with more categories, similar ones share a limit


class ValueLaw(Law):
    """The law of a weighted sum of values in [-1, 1] with a known mean."""

    @property
    def is_determined_by_mean(self) -> bool:
        """Whether theta alone determines the law: never, because the values need not be signs."""
        return False


def sample_limits(
    noise: ReleaseNoise, released: Floats, total: int, slack: float, log_p: float
) -> Limits:
    """Return bounds on the weighted mean of the users' values, in [0, 1], from the noise alone.

    `noise`: the law of the release's integer noise; `released`, shape (k,): the weighted means, in
    [0, 1], with noise; `total`: sum n_l d_l, so that the unit of the noise is 1 / total; `slack`:
    the largest change of a weighted mean by rounding; `log_p`: ln p, the failure probability of one
    side of one interval.
    """
    margin = noise.quantile(log_p) / total + slack + SUM_ROUNDING
    return np.clip(released - margin, 0, 1), np.clip(released + margin, 0, 1)


def population_limits(
    noise: ReleaseNoise, law: Law, released: Floats, total: int, slack: float, log_p: float
) -> Limits:
    """Return bounds on the mean of the distribution that the users come from, in [0, 1].

    Theorem 5 of docs/proofs/trusted.md. The first bounds split p between noise and sampling; the
    convolution of both, a sum over bins of the noise, then narrows the bounds. `noise`, `released`,
    `total`, `slack`, `log_p`: as for :func:`sample_limits`; `law`: the symmetric law of the
    weighted mean S of the users' values as numbers in [-1, 1], without noise.
    """
    centre, unit = 2 * released - 1, 2 / total
    shift = 2 * slack + SUM_ROUNDING
    mirrored = np.concatenate([centre - shift, -centre - shift])  # the law is its own mirror image
    limits = _lower_limits(noise, law, mirrored, unit, log_p)
    lower, upper = limits[: released.size], -limits[released.size :]
    return (1 + lower) / 2, (1 + upper) / 2


def _lower_limits(
    noise: ReleaseNoise, law: Law, observed: Floats, unit: float, log_p: float
) -> Floats:
    """Return a theta that each observed S + u Z rejects as too small; u: the `unit`.

    It is -1 if none is rejected.
    """
    typical = float(law.largest_variance(np.array([4 / max(4, observed.size) - 1]))[0])

    def promised(share: float) -> float:
        spread = math.sqrt(-2 * (log_p + math.log1p(-share)) * typical)
        return noise.quantile(log_p + math.log(share)) * unit + spread

    share = min(NOISE_SHARES, key=promised)
    inverse = np.arange(observed.size)
    if observed.size > MAX_UNSHARED_LIMITS:  # a smaller sum's limit is valid too
        step = SHARED_LIMIT_WIDTH * promised(share) / 2
        observed, inverse = np.unique(np.floor(observed / step) * step, return_inverse=True)
    quantile = noise.quantile(log_p + math.log(share)) * unit
    low, _ = interval(law, observed - quantile, log_p + math.log1p(-share))
    high = np.maximum(low, np.minimum(observed, 1))
    ends, chances = _bins(noise, log_p)
    for _ in range(BISECTION_STEPS):
        theta = (low + high) / 2
        log_chance = _log_chance(law, theta, observed, unit * ends, chances)
        rejected = log_chance <= log_p - RELATIVE_SAFETY
        low, high = np.where(rejected, theta, low), np.where(rejected, high, theta)
    return np.maximum(low - SUM_ROUNDING, -1)[inverse]


def _bins(noise: ReleaseNoise, log_p: float) -> tuple[Floats, Floats]:
    """Return upper ends of bins of the noise and their probabilities; the last end is infinite."""
    p = math.exp(log_p)
    beyond = np.geomspace(1e-3 * p, p, FINE_BINS, endpoint=False)
    tails = np.append(beyond, np.geomspace(p, 0.5, COARSE_BINS))
    positive = np.array([noise.quantile(math.log(tail)) for tail in tails.tolist()])
    ends = np.unique(np.concatenate([positive, -positive]))
    rate = float(noise.rate)
    tail = np.exp(-rate * (np.abs(ends) + (ends >= 0))) / (1 + math.exp(-rate))
    above = np.where(ends >= 0, tail, 1 - tail)  # P(Z > end)
    return np.append(ends, np.inf), -np.diff(above, prepend=1.0, append=0.0)


def _log_chance(law: Law, theta: Floats, observed: Floats, ends: Floats, chances: Floats) -> Floats:
    """Return upper bounds on ln P(S + u Z >= observed) for each theta, shape (k,)."""
    means = np.repeat(theta, ends.size - 1)
    sums = (observed[:, None] - ends[None, :-1]).ravel()
    log_tails = np.minimum(_log_tail(law, means, sums), 0).reshape(theta.size, -1)
    total: Floats = np.exp(log_tails) @ chances[:-1] + chances[-1]
    return np.log(total)


def _log_tail(law: Law, theta: Floats, sums: Floats) -> Floats:
    from scipy.special import ndtr

    variance = law.largest_variance(theta)
    excess = np.maximum(sums - theta, 0)
    tilt = np.clip(excess / variance, 1e-9 / np.sqrt(variance), law.max_tilt)
    for _ in range(NEWTON_STEPS):
        at = law.cumulant(theta, tilt)
        moved = tilt + (sums - at.by_tilt) / np.maximum(at.curvature, 1e-12 * variance)
        tilt = np.clip(np.clip(moved, tilt / 4, 4 * tilt), 1e-9 / np.sqrt(variance), law.max_tilt)
    bound = log_tail(law, theta, tilt, sums, law.cumulant(theta, tilt))
    if isinstance(law, ValueLaw) and not law.free:
        bound = np.minimum(bound, _log_tail_of_values(law, theta, excess))
    tail_bound: Floats = np.where(excess > 0, bound, 0.0)
    if law.is_determined_by_mean:  # also below the mean, where the other bounds are 1
        sd, third = np.sqrt(variance), float(law.counts @ law.coefficient**3)
        normal = ndtr((theta - sums) / sd) + BERRY_ESSEEN * (1 - theta**4) * third / sd**3
        tail_bound = np.minimum(tail_bound, np.log(np.maximum(normal, 1e-300)))
    return tail_bound


def _log_tail_of_values(law: ValueLaw, theta: Floats, excess: Floats) -> Floats:
    """Return an upper bound on ln P(S >= theta + excess) if all values have the same law.

    Theorem 5 of docs/proofs/trusted.md.
    """
    from scipy.special import ndtr

    max_variance = np.maximum(1 - theta**2, 1e-12)[:, None]
    high = max_variance * np.linspace(1 / VARIANCE_PIECES, 1, VARIANCE_PIECES)
    low = high - max_variance / VARIANCE_PIECES
    square = float(law.counts @ law.coefficient**2)
    cube = float(law.counts @ law.coefficient**3)
    term = (law.coefficient.max() * (1 - theta))[:, None]
    term = np.maximum(term, 1e-12 * law.coefficient.max())
    ratio = term * excess[:, None] / (high * square)
    bennett = -high * square / term**2 * ((1 + ratio) * np.log1p(ratio) - ratio)
    third = np.minimum(1 - theta[:, None] ** 4, (1 + np.abs(theta))[:, None] * high) * cube
    min_variance = np.maximum(low, 1e-9 * high) * square
    normal = ndtr(-excess[:, None] / np.sqrt(high * square))
    normal = normal + BERRY_ESSEEN * third / min_variance**1.5
    with np.errstate(divide="ignore"):
        chance = np.log(np.minimum(normal, 1))
    return np.asarray(np.minimum(bennett, chance).max(axis=1))
