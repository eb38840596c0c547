"""Print how many reports a difference needs.

``python -m benchmarks.docs_tables.comparisons`` prints the table of docs/comparisons.md.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import ndtri

from benchmarks.docs_tables import print_table
from estimators.bounds import Law
from estimators.comparison.arms import Arm
from estimators.comparison.joint import anytime, fixed_difference

BETA, POWER = 0.05, 0.8
EFFECTS, EPSILONS = (0.1, 0.05, 0.02, 0.01), (0.5, 1.0, 2.0, 4.0)
MAX_REPORTS = 10**11


@functools.cache
def law(n: float, epsilon: float) -> Law:
    """Return the law of randomized response at one level."""
    contrast = np.tanh(np.array([epsilon]) / 2)
    return Law(np.array([n]), 1 / (n * contrast), contrast)


@functools.cache
def half_width(n: float, epsilon: float, bound: str) -> float:
    """Return half of the width for n reports an arm and a mean in the middle of the range."""
    arm_law, at = law(n, epsilon), np.zeros(1)
    total = float((arm_law.counts * arm_law.contrast).sum())
    arm = Arm(at, arm_law, None, total)
    interval_ends = (
        anytime(arm, arm, BETA, 1.0) if bound == "anytime" else fixed_difference(arm, arm, BETA)
    )
    return float((interval_ends.upper - interval_ends.lower)[0]) / 2


def needed(effect: float, epsilon: float, bound: str) -> int:
    """Return the reports an arm with which a difference is proved with probability 0.8.

    Parameters
    ----------
    effect : float
        The difference of the means, as a share of the range.
    epsilon : float
        The level of all reports.
    bound : str
        ``"fixed"``, or ``"anytime"``, which is read once, at this number of reports.
    """
    low, high = 10.0, float(MAX_REPORTS)
    while high / low > 1.001:
        n = np.sqrt(low * high)
        sd = np.sqrt(2 * law(n, epsilon).largest_variance(np.zeros(1))[0])
        enough = half_width(n, epsilon, bound) + ndtri(POWER) * sd <= 2 * effect
        low, high = (low, n) if enough else (n, high)
    step: int = 10 ** (int(np.log10(high)) - 1)
    return step * int(np.ceil(high / step))


def needed_row(effect: float) -> list[str]:
    """Return the reports that a difference needs at each epsilon."""
    pairs = [[needed(effect, x, bound) for bound in ("fixed", "anytime")] for x in EPSILONS]
    return [f"{effect:.0%}", *(" / ".join(f"{n:,}" for n in pair) for pair in pairs)]


if __name__ == "__main__":
    print_table(["difference", *(f"epsilon = {x:g}" for x in EPSILONS)], map(needed_row, EFFECTS))
