"""Print what a report of each mechanism for frequencies, or for a mean, costs and says.

``python -m tests.statistics.mechanisms`` prints the tables of docs/mechanisms.md: the size of a
report, the cells of the statistic at one level, and the variance of one unbiased report, all at a
single level. The variance is that of a category's estimate, times the number of reports, averaged
over the categories at f = 1/k, which is its largest average; for a count sketch that of a rare
string, beside what collisions add to the bounds of ten strings. For a mean it is that of a value
which is -1 or 1, either with probability 1/2, and its report.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.bounds.collisions import collision_bound
from estimators.bounds.point_collisions import (
    collisions_log_p,
    least_collisions,
    most_collisions,
)
from estimators.exact import discrete_laplace
from estimators.exact.windows import shape_at, two_symbols
from estimators.mechanisms import CountSketch, ProjectiveSketch, mechanism_class, mechanisms_for
from estimators.mechanisms.shared.block_differences import BlockDifferences
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.means import ScalarMean
from tests.support.reports.least_variances import LEAST_VARIANCES

if TYPE_CHECKING:
    from estimators.mechanisms import Mechanism

EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4), Fraction(8))
SIZES = (16, 1024, 65536)
MEANS = list(mechanisms_for("mean"))
SKETCHES = ((256, 32), (512, 64), (1024, 64), (1024, 128), (4096, 128))
TABLES = ((256, 364), (1024, 364), (4096, 364))
TEN = math.log(0.05 / 20)
NAMES = [
    name for name, mechanism in mechanisms_for("frequency").items() if mechanism.closed_vocabulary
]


def build(name: str, epsilon: Fraction, **domain: int) -> Mechanism:
    """Return the mechanism for one level."""
    mechanism: Any = mechanism_class(name, "frequency" if domain else "mean")
    built: Mechanism = mechanism([epsilon], **domain)
    return built


def variance(mechanism: Mechanism) -> float:
    """Return the variance of one report at f = 1/k, averaged over the categories; or of a mean."""
    assert isinstance(mechanism, SupportCounts | BlockDifferences | ScalarMean)
    return float(mechanism.facts.variances[0])


def main() -> None:
    """Print the tables of docs/mechanisms.md."""
    out = sys.stdout
    head = " | ".join(f"epsilon {float(e):g}" for e in EPSILONS)
    out.write(f"\n| a mean in [-1, 1] | bytes a report | {head} |\n")
    out.write("|---|---|" + "---|" * len(EPSILONS) + "\n")
    for name in MEANS:
        all_levels = [build(name, epsilon) for epsilon in EPSILONS]
        widths = sorted({mechanism.width for mechanism in all_levels})
        size = f"{widths[0]}" if len(widths) == 1 else f"{widths[0]} to {widths[-1]}"
        variances = " | ".join(f"{variance(mechanism):.3g}" for mechanism in all_levels)
        out.write(f"| `{name}` | {size} | {variances} |\n")
    _print_windows()
    for categories in SIZES:
        out.write(f"\n| k = {categories:,} | bits a report | cells a level | {head} |\n")
        out.write("|---|---|---|" + "---|" * len(EPSILONS) + "\n")
        for name in NAMES:
            all_levels = [build(name, epsilon, categories=categories) for epsilon in EPSILONS]
            bits = sorted({8 * mechanism.width for mechanism in all_levels})
            cells = sorted({mechanism.columns for mechanism in all_levels})
            sizes = " | ".join(
                f"{x[0]:,}" if len(x) == 1 else f"{x[0]:,} to {x[-1]:,}" for x in (bits, cells)
            )
            variances = " | ".join(f"{variance(mechanism):.3g}" for mechanism in all_levels)
            out.write(f"| `{name}` | {sizes} | {variances} |\n")
    _print_sketches(head)


def _print_windows() -> None:
    out = sys.stdout
    out.write(
        "\n| epsilon | M, W | least possible | `windows` | `randomized_response` | `laplace` | "
    )
    out.write("users |\n" + "|---" * 7 + "|\n")
    for epsilon, least in LEAST_VARIANCES.items():
        exact, square = Fraction(epsilon), 1 / 3
        shape, grid = shape_at(exact), 1024
        worst = float(shape.worst_variance)
        sign = float(two_symbols(exact).worst_variance)
        step = float(exact) / (2 * grid)
        noise = float(discrete_laplace.variance(np.array(step)) + 1 / 4) / grid**2
        users = min(sign, noise + square) / min(sign, worst + square)
        out.write(
            f"| {epsilon} | {shape.symbols}, {shape.window} | {least:.4g} | {worst:.4g} | "
            f"{sign:.4g} | {noise:.4g} | {users:.2f} |\n"
        )


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
    out.write(f"\n| rows x points | bits | cells | added | missing | usual | {head} |\n")
    out.write("|---|---|---|---|---|---|" + "---|" * len(EPSILONS) + "\n")
    for rows, points in TABLES:
        mechanism = ProjectiveSketch(EPSILONS, categories=None, rows=rows, points=points)
        tables = [(each.rows, each.geometry.points) for each in mechanism.hashed_rows]
        log_p = collisions_log_p(TEN, 1)
        above = [most_collisions(*table, log_p) - 1 / table[1] for table in tables]
        below = [1 / table[1] - least_collisions(*table, log_p) for table in tables]
        variances = " | ".join(f"{variance:.3g}" for variance in mechanism.facts.variances)
        out.write(
            f"| {rows:,} x {points} | {8 * mechanism.width} | {mechanism.columns:,} | "
            f"{min(above):.4f} to {max(above):.4f} | {min(below):.4f} to {max(below):.4f} | "
            f"{(rows * points) ** -0.5:.4f} | "
            f"{variances} |\n"
        )


if __name__ == "__main__":
    main()
