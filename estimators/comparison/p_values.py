"""P-values of intervals: the smallest failure probability at which a difference is seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Floats
from estimators.interruption import checkpoint

LEAST = 1e-12
HALVINGS = 24  # of ln p between LEAST and 1: to a factor of 1 + 2e-6
NEAR = 5e-7  # of ln p
COARSE = 6  # for many numbers, which share the points: to a factor of 1.5
FEW = 4
"""Numbers whose p-values are searched for one by one."""


def smallest(outside: Callable[[float], bool], halvings: int = HALVINGS) -> float:
    """Return about the least beta in [LEAST, 1] for which `outside(beta)` holds, from above.

    This is a p-value if the intervals are nested: what is outside at one beta is outside at all
    larger ones.

    Examples
    --------
    >>> round(smallest(lambda beta: beta >= 0.03), 6)
    0.03
    """
    if outside(LEAST):
        return LEAST
    if not outside(1 - LEAST):
        return 1.0
    low, high = LEAST, 1 - LEAST
    for _ in range(halvings):
        checkpoint()
        middle = (low * high) ** 0.5
        low, high = (low, middle) if outside(middle) else (middle, high)
    return high


def crossing(margin: Callable[[float], float], far: float) -> float:
    """Return about the least beta in [LEAST, 1] with margin(beta) < far, as :func:`smallest`.

    Parameters
    ----------
    margin : callable
        Half of a width, which falls with beta: nearly like that of a normal law, so that its square
        is nearly a line in ln beta.
    far : float
        At least 0.

    Examples
    --------
    >>> found = crossing(lambda beta: (-math.log(beta)) ** 0.5, 2.0)
    >>> round(found, 4), round(math.exp(-4), 4)
    (0.0183, 0.0183)
    """
    from scipy.optimize import brentq

    if margin(LEAST) < far:
        return LEAST
    if not margin(1 - LEAST) < far:
        return 1.0
    ends = math.log(LEAST), math.log(1 - LEAST)
    root = brentq(lambda log: margin(math.exp(log)) ** 2 - far**2, *ends, xtol=NEAR)
    found = math.exp(min(float(root) + 2 * NEAR, ends[1]))
    return found if margin(found) < far else smallest(lambda beta: margin(beta) < far)


STEP = 1.3
"""Between neighbouring levels above beta; below it, the j-th is smaller by the j-th power."""


def chained(outside: Callable[[float], NDArray[np.bool_]], beta: float) -> Floats:
    """Return p-values of intervals that may not be nested, at most beta where outside at beta.

    Parameters
    ----------
    outside : callable
        From a failure probability to whether the null hypothesis is outside, for k numbers.
    beta : float

    Notes
    -----
    Levels are fixed in advance. Where the hypothesis is outside at beta and at all levels down to
    gamma, p is gamma: then it is outside at gamma, which has a chance of at most gamma. Where it is
    inside at beta, but outside at all levels above alpha, p is alpha + beta: p <= a has a chance of
    at most beta for what is outside at beta, and at most a - beta for the rest.

    Examples
    --------
    >>> def outside(share):
    ...     return np.array([share >= 0.2, share >= 0.001, False])
    >>> chained(outside, 0.05).round(3)
    array([0.257, 0.004, 1.   ])
    """
    seen = outside(beta)
    found, going, level, j = np.where(seen, beta, 1.0), seen.copy(), beta, 0
    while going.any() and level > LEAST:
        checkpoint()
        j += 1
        level /= STEP**j
        going &= outside(level)
        found[going] = level
    going, level = ~seen, 1 / STEP
    while going.any() and level > beta:
        checkpoint()
        going &= outside(level)
        found[going] = np.minimum(level + beta, 1.0)
        level /= STEP
    return found
