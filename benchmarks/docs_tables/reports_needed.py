"""Print how many reports bounds of a given reach need, for the tables of docs/what-to-ask.md.

``python -m benchmarks.docs_tables.reports_needed``: how far the 95% bounds of a closed window are
from the estimate, on the side where they reach farther. All users are at one level.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.docs_tables import print_table, sums_of
from estimators import define
from estimators.estimate import Array, Counts

EPSILONS, GOALS = (0.5, 1, 2, 4, 8), (0.05, 0.01)
CATEGORIES, STRINGS = 20, 10
"""The numbers of equally frequent categories and strings, whose bounds hold at once."""
NAMES = np.array([f"string {number}" for number in range(STRINGS)], dtype=object)
MAX_DRAWN = 20_000
"""The most reports that are drawn; for more, their sums are multiplied."""
MEAN = {"kind": "mean", "range": (-1, 1)}
AMONG = {
    "kind": "frequency", "mechanism": "grr", "categories": ["none", "visit", "paid"],
    "shares": ["paid / visit.."],
}  # fmt: skip
QUESTIONS: dict[str, tuple[dict[str, Any], Array, float]] = {
    "share": (MEAN | {"mechanism": "randomized_response"}, np.array([-1.0, 1.0]), 2),
    "share among a tenth": (AMONG, np.repeat([0, 1, 2], [18, 1, 1]), 1),
    "share among three tenths": (AMONG, np.repeat([0, 1, 2], [14, 3, 3]), 1),
    "number": (MEAN, np.linspace(-1, 1, 2_001), 2),
    "number in a tenth of the range": (MEAN, np.linspace(0.2, 0.4, 2_001), 2),
    f"{CATEGORIES} categories": (
        {"kind": "frequency", "mechanism": "subset_selection", "categories": CATEGORIES},
        np.arange(CATEGORIES), 1,
    ),
    f"{STRINGS} strings": (
        {"kind": "frequency", "mechanism": "projective_sketch", "categories": "open"},
        NAMES, 1,
    ),
}  # fmt: skip
"""By title: a definition, the values that users hold, and the width of the range."""


@functools.cache
def _sums(question: str, epsilon: float, reports: int) -> Counts:
    fields, values, _ = QUESTIONS[question]
    return sums_of(define(name="m", levels=[epsilon], **fields), values, reports)


def reach(question: str, epsilon: float, reports: int) -> float:
    """Return how far a bound is from its estimate at most, as a share of the range."""
    fields, _, width = QUESTIONS[question]
    metric = define(name="m", levels=[epsilon], **fields)
    drawn = min(reports, MAX_DRAWN)
    copies = round(reports / drawn)
    names = NAMES.tolist() if metric.categories == "open" else fields.get("shares")
    estimate = metric.estimate(copies * _sums(question, epsilon, drawn), categories=names)
    value, lower, upper = map(np.asarray, (estimate.value, estimate.lower, estimate.upper))
    farthest = np.nanmax(np.maximum(upper - value, value - lower))
    return float(farthest / width * np.sqrt(copies * drawn / reports))


def needed(question: str, epsilon: float, goal: float) -> str:
    """Return how many reports have a reach of at most `goal`, with two digits."""
    low, high = 10.0, 1e9
    while high / low > 1.01:
        middle = float(np.sqrt(low * high))
        is_enough = reach(question, epsilon, int(middle)) <= goal
        low, high = (low, middle) if is_enough else (middle, high)
    step = 10 ** (int(np.log10(high)) - 1)
    return f"{int(step * np.ceil(high / step)):,}"


if __name__ == "__main__":
    for goal in GOALS:
        print_table(
            [f"reports for ±{goal:.0%}", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)],
            ([name, *(needed(name, x, goal) for x in EPSILONS)] for name in QUESTIONS),
        )
        print()
