"""Print what a report of each mechanism for frequencies, or for a mean, costs and says.

``python -m benchmarks.docs_tables.mechanisms`` prints the tables of docs/mechanisms.md: the size of
a report, the cells of the statistic at one level, and the variance of one unbiased report, all at a
single level. The variance is that of a category's estimate, times the number of reports, averaged
over the categories at f = 1/k, which is its largest average; for a count sketch that of a rare
string, beside what collisions add to the bounds of ten strings. For a mean it is that of a value
which is -1 or 1, either with probability 1/2, and its report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.docs_tables import print_table
from estimators.bounds.sketches import (
    collision_bound,
    collision_log_p,
    max_collision_share,
    min_collision_share,
)
from estimators.exact import discrete_laplace
from estimators.exact.piecewise_shapes import shape_at, two_symbols
from estimators.mechanisms import (
    CountSketch,
    Mechanism,
    ProjectiveSketch,
    mechanism_class,
    mechanisms_for,
)
from estimators.mechanisms.shared.block_differences import BlockDifferences
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.means import ScalarMean

EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4), Fraction(8))
SIZES = (16, 1024, 65536)
MEANS = list(mechanisms_for("mean"))
SKETCHES = ((256, 32), (512, 64), (1024, 64), (1024, 128), (4096, 128))
TABLES = ((256, 364), (1024, 364), (4096, 364))
LEAST_VARIANCES = {
    "0.1": 400.0,
    "0.25": 64.0,
    "0.5": 16.0,
    "1": 3.99,
    "1.5": 1.693,
    "2": 0.866,
    "2.6": 0.4465,
    "3": 0.3043,
    "4": 0.127,
    "5": 0.05743,
    "6": 0.02716,
    "8": 0.006505,
    "10": 0.001634,
}
"""The least worst-case variance of an unbiased private report of a value in [-1, 1], by epsilon,
from a convex programme on fine grids; up to 0.5 also (coth S) / S - 1 with S =
tanh(epsilon / 2)."""
LOG_P_OF_TEN = math.log(0.05 / 20)
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


def table(*heads: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Print a table and an empty line."""
    print_table(heads, rows)
    print()


def sizes(values: Iterable[int]) -> str:
    """Return the least and the largest size as text."""
    distinct = sorted(set(values))
    return f"{distinct[0]:,}" if len(distinct) == 1 else f"{distinct[0]:,} to {distinct[-1]:,}"


def main() -> None:
    """Print the tables of docs/mechanisms.md."""
    head = [f"epsilon {float(e):g}" for e in EPSILONS]
    means = {name: [build(name, epsilon) for epsilon in EPSILONS] for name in MEANS}
    table(
        *("a mean in [-1, 1]", "bytes a report", *head),
        rows=(
            (f"`{name}`", sizes(x.width for x in built), *(f"{variance(x):.3g}" for x in built))
            for name, built in means.items()
        ),
    )
    _print_windows()
    for categories in SIZES:
        rows = []
        for name in NAMES:
            built = [build(name, epsilon, categories=categories) for epsilon in EPSILONS]
            bits, cells = sizes(8 * x.width for x in built), sizes(x.columns for x in built)
            rows.append((f"`{name}`", bits, cells, *(f"{variance(x):.3g}" for x in built)))
        table(f"k = {categories:,}", "bits a report", "cells a level", *head, rows=rows)
    _print_sketches(head)


def _print_windows() -> None:
    rows = []
    for epsilon, least_variance in LEAST_VARIANCES.items():
        exact, square = Fraction(epsilon), 1 / 3
        shape, grid = shape_at(exact), 1024
        worst = float(shape.worst_variance)
        sign = float(two_symbols(exact).worst_variance)
        step = float(exact) / (2 * grid)
        noise = float(discrete_laplace.variance(np.array(step)) + 1 / 4) / grid**2
        users = min(sign, noise + square) / min(sign, worst + square)
        measured = (f"{x:.4g}" for x in (least_variance, worst, sign, noise))
        rows.append((epsilon, f"{shape.symbols}, {shape.window}", *measured, f"{users:.2f}"))
    names = ("`windows`", "`randomized_response`", "`laplace`", "users")
    table("epsilon", "M, W", "least possible", *names, rows=rows)


def _print_sketches(head: list[str]) -> None:
    rows = []
    for size, buckets in SKETCHES:
        sketch = CountSketch(EPSILONS, categories=None, rows=size, buckets=buckets)
        largest, usual = collision_bound(size, buckets, LOG_P_OF_TEN), (size * buckets) ** -0.5
        cells = (8 * sketch.width, f"{sketch.columns:,}", f"{largest:.4f}", f"{usual:.4f}")
        rows.append(
            (f"{size:,} x {buckets}", *cells, *(f"{x:.3g}" for x in sketch.facts.variances))
        )
    table("rows x buckets", "bits", "cells", "largest", "usual", *head, rows=rows)
    rows = []
    for size, points in TABLES:
        mechanism = ProjectiveSketch(EPSILONS, categories=None, rows=size, points=points)
        tables = [(texts.rows, texts.geometry.points) for texts in mechanism.hashed_rows]
        log_p = collision_log_p(LOG_P_OF_TEN, 1)
        above = [max_collision_share(size, points, log_p) - 1 / points for size, points in tables]
        below = [1 / points - min_collision_share(size, points, log_p) for size, points in tables]
        told_points = (
            *(8 * mechanism.width, f"{mechanism.columns:,}"),
            *(f"{min(x):.4f} to {max(x):.4f}" for x in (above, below)),
            f"{(size * points) ** -0.5:.4f}",
        )
        variances = (f"{x:.3g}" for x in mechanism.facts.variances)
        rows.append((f"{size:,} x {points}", *told_points, *variances))
    table("rows x points", "bits", "cells", "added", "missing", "usual", *head, rows=rows)


if __name__ == "__main__":
    main()
