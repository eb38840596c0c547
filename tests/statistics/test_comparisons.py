"""How often the bounds of a comparison cover the true difference, at the data hardest for them.

All runs of one case have the same counts, so their sums are the numbers of one pair of arms. A test
fails falsely where misses exceed what a coverage of 1 - beta shows in all but one of 10^4 seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binom

from estimators import compare
from estimators.comparison.arms import Arm, arm_of
from estimators.comparison.joint import fixed_difference, fixed_ratio
from estimators.question import Question
from tests.support.reports.populations import Population

if TYPE_CHECKING:
    from estimators.comparison.joint import Found
    from estimators.estimate import Floats

EVEN, PRIVATE, FEW = (200,) * 5, (3000, 500, 100, 20, 5), (0, 0, 30, 0, 0)
MANY = (20_000,) * 5


class Case(NamedTuple):
    """Two populations: a mechanism, the means (or frequencies), and reports per level."""

    mechanism: str
    theta_a: Any
    theta_b: Any
    counts_a: tuple[int, ...] = EVEN
    counts_b: tuple[int, ...] = EVEN

    def arms(self, runs: int, question: Question, seed: int = 2026) -> tuple[Arm, Arm]:
        rng = np.random.default_rng(seed)
        one = Population(self.mechanism, self.theta_a, self.counts_a)
        two = Population(self.mechanism, self.theta_b, self.counts_b)
        return many(one, runs, question, rng), many(two, runs, question, rng)

    @property
    def truth(self) -> Floats:
        """The difference of the means, or of twice the frequencies, for each number."""
        theta = [np.atleast_1d(x) for x in (self.theta_a, self.theta_b)]
        scale = 2.0 if isinstance(self.theta_a, tuple) else 1.0
        result: Floats = scale * (theta[0] - theta[1])
        return result


def many(population: Population, runs: int, question: Question, rng: Any) -> Arm:
    """Return the arm of many runs: their sums are its numbers, those of one run together."""
    arms = [
        arm_of(population.metric, population.statistic(population.held(rng), rng), question)
        for _ in range(runs)
    ]
    first = arms[0]
    observed = np.concatenate([arm.observed for arm in arms])
    return Arm(observed, first.law, None, first.total, first.outside)


def missed(found: Found, truth: Floats, runs: int) -> int:
    """Return in how many runs some number's truth was outside."""
    lower, upper = (x.reshape(runs, -1) for x in (found.lower, found.upper))
    return int(((truth < lower) | (truth > upper)).any(axis=1).sum())


def misses(case: Case, runs: int, beta: float, **asked: Any) -> int:
    question = Question(beta=beta, **asked)
    a, b = case.arms(runs, question)
    found = fixed_difference(a, b, beta / case.truth.size)
    return missed(found, case.truth, runs)


POINT, NEARLY = (1.0, 0.0, 0.0, 0.0), (0.97, 0.03, 0.0, 0.0)
HARDEST = [
    Case("randomized_response", 0.0, 0.0),
    Case("randomized_response", 0.98, 0.98, EVEN, PRIVATE),
    Case("randomized_response", 0.98, -0.98, EVEN, FEW),
    Case("randomized_response", 0.95, 0.5, FEW, EVEN),
    Case("laplace", 0.98, 0.98),
    Case("repetition", 0.98, 0.98),
    Case("rappor", NEARLY, POINT),
    Case("grr", NEARLY, NEARLY),
    Case("oue", POINT, NEARLY, EVEN, PRIVATE),
]


@pytest.mark.parametrize("case", HARDEST, ids=str)
def test_bounds_cover_the_difference_at_the_hardest_data(case: Case) -> None:
    runs = 400
    assert misses(case, runs, 0.05) <= binom.isf(1e-4, runs, 0.05)


def misses_of_ratio(case: Case, runs: int, beta: float) -> int:
    a, b = case.arms(runs, Question(beta=beta))
    found = fixed_ratio(a, b, beta / case.truth.size, 1.0)
    means = [1 + np.atleast_1d(x) for x in (case.theta_a, case.theta_b)]
    if isinstance(case.theta_a, tuple):
        means = [np.array(case.theta_a), np.array(case.theta_b)]
    return missed(found, means[0] / means[1], runs)


RATIOS = [
    Case("randomized_response", 0.5, 0.5),
    Case("randomized_response", -0.9, -0.5, EVEN, PRIVATE),
    Case("laplace", 0.3, -0.2),
    Case("grr", (0.8, 0.15, 0.05), (0.7, 0.2, 0.1)),
]


@pytest.mark.parametrize("case", RATIOS, ids=str)
def test_bounds_cover_the_ratio(case: Case) -> None:
    runs = 200
    assert misses_of_ratio(case, runs, 0.05) <= binom.isf(1e-4, runs, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("case", RATIOS, ids=str)
def test_two_thousand_ratios_are_covered(case: Case) -> None:
    assert misses_of_ratio(case, 2000, 0.05) <= (0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)) * 2000


@pytest.mark.parametrize("weights", ["optimal", "uniform"])
def test_p_values_are_small_no_more_often_than_they_say(weights: str) -> None:
    case, runs = Case("randomized_response", 0.9, 0.9, EVEN, PRIVATE), 1000
    a, b = case.arms(runs, Question(weights=weights))
    found = fixed_difference(a, b, 0.05)
    for alpha in (0.001, 0.01, 0.05, 0.2):
        assert (found.p_value <= alpha).sum() <= binom.isf(1e-4, runs, alpha)


def misses_shown(case: Case, runs: int, **asked: Any) -> int:
    """Return in how many runs some number's truth was outside of what `compare` shows."""
    rng, hits = np.random.default_rng(8), 0
    one = Population(case.mechanism, case.theta_a, case.counts_a)
    two = Population(case.mechanism, case.theta_b, case.counts_b)
    truth = np.subtract(case.theta_a, case.theta_b)
    for _ in range(runs):
        a, b = (x.statistic(x.held(rng), rng) for x in (one, two))
        found = compare(one.metric, a, b, **asked)
        lower, upper = np.asarray(found.lower), np.asarray(found.upper)
        hits += bool((lower > truth).any() or (upper < truth).any())
    return hits


BLOCKS = [
    Case(mechanism, theta, theta, (400,) * 5, PRIVATE)
    for mechanism in ("hadamard_response", "recursive_hadamard")
    for theta in (NEARLY, (0.3, 0.5, 0.2))
]
WINDOWS = Case("windows", -0.98, 0.5)
"""Its bounds are bets on the counts of symbols, so there is no law of the sums."""


@pytest.mark.parametrize("case", BLOCKS, ids=str)
def test_bounds_cover_where_the_variance_is_unknown(case: Case) -> None:
    assert misses_shown(case, 40, beta=0.2) <= binom.isf(1e-4, 40, 0.2)


def test_bets_on_symbols_cover_the_difference() -> None:
    assert misses_shown(WINDOWS, 60, beta=0.2, weights="uniform") <= binom.isf(1e-4, 60, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["optimal", "uniform"])
@pytest.mark.parametrize("case", BLOCKS, ids=str)
def test_two_thousand_runs_are_covered_where_the_variance_is_unknown(
    case: Case, weights: str
) -> None:
    most = 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert misses_shown(case, 2000, weights=weights) <= most * 2000


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["optimal", "uniform"])
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_a_thousand_runs_of_bets_on_symbols_are_covered(beta: float, weights: str) -> None:
    most = beta + 3 * np.sqrt(beta * (1 - beta) / 1000)
    assert misses_shown(WINDOWS, 1000, beta=beta, weights=weights) <= most * 1000


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["optimal", "uniform"])
@pytest.mark.parametrize("beta", [0.05, 0.2])
@pytest.mark.parametrize(
    "case",
    [
        *HARDEST,
        Case("randomized_response", 0.5, 0.5, MANY, MANY),
        Case("randomized_response", 0.95, 0.95, EVEN, MANY),
        Case("laplace", 0.0, 0.0, PRIVATE, EVEN),
    ],
    ids=str,
)
def test_two_thousand_runs_are_covered(case: Case, beta: float, weights: str) -> None:
    """Misses are at most beta and three standard errors."""
    most = beta + 3 * np.sqrt(beta * (1 - beta) / 2000)
    assert misses(case, 2000, beta, weights=weights) <= most * 2000
