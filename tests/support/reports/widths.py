"""How wide the bounds are, as a multiple of the normal law's width.

Reports are spread evenly over levels 0.25, 0.5, 1, 2 and 4, weights are optimal, beta is 0.05. The
sums are put at their expectation; the normal width takes the true standard deviation there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from estimators.bounds import Law, interval
from estimators.bounds.differences import difference_limits
from estimators.bounds.own_values import own_value_limits
from estimators.exact.thresholds import WORD, flip_threshold
from estimators.mechanisms import mechanism_class
from estimators.mechanisms.shared.block_differences import BlockDifferences
from estimators.question import Question
from estimators.weights import level_weights, total_weight
from tests.support.reports.cases import exact

LEVELS = np.array([0.25, 0.5, 1, 2, 4])
BETA = 0.05


def signs(n: int, part: int, k: int, *, free: bool) -> Law:
    """Return the law of randomized response (part 1) or RAPPOR (part 2), free: uniform weights."""
    flip = np.array([flip_threshold(exact(e) / part) / WORD for e in LEVELS])
    contrast, counts = 1 - 2 * flip, np.full(5, n / 5)
    share = counts / (flip * (1 - flip) / contrast**2 + (1 - 1 / k) / k)
    if free:
        share = counts
    return Law(counts, share / share.sum() / (counts * contrast), contrast, free=free)


def ratio(law: Law, theta: float, k: int = 1, *, ever: bool = False) -> float:
    """Return the width of the interval over the normal one, the domain's ends taken off both.

    `ever`: of the bound that holds at all times at once.
    """
    log_p = np.log(BETA / 2 / k)
    total = float(1 / law.coefficient.max()) if ever else None
    lower, upper = interval(law, np.array([theta]), log_p, total)
    half = -ndtri(np.exp(log_p)) * np.sqrt(law.largest_variance(np.array([theta])))[0]
    normal = min(1.0, theta + half) - max(-1.0, theta - half)
    return float((upper - lower)[0] / normal)


def anytime_ratio(law: Law, theta: float, k: int = 1) -> float:
    """Return the same for the bound that holds at all times at once."""
    return ratio(law, theta, k, ever=True)


def supported(name: str, n: int, k: int, f: float, **asked: Any) -> float:
    """Return the ratio for one category of a frequency mechanism, at frequency f."""
    constructor: Any = mechanism_class(name, "frequency")
    mechanism = constructor([exact(e) for e in LEVELS], categories=k)
    counts, question = np.full(5, n // 5), Question(**asked)
    shares = level_weights(question.weights, counts, mechanism.facts)
    target, log_p = question.target, np.log(BETA / 2 / k)
    total = total_weight(question.weights, counts, mechanism.facts)
    if isinstance(mechanism, BlockDifferences):
        law = mechanism.law(counts, shares, question)
        # the block's other categories hold their share of the rest, all alike
        rest = (1 - f) / (k - 1)
        held = np.array([f + rest * (-(-k // blocks) - 1) for blocks in mechanism.blocks])
        inside = 2 * mechanism.other + held * mechanism.contrast
        sums, sizes = (counts * mechanism.contrast * f)[:, None], (counts * inside)[:, None]
        lower, upper = difference_limits(law, sums, sizes, question, log_p, total)
        one = inside - mechanism.contrast**2 * (f if target == "sample" else f**2)
    else:
        law = mechanism.signs.law(counts, shares, question)
        ever = total if question.bound == "anytime" else None
        lower, upper = interval(law, np.array([2 * f - 1]), log_p, ever)
        if target == "sample":
            means = law.means(np.array([2 * f - 1]))[0]
            lower, upper = own_value_limits(law, (law.counts * means)[:, None], log_p, ever)
        lower, upper = (1 + lower) / 2, (1 + upper) / 2
        p, q = mechanism.signs.p, mechanism.signs.q
        one = law.variances(np.array([2 * f - 1]))[0] / 4
        if target == "sample":
            one = f * p * (1 - p) + (1 - f) * q * (1 - q)
    spread = law.counts @ (law.coefficient**2 * one)
    half = float(-ndtri(np.exp(log_p)) * np.sqrt(spread))
    normal = min(1.0, f + half) - max(0.0, f - half)
    return float((upper - lower)[0] / normal)
