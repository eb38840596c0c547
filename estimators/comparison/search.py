"""The smallest failure probability at which a difference is seen: a p-value of intervals."""

from __future__ import annotations

from collections.abc import Callable

LEAST = 1e-12
HALVINGS = 24  # of ln p between LEAST and 1: to a factor of 1 + 2e-6
COARSE = 6  # for many numbers, which share the points: to a factor of 1.5
FEW = 4
"""Numbers whose p-values are searched for one by one."""


def smallest(outside: Callable[[float], bool], halvings: int = HALVINGS) -> float:
    """Return about the least beta in [LEAST, 1] for which `outside(beta)` holds, from above.

    Intervals are proved one by one, from exact p-values that do not depend on beta: so the least
    beta at which the null hypothesis is outside is a p-value.

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
        middle = (low * high) ** 0.5
        low, high = (low, middle) if outside(middle) else (middle, high)
    return high
