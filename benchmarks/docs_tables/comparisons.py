"""Print how wide the bounds of comparisons are, and how many reports a difference needs.

``python -m benchmarks.docs_tables.comparisons`` prints the tables of docs/comparisons.md.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import ndtri

from benchmarks.docs_tables import print_table
from estimators.bounds import Law, interval
from estimators.comparison.arms import Arm
from estimators.comparison.joint import anytime, fixed_difference
from estimators.estimate import Floats

BETA, POWER = 0.05, 0.8
MIXED, HIGH = (0.25, 0.5, 1.0, 2.0, 4.0), (2.0, 4.0, 8.0)
SIZES = ((10**3, 10**3), (10**4, 10**4), (10**5, 10**5), (10**3, 10**4), (10**3, 10**5))
THETAS = (0.0, 0.5, 0.95)
EFFECTS, EPSILONS = (0.1, 0.05, 0.02, 0.01), (0.5, 1.0, 2.0, 4.0)
MAX_REPORTS = 10**11


def law(n: float, levels: tuple[float, ...]) -> Law:
    """Return the law of randomized response with optimal weights, equally many reports a level."""
    contrast = np.tanh(np.array(levels) / 2)
    counts = np.full(contrast.size, n / contrast.size)
    return Law(counts, contrast / (counts @ contrast**2), contrast)


def total(arm_law: Law) -> float:
    """Return the total weight, for bounds at all times."""
    return float(arm_law.counts @ arm_law.contrast**2 / arm_law.contrast.max())


def sums(arm_law: Law, theta: float, runs: int, rng: np.random.Generator) -> Floats:
    """Draw the sums of `runs` runs."""
    chance = (1 + arm_law.contrast * theta)[:, None] / 2
    counts = np.broadcast_to(arm_law.counts.astype(int)[:, None], (arm_law.counts.size, runs))
    result: Floats = arm_law.coefficient @ (2 * rng.binomial(counts, chance) - counts)
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
    first_sums, two = sums(a, theta, runs, rng), sums(b, theta, runs, rng)
    intervals = fixed_difference(Arm(first_sums, a), Arm(two, b), BETA)
    ends = [interval(x, s, np.log(BETA / 4)) for x, s in ((a, first_sums), (b, two))]
    union = sum(upper - lower for lower, upper in ends)
    normal = normal_width(a, b, theta)
    return float((intervals.upper - intervals.lower).mean()) / normal, float(
        np.mean(union)
    ) / normal


@functools.cache
def half_width(n: float, epsilon: float, bound: str) -> float:
    """Return half of the width for n reports an arm and a mean in the middle of the range."""
    arm_law, at = law(n, (epsilon,)), np.zeros(1)
    arm = Arm(at, arm_law, None, total(arm_law))
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
        sd = normal_width(law(n, (epsilon,)), law(n, (epsilon,)), 0.0) / (-2 * ndtri(BETA / 2))
        enough = half_width(n, epsilon, bound) + ndtri(POWER) * sd <= 2 * effect
        low, high = (low, n) if enough else (n, high)
    step: int = 10 ** (int(np.log10(high)) - 1)
    return step * int(np.ceil(high / step))


def widths_row(sizes: tuple[int, int]) -> list[str]:
    """Return the widths for each mean: the joint test's, and the union's in brackets."""
    cells = []
    for theta in THETAS:
        ratios = [widths(sizes, levels, theta) for levels in (MIXED, HIGH)]
        joint, union = (" / ".join(f"{pair[i]:.2f}" for pair in ratios) for i in (0, 1))
        cells.append(f"{joint} ({union})")
    return [f"{sizes[0]:,}, {sizes[1]:,}", *cells]


def needed_row(effect: float) -> list[str]:
    """Return the reports that a difference needs at each epsilon."""
    pairs = [[needed(effect, x, bound) for bound in ("fixed", "anytime")] for x in EPSILONS]
    return [f"{effect:.0%}", *(" / ".join(f"{n:,}" for n in pair) for pair in pairs)]


def main() -> None:
    """Print the tables."""
    heads = ["reports of a, of b", *(f"mean {theta:g}" for theta in THETAS)]
    print_table(heads, map(widths_row, SIZES))
    print()
    print_table(["difference", *(f"epsilon = {x:g}" for x in EPSILONS)], map(needed_row, EFFECTS))


if __name__ == "__main__":
    main()
