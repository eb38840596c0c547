"""Moments of two sums whose means determine them only in part, for the Berry-Esseen theorem."""

from __future__ import annotations

import numpy as np

from estimators.bounds.normal import BERRY_ESSEEN
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.signs.law import Law, Moments
from estimators.bounds.signs.repeated import RepeatedLaw
from estimators.estimate import Floats


def moments_within(law: Law, low: Floats, high: Floats) -> Moments | None:
    """Enclose the moments of a sum for all means within [low, high]; None where nothing is known.

    Without an offset all variances fall with abs(theta), and third moments but for a factor of at
    most 1 + abs(theta). With an offset and free means both are concave in the levels' means, and
    lie below their tangent planes at the middle of the interval.

    Parameters
    ----------
    law, low, high
        `low`, `high`, shape (rows,): within [-1, 1].
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
    """Bound ln P(factor X + Y exceeds its mean by `excess`), for the worst pair of pieces.

    Parameters
    ----------
    first, second, excess, factors
        `first`, `second`: of X and of Y, shapes (rows, pieces); `excess`, shape (rows,): at least
        0; at most by how much the observed sum exceeds its mean; `factors`, shape (rows,): the
        least and the largest factor, at least 0.
    """
    from scipy.special import ndtr

    flat, steep = (x[:, None] for x in factors)
    scaled = (
        first.least_variance * flat**2,
        first.largest_variance * steep**2,
        first.third * steep**3,
    )
    least_variance, largest_variance, third = (
        x[:, :, None] + y[:, None, :] for x, y in zip(scaled, second, strict=True)
    )
    safe = np.maximum(least_variance, 1e-300)
    chance = ndtr(-excess[:, None, None] / np.sqrt(np.maximum(largest_variance, 1e-300)))
    chance = np.where(least_variance > 0, chance + BERRY_ESSEEN * third / safe**1.5, 1.0)
    log_chance: Floats = np.log(np.minimum(chance.max(axis=(1, 2)), 1.0))
    return log_chance
