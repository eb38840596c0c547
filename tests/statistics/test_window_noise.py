"""How often the bounds of windows cover the users' own values, for the data hardest for them.

Counts of symbols are drawn from their exact law, and a bound depends on the numbers of reports
alone, so that 2,000 runs are quick.
"""

from __future__ import annotations

import numpy as np
import pytest

from estimators.estimate import Floats
from estimators.exact.windows import WindowShape
from estimators.mechanisms import Windows
from estimators.question import Question
from tests.support.reports.cases import exact

EVERY = (0.25, 0.5, 1.0, 2.0, 4.0)
LEVELS = [
    (EVERY, (200, 200, 200, 200, 200)),
    (EVERY, (3000, 500, 100, 20, 6)),
    (EVERY, (6, 6, 6, 6, 3000)),
    ((2.0,), (300,)),
    ((8.0,), (1000,)),
]
RUNS = 2000


def hardest(shape: WindowShape) -> dict[str, Floats]:
    """Return values at the ends, at a knot, between two, and narrow; users hold them in turns."""
    third = shape.windows // 3
    return {
        "ends": np.array([-1.0, 1.0]),
        "one end": np.array([1.0]),
        "knot": shape.knots[third : third + 1],
        "between": shape.knots[third : third + 2].mean(keepdims=True),
        "narrow": np.array([0.21, 0.23]),
    }


def chances(shape: WindowShape, x: float) -> Floats:
    """Return the probability of each symbol for the input x."""
    place = float(np.interp(x, shape.knots, np.arange(shape.windows)))
    down = min(int(place), shape.windows - 2)
    found = np.full(shape.symbols, float(shape.outside))
    for start, share in ((down, down + 1 - place), (down + 1, place - down)):
        found[start : start + shape.window] += share * float(shape.inside - shape.outside)
    shares: Floats = found / found.sum()
    return shares


@pytest.mark.parametrize("beta", [0.05, 0.2])
@pytest.mark.parametrize("data", ["ends", "one end", "knot", "between", "narrow"])
@pytest.mark.parametrize(("epsilons", "counts"), LEVELS, ids=str)
def test_bounds_cover_the_users_own_values(
    epsilons: tuple[float, ...], counts: tuple[int, ...], data: str, beta: float
) -> None:
    mechanism, rng = Windows([exact(e) for e in epsilons]), np.random.default_rng(2026)
    values = hardest(mechanism.shapes[-1])[data]
    tables = np.zeros((RUNS, len(counts), mechanism.columns), dtype=np.int64)
    tables[:, :, 0] = counts
    means, errors = np.zeros(len(counts)), np.zeros((RUNS, len(counts)))
    for level, (shape, n) in enumerate(zip(mechanism.shapes, counts, strict=True)):
        for turn, x in enumerate(values.tolist()):
            users = len(range(turn, n, len(values)))
            symbols = rng.multinomial(users, chances(shape, x), size=RUNS)
            tables[:, level, 1 : 1 + shape.symbols] += symbols
            means[level] += users / n * x
        found = tables[:, level, 1 : 1 + shape.symbols] @ shape.values
        errors[:, level] = found / n - means[level]
    margins, question = [], Question(beta=beta, target="sample")
    for table, error in zip(tables[:3], errors, strict=False):
        answer = mechanism.estimate(table, question)
        assert answer.value == pytest.approx(answer.weights @ (means + error))
        margins += [answer.upper - answer.value, answer.value - answer.lower]
    margin = max(margins)  # less where the bound is cut at an end of the range
    hits = int((np.abs(errors @ answer.weights) <= margin).sum())
    assert hits >= RUNS * (1 - beta) - 3 * np.sqrt(RUNS * beta * (1 - beta))
    if epsilons[-1] < 8 and counts[0] >= 200:
        assert hits <= RUNS * (1 - beta / 2)  # the bounds are not wide, either
