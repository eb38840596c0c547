"""Print what a report of each frequency mechanism costs and says.

``python -m tests.statistics.mechanisms`` prints the tables of docs/mechanisms.md: the size of a
report, the cells of the statistic at one level, and the variance of one unbiased report, all at a
single level. The variance is that of a category's estimate, times the number of reports, averaged
over the categories at f = 1/k, which is its largest average.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from estimators.bounds.collisions import collision_bound
from estimators.mechanisms import MECHANISMS, CountSketch, HadamardResponse
from estimators.mechanisms.frequencies import SupportCounts

if TYPE_CHECKING:
    from estimators.mechanisms import Mechanism

EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4), Fraction(8))
SIZES = (16, 1024, 65536)
SKETCHES = ((256, 32), (512, 64), (1024, 64), (1024, 128), (4096, 128))
TEN = math.log(0.05 / 20)
NAMES = [
    name
    for name, mechanism in MECHANISMS.items()
    if "frequency" in mechanism.kinds and mechanism.closed_vocabulary
]


def build(name: str, epsilon: Fraction, categories: int) -> Mechanism:
    """Return the mechanism for one level."""
    mechanism: Any = MECHANISMS[name]
    built: Mechanism = mechanism([epsilon], categories=categories)
    return built


def variance(mechanism: Mechanism) -> float:
    """Return the variance of one report at f = 1/k, averaged over the categories."""
    assert isinstance(mechanism, SupportCounts | HadamardResponse)
    return float(mechanism.facts.variances[0])


def main() -> None:
    """Print the tables of docs/mechanisms.md."""
    out = sys.stdout
    head = " | ".join(f"epsilon {float(e):g}" for e in EPSILONS)
    for categories in SIZES:
        out.write(f"\n| k = {categories:,} | bits a report | cells a level | {head} |\n")
        out.write("|---|---|---|" + "---|" * len(EPSILONS) + "\n")
        for name in NAMES:
            all_levels = [build(name, epsilon, categories) for epsilon in EPSILONS]
            bits = sorted({8 * mechanism.width for mechanism in all_levels})
            cells = sorted({mechanism.columns for mechanism in all_levels})
            sizes = " | ".join(
                f"{x[0]:,}" if len(x) == 1 else f"{x[0]:,} to {x[-1]:,}" for x in (bits, cells)
            )
            variances = " | ".join(f"{variance(mechanism):.3g}" for mechanism in all_levels)
            out.write(f"| `{name}` | {sizes} | {variances} |\n")
    _print_sketches(head)


def _print_sketches(head: str) -> None:
    out = sys.stdout
    out.write(f"\n| rows x buckets | bits | cells | largest | usual | {head} |\n")
    out.write("|---|---|---|---|---|" + "---|" * len(EPSILONS) + "\n")
    for rows, buckets in SKETCHES:
        sketch = CountSketch(EPSILONS, categories=None, rows=rows, buckets=buckets)
        largest, usual = collision_bound(rows, buckets, TEN), (rows * buckets) ** -0.5
        variances = " | ".join(f"{variance:.3g}" for variance in sketch.facts.variances)
        out.write(
            f"| {rows:,} x {buckets} | {8 * sketch.width} | {sketch.columns:,} | "
            f"{largest:.4f} | {usual:.4f} | {variances} |\n"
        )


if __name__ == "__main__":
    main()
