"""Print how far bounds reach for numbers of reports, and how many reports a given reach needs.

``python -m benchmarks.docs_tables.reports_needed`` prints the tables of docs/what-to-ask.md: how
far the 95% bounds of a closed window reach from the truth, on the side where they reach farther.
All users are at one level, and the sums are at their expectation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from benchmarks.docs_tables import print_table
from estimators.bounds import interval
from estimators.bounds.piecewise.bets import SymbolBets
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.piecewise.limits import symbol_limits
from estimators.bounds.shares.bets import CategorySets
from estimators.bounds.shares.limits import share_limits
from estimators.mechanisms import (
    Grr,
    Piecewise,
    ProjectiveSketch,
    RandomizedResponse,
    SubsetSelection,
)
from estimators.question import Question
from tests.support.reports.cases import exact
from tests.support.windows import knots_of

SIZES = (1_000, 10_000, 100_000, 1_000_000)
EPSILONS = (0.5, 1, 2, 4, 8)
GOALS = (0.05, 0.01)
CATEGORIES = 20
"""The number of categories, or of strings, whose bounds hold at once."""
STRING_SHARE = 0.1
"""The share of users who hold each string."""
FULL_WEIGHT = np.ones(1)


def reach(lower: float, upper: float, truth: float) -> float:
    """Return how far bounds reach from the truth, on the side where they reach farther."""
    return max(float(upper) - truth, truth - float(lower))


def share(n: int, epsilon: float) -> float:
    """Return the reach for a share of one half, by `randomized_response`."""
    mechanism = RandomizedResponse([exact(epsilon)])
    lower, upper = interval(
        mechanism.law(np.array([n]), FULL_WEIGHT), np.zeros(1), Question().log_p(1)
    )
    return reach(lower[0] / 2, upper[0] / 2, 0.0)


def number(n: int, epsilon: float, data: tuple[float, float] = (-1.0, 1.0)) -> float:
    """Return the reach as a share of the range, for values uniform in `data`, by `windows`."""
    mechanism, values = Piecewise([exact(epsilon)]), np.linspace(*data, 2001)
    shape = mechanism.shapes[0]
    chance = knots_of(shape, values) @ shape.chances
    law = mechanism.law(np.array([n]), FULL_WEIGHT)
    assert isinstance(law, PiecewiseLaw)
    bets = SymbolBets(law, n * chance[None])
    lower, upper = map(float, symbol_limits(bets, Question(), Question().log_p(1), 1.0))
    return reach(lower / 2, upper / 2, sum(data) / 4)


def category(n: int, epsilon: float) -> float:
    """Return the reach for one of twenty equally frequent categories."""
    mechanism = SubsetSelection([exact(epsilon)], categories=CATEGORIES)
    law = mechanism.signs.law(np.array([n]), FULL_WEIGHT)
    lower, upper = interval(law, np.array([2 / CATEGORIES - 1]), Question().log_p(CATEGORIES))
    return reach((1 + lower[0]) / 2, (1 + upper[0]) / 2, 1 / CATEGORIES)


def string(n: int, epsilon: float) -> float:
    """Return the reach for one of twenty strings that a tenth of the users hold."""
    sketch = ProjectiveSketch([exact(epsilon)], categories=None)
    points = sketch.hashed_rows[0].geometry.points
    p, q = sketch.signs.p[0], sketch.signs.q[0]
    expected = n * (q + (p - q) * (STRING_SHARE + (1 - STRING_SHARE) / points))
    support = np.full((1, CATEGORIES), round(expected), dtype=np.int64)
    estimate = sketch.estimate_support(np.array([n]), support, Question())
    return reach(np.asarray(estimate.lower)[0], np.asarray(estimate.upper)[0], STRING_SHARE)


def share_among(n: int, epsilon: float, base: float) -> float:
    """Return the reach for a share of one half among `base` of the users, by `grr`."""
    mechanism = Grr([exact(epsilon)], categories=3)
    held = np.array([base / 2, base / 2, 1 - base])
    support = mechanism.signs.q[0] + held * mechanism.signs.contrast[0]
    table = np.rint(n * np.array([[1, *support]]))
    bets, _ = mechanism.share_bets(table, Question(), CategorySets((0,), (1,), 3))
    return reach(*share_limits(bets, Question().log_p(1), None), 0.5)


QUESTIONS: dict[str, Callable[[int, float], float]] = {
    "share": share,
    "share among a tenth": functools.partial(share_among, base=0.1),
    "share among three tenths": functools.partial(share_among, base=0.3),
    "number": number,
    "number in a tenth of the range": functools.partial(number, data=(0.2, 0.4)),
    f"{CATEGORIES} categories": category,
    f"{CATEGORIES} strings": string,
}


def needed(reached: Callable[[int, float], float], epsilon: float, goal: float) -> str:
    """Return how many reports have a reach of at most `goal`; "never" for more than 10^9."""
    low, high = 10.0, 1e9
    if reached(int(high), epsilon) > goal:
        return "never"
    while high / low > 1.002:
        middle = float(np.sqrt(low * high))
        enough = reached(int(middle), epsilon) <= goal
        low, high = (low, middle) if enough else (middle, high)
    step = 10 ** (int(np.log10(high)) - 1)
    return f"{int(step * np.ceil(high / step)):,}"


def main() -> None:
    """Print the tables."""
    print_table(
        ["epsilon", *(f"{n:,}" for n in SIZES)],
        (
            [f"{name}, {epsilon:g}", *(f"±{reached(n, epsilon):.3f}" for n in SIZES)]
            for name, reached in QUESTIONS.items()
            for epsilon in EPSILONS
        ),
    )
    for goal in GOALS:
        print()
        print_table(
            [f"reports for ±{goal:.0%}", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)],
            (
                [name, *(needed(reached, epsilon, goal) for epsilon in EPSILONS)]
                for name, reached in QUESTIONS.items()
            ),
        )


if __name__ == "__main__":
    main()
