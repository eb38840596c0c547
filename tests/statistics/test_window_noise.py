"""How often the bounds of windows cover the users' own values, for the data hardest for them.

Counts of symbols are drawn from their exact law, and a bound depends on the numbers of reports
alone, so that 2,000 runs are quick.
"""

from __future__ import annotations

import numpy as np
import pytest

from estimators import LocalMetric, compare, define
from estimators.estimate import Counts, Floats
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


def statistic_around_zero(metric: LocalMetric, counts: tuple[int, ...]) -> Counts:
    """Return as many reports of the two middle symbols, so that no bound is cut."""
    table = metric.zero().reshape(len(counts), -1)
    assert isinstance(metric.randomizer, Windows)
    for row, n, shape in zip(table, counts, metric.randomizer.shapes, strict=True):
        row[0], upper = n, shape.symbols - shape.symbols // 2
        row[shape.symbols // 2] += n - n // 2
        row[1 + upper] += n // 2
    return table.ravel()


SPLITS = [((100, 100), (100, 1)), ((5000, 4), (4, 20))]


@pytest.mark.parametrize(
    ("weights", "beta"), [("uniform", 0.05), ("uniform", 0.2), ("optimal", 0.2)]
)
@pytest.mark.parametrize("arms", SPLITS, ids=str)
def test_differences_cover_users_whose_values_go_with_the_level(
    arms: tuple[tuple[int, ...], ...], weights: str, beta: float
) -> None:
    """One level holds -1 and the other 1, in the second arm the other way round.

    Each side misses in at most beta / 2 of 20,000 runs and three standard errors.
    """
    runs, epsilons, rng = 20_000, (1.0, 8.0), np.random.default_rng(22)
    metric = define(name="m", kind="mean", mechanism="windows", range=(-1, 1), levels=[*epsilons])
    assert isinstance(metric.randomizer, Windows)
    tables, errors = [], np.zeros(runs)
    for counts, side in zip(arms, (1.0, -1.0), strict=True):
        tables.append(statistic_around_zero(metric, counts))
        shares = metric.estimate(tables[-1], weights=weights, target="sample").weights
        for level, (shape, n) in enumerate(zip(metric.randomizer.shapes, counts, strict=True)):
            x = -side if level == 0 else side
            symbols = rng.multinomial(n, chances(shape, x), size=runs)
            errors += side * shares[level] * (symbols @ shape.values / n - x)
    answer = compare(metric, tables[0], tables[1], beta=beta, target="sample", weights=weights)
    assert answer.law == "joint"
    margin = float(answer.upper) - float(answer.value)
    assert margin < 1.5  # and not cut at an end of the range
    misses = np.count_nonzero(errors > margin), np.count_nonzero(errors < -margin)
    assert max(misses) <= runs * beta / 2 + 3 * np.sqrt(runs * beta / 2)
