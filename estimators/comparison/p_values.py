"""P-values of intervals: the smallest failure probability at which they exclude equality."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from estimators.estimate import Bools, Floats
from estimators.interruption import checkpoint
from estimators.roots import crossing

SMALLEST_P_VALUE = 1e-12
P_VALUE_HALVINGS = 24  # halvings of the range of ln p: p is exact to a factor of 1 + 2e-6
LOG_P_TOLERANCE = 5e-7  # the error of ln p at which the search ends
COARSE_HALVINGS = 6  # for many numbers, for which the same p are tried: exact to a factor of 1.5
MAX_SEARCHED_P_VALUES = 4
"""The most numbers whose p-values are searched for one by one."""


def smallest_p_value(
    margin: Callable[[float], float], distance: float, halvings: int = P_VALUE_HALVINGS
) -> float:
    """Return a beta at or slightly above the smallest one with margin(beta) < distance.

    This is a p-value if the intervals are nested: a value outside at one beta is outside at all
    larger ones. `margin`: half of an interval's width as a function of beta; it falls with beta;
    `distance`: at least 0; `halvings`: how often the range of ln beta is halved.

    >>> round(smallest_p_value(lambda beta: 1.03 - beta, 1.0), 6)
    0.03
    """
    if margin(SMALLEST_P_VALUE) < distance:
        return SMALLEST_P_VALUE
    if not margin(1 - SMALLEST_P_VALUE) < distance:
        return 1.0
    low, high = SMALLEST_P_VALUE, 1 - SMALLEST_P_VALUE
    for _ in range(halvings):
        checkpoint()
        middle = (low * high) ** 0.5
        low, high = (low, middle) if margin(middle) < distance else (middle, high)
    return high


def crossing_p_value(margin: Callable[[float], float], distance: float) -> float:
    """Return the same as :func:`smallest_p_value`, faster if the margin is almost a normal law's.

    The square of such a margin is almost linear in ln beta. `margin`, `distance`: as for that
    function.

    >>> found = crossing_p_value(lambda beta: (-math.log(beta)) ** 0.5, 2.0)
    >>> round(found, 4), round(math.exp(-4), 4)
    (0.0183, 0.0183)
    """
    if margin(SMALLEST_P_VALUE) < distance:
        return SMALLEST_P_VALUE
    if not margin(1 - SMALLEST_P_VALUE) < distance:
        return 1.0
    ends = math.log(SMALLEST_P_VALUE), math.log(1 - SMALLEST_P_VALUE)
    root = crossing(lambda log: margin(math.exp(log)) ** 2 - distance**2, *ends, LOG_P_TOLERANCE)
    p_value = math.exp(min(root + 2 * LOG_P_TOLERANCE, ends[1]))
    return p_value if margin(p_value) < distance else smallest_p_value(margin, distance)


LEVEL_RATIO = 1.3
"""The ratio of neighbouring levels above beta. Below, the j-th step divides by its j-th power."""


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
    p_values, going, level, j = np.where(excluded, beta, 1.0), excluded.copy(), beta, 0
    while going.any() and level > SMALLEST_P_VALUE:
        checkpoint()
        j += 1
        level /= LEVEL_RATIO**j
        going &= excludes_null(level)
        p_values[going] = level
    going, level = ~excluded, 1 / LEVEL_RATIO
    while going.any() and level > beta:
        checkpoint()
        going &= excludes_null(level)
        p_values[going] = np.minimum(level + beta, 1.0)
        level /= LEVEL_RATIO
    return p_values
