"""The baseline of `estimators.shuffling`: a closed formula for the epsilon of shuffled reports."""

from __future__ import annotations

import math

EPSILON_ROUNDING = 1e-12
"""The result is increased by this share, which exceeds the rounding errors of double precision."""


def clones_epsilon(epsilon: float, reports: int, delta: float) -> float | None:
    """Return an epsilon' such that shuffled reports are (epsilon', delta)-differentially private.

    This is for `reports` users (n) with the same randomizer at the same level. A report carries its
    level in the clear, so it hides among those of its own level, and each level has its own result.
    The result is at most `epsilon`, which is above zero; None if the theorem's condition epsilon <=
    ln(n / (16 ln(2 / delta))) fails. It is ln(1 + 8 (e^eps - 1) / (e^eps + 1) (sqrt(e^eps ln(4 /
    delta) / n) + e^eps / n)), with `delta` in (0, 1]. Source: HIST, Theorem 11: Feldman, McMillan
    and Talwar, "Hiding among the clones" (2021), Theorem 3.1.

    >>> round(clones_epsilon(1.0, 100_000, 1e-6), 4)
    0.0726
    >>> clones_epsilon(8.0, 100_000, 1e-6) is None
    True
    """
    crowd = reports / (16 * math.log(2 / delta))
    if crowd <= 1 or epsilon > math.log(crowd) * (1 - EPSILON_ROUNDING):
        return None
    grown = math.exp(epsilon)
    divergence = math.sqrt(grown * math.log(4 / delta) / reports) + grown / reports
    shuffled = math.log1p(8 * math.tanh(epsilon / 2) * divergence)
    return min(epsilon, shuffled * (1 + EPSILON_ROUNDING))
