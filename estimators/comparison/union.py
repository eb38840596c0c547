"""Comparisons of arms whose joint law is unknown: the limits of each arm, at half of beta."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from estimators.comparison.joint import ComparisonLimits, consistent
from estimators.comparison.p_values import chained_p_values
from estimators.estimate import Bools, Estimate, Floats, Limits

ArmEstimator = Callable[[float], Estimate]
"""A function that returns the estimate of an arm for a failure probability."""


def union(a: ArmEstimator, b: ArmEstimator, beta: float, *, ratio: bool) -> ComparisonLimits:
    """Return limits for a difference or a ratio, in the metric's own unit.

    With probability 1 - `beta` both arms' intervals are right, whatever the arms have in common.
    `a`, `b`: the estimates of the arms; `ratio`: whether to compare by a ratio.
    """
    null = 1.0 if ratio else 0.0

    def limits(share: float) -> Limits:
        a_estimate, b_estimate = a(share / 2), b(share / 2)
        ends = [
            np.atleast_1d(np.asarray(x))
            for x in (a_estimate.lower, a_estimate.upper, b_estimate.lower, b_estimate.upper)
        ]
        return _quotient(*ends) if ratio else (ends[0] - ends[3], ends[1] - ends[2])

    def excludes_null(share: float) -> Bools:
        low, high = limits(share)
        return (low > null) | (high < null)

    lower, upper = limits(beta)
    p_value = chained_p_values(excludes_null, beta)
    return consistent(lower, upper, p_value, beta, null)


def _quotient(low: Floats, high: Floats, divisor_low: Floats, divisor_high: Floats) -> Limits:
    """Return the range of a quotient of two numbers that are at least 0.

    The upper end is infinite if the divisor may be 0.


    >>> one = np.ones(1)
    >>> [float(x[0]) for x in _quotient(2 * one, 3 * one, one, 4 * one)]
    [0.5, 3.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.where(divisor_high > 0, low / divisor_high, 0.0)
        upper = np.where(divisor_low > 0, high / divisor_low, np.inf)
    return np.maximum(lower, 0), upper
