"""How wide the bounds of comparisons are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from estimators.bounds import Law, interval
from estimators.comparison.arms import Arm
from estimators.comparison.joint import fixed_difference

if TYPE_CHECKING:
    from estimators.estimate import Floats

BETA = 0.05


def law(n: float, levels: tuple[float, ...]) -> Law:
    """Return the law of randomized response with optimal weights, equally many reports a level."""
    contrast = np.tanh(np.array(levels) / 2)
    counts = np.full(contrast.size, n / contrast.size)
    return Law(counts, contrast / (counts @ contrast**2), contrast)


def sums(one: Law, theta: float, runs: int, rng: np.random.Generator) -> Floats:
    """Draw the sums of so many runs."""
    chance = (1 + one.contrast * theta)[:, None] / 2
    counts = np.broadcast_to(one.counts.astype(int)[:, None], (one.counts.size, runs))
    result: Floats = one.coefficient @ (2 * rng.binomial(counts, chance) - counts)
    return result


def normal_width(a: Law, b: Law, theta: float) -> float:
    """Return the width of the normal interval, with the true standard deviation."""
    at = np.array([theta])
    variance = a.largest_variance(at) + b.largest_variance(at)
    return float(-2 * ndtri(BETA / 2) * np.sqrt(variance[0]))


def widths(
    sizes: tuple[int, int], levels: tuple[float, ...], theta: float, runs: int = 300
) -> tuple[float, float]:
    """Return the mean widths of the joint test and of the union, over the normal one."""
    rng, (a, b) = np.random.default_rng(4), (law(n, levels) for n in sizes)
    one, two = sums(a, theta, runs, rng), sums(b, theta, runs, rng)
    found = fixed_difference(Arm(one, a), Arm(two, b), BETA)
    ends = [interval(x, s, np.log(BETA / 4)) for x, s in ((a, one), (b, two))]
    union = sum(upper - lower for lower, upper in ends)
    normal = normal_width(a, b, theta)
    return float((found.upper - found.lower).mean()) / normal, float(np.mean(union)) / normal
