"""Print how wide the bounds are, as a multiple of the width of `normal` bounds.

``python -m benchmarks.docs_tables.widths`` prints the first table of docs/bounds.md. Reports are
drawn once, spread evenly over the levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.docs_tables import print_table, sums_of
from estimators import LocalMetric, define
from estimators.estimate import Array

LEVELS = (0.25, 0.5, 1, 2, 4)
SIZES = (1_000, 10_000, 100_000)
MEANS: tuple[tuple[str, str, Array], ...] = (
    ("randomized_response", "mean 0", np.array([-1.0, 1.0])),
    ("randomized_response", "mean 0.9", np.array([-1.0] + 19 * [1.0])),
    ("laplace", "mean 0", np.array([-1.0, 1.0])),
    ("windows", "values in [-1, 1]", np.linspace(-1, 1, 2_001)),
    ("windows", "values in [0.2, 0.4]", np.linspace(0.2, 0.4, 2_001)),
)
FREQUENCIES = (
    *("rappor", "grr", "oue", "subset_selection", "projective_geometry_response", "projection"),
    *("hadamard_response", "recursive_hadamard", "auto", "repetition"),
)
SKETCHES = ("count_sketch", "projective_sketch")
FREQUENCY = 0.3
STRINGS = np.array([f"string {number}" for number in range(1_000)], dtype=object)
Case = tuple[str, dict[str, Any], Array, list[int], str]
"""A title, a definition, the values that users hold, the numbers that count, and a target."""


def cases() -> Iterator[Case]:
    """Yield what the rows of the table are about."""
    for mechanism, title, values in MEANS:
        fields: dict[str, Any] = {"kind": "mean", "mechanism": mechanism, "range": (-1, 1)}
        yield f"`{mechanism}`, {title}", fields, values, [0], "population"
    yield "`windows`, users' own values", fields, np.linspace(-1, 1, 2_001), [0], "sample"
    for mechanism in FREQUENCIES:
        fields = {"kind": "frequency", "mechanism": mechanism, "categories": 16}
        title, held = f"`{mechanism}`, k = 16, frequency {FREQUENCY:g}", _held(range(1, 16))
        yield title, fields, held, [0], "population"
    for mechanism in FREQUENCIES[:-2]:
        fields = {"kind": "frequency", "mechanism": mechanism, "categories": 1024}
        title, rare = f"`{mechanism}`, k = 1024, frequency 0", list(range(512, 1024))
        yield title, fields, _held(range(1, 512)), rare, "population"
    for mechanism in SKETCHES:
        fields = {"kind": "frequency", "mechanism": mechanism, "categories": "open"}
        title = f"`{mechanism}`, ten strings, frequency {FREQUENCY:g}"
        yield title, fields, STRINGS[_held(range(1, 1_000))], [0], "population"


def _held(others: range) -> Array:
    """Return the categories of users: 0 with `FREQUENCY`, and others equally often."""
    often = round(len(others) * FREQUENCY / (1 - FREQUENCY))
    return np.array([*others, *[0] * often])


def ratios(case: Case) -> list[str]:
    """Return a row: for each number of reports the ratios of `fixed` and of `anytime` bounds."""
    title, fields, values, categories, target = case
    strings = STRINGS[:10].tolist() if fields.get("categories") == "open" else None
    metric = LocalMetric.require(define(name="m", levels=LEVELS, **fields))
    cells = []
    for size in SIZES:
        statistic, widths = sums_of(metric, values, size), []
        for bound in ("fixed", "anytime", "normal"):
            estimate = metric.estimate(statistic, bound=bound, target=target, categories=strings)
            width = np.atleast_1d(np.asarray(estimate.upper) - np.asarray(estimate.lower))
            widths.append(width[categories].mean())
        cells.append(" / ".join(f"{width / widths[-1]:.2f}" for width in widths[:-1]))
    return [title, *cells]


if __name__ == "__main__":
    print_table(["bound", *(f"{n:,} reports" for n in SIZES)], map(ratios, cases()))
