"""Bounds that hold at all times at once, checked along whole paths to 10^5 reports.

Each path is looked at after every power of 1.1 reports, with levels that come in turns. A bound
that misses with probability beta exactly would fail a test here for one seed in 740 (three standard
errors).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.question import Question
from tests.statistics.paths import CHECKED, HARD, LAST, Paths
from tests.support.reports.populations import Population

NEARLY = (0.97, 0.03, 0.0, 0.0)


def most(beta: float, runs: int) -> float:
    return float(runs * beta + 3 * np.sqrt(runs * beta * (1 - beta)))


def failed(paths: Paths, **question: Any) -> int:
    return int(np.count_nonzero(paths.missed(Question(**{"bound": "anytime", **question}))))


def test_every_power_of_1_1_is_looked_at() -> None:
    assert CHECKED[-1] == LAST
    assert np.all(CHECKED[1:] <= np.maximum(CHECKED[:-1] + 1, np.ceil(1.1 * CHECKED[:-1])))


@pytest.mark.parametrize("population", [HARD[i] for i in (1, 4, 6, -1, -2, -4)], ids=str)
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_whole_paths_are_covered(population: Population, beta: float) -> None:
    assert failed(Paths(population, 200), beta=beta) <= most(beta, 200)


@pytest.mark.parametrize("mechanism", ["randomized_response", "laplace"])
def test_a_mean_that_moves_is_covered_with_uniform_weights(mechanism: str) -> None:
    """The truth is the running mean of all reporting users' distributions."""
    paths = Paths(Population(mechanism, 0.4, ()), 100, drift=0.5)
    assert failed(paths, beta=0.2, weights="uniform") <= most(0.2, 100)


@pytest.mark.parametrize("population", [HARD[1], HARD[4], HARD[6]], ids=str)
def test_the_users_own_values_are_covered_along_whole_paths(population: Population) -> None:
    found = failed(Paths(population, 100), beta=0.2, target="sample", weights="paper")
    assert found <= most(0.2, 100)


@pytest.mark.parametrize(
    ("population", "target", "weights"),
    [
        (HARD[8], "sample", "uniform"),
        (HARD[9], "population", "optimal"),
        (HARD[10], "population", "uniform"),
        (HARD[11], "sample", "optimal"),
    ],
    ids=str,
)
def test_levels_that_are_not_alike_are_covered_along_whole_paths(
    population: Population, target: str, weights: str
) -> None:
    found = failed(Paths(population, 50), beta=0.2, target=target, weights=weights)
    assert found <= most(0.2, 50)


@pytest.mark.parametrize("weights", ["optimal", "uniform"])
def test_an_order_of_levels_that_follows_the_reports_so_far_is_covered(weights: str) -> None:
    """The lowest level reports while the estimate is too high, the highest while it is too low."""
    population, rng, runs = (
        Population("randomized_response", 0.5, (0,) * 5),
        np.random.default_rng(3),
        100,
    )
    metric, left = population.metric, 0
    for _ in range(runs):
        statistic, outside = metric.zero(), False
        for look in range(11):
            high = statistic.any() and metric.estimate(statistic, bound="normal").value > 0.5
            counts = np.zeros(5, dtype=np.int64)
            counts[0 if high else 4] = 2**look
            held = np.array([rng.multinomial(n, population.frequencies) for n in counts])
            statistic += population.statistic(held, rng)
            found = metric.estimate(statistic, 0.2, weights, "anytime")
            outside |= not found.lower <= 0.5 <= found.upper
        left += outside
    assert left <= most(0.2, runs)


def test_a_bound_for_a_fixed_number_of_reports_fails_when_it_is_looked_at_again() -> None:
    """Why there are other bounds: along these paths both are wrong far more often than beta."""
    paths = Paths(HARD[0], 200)
    assert failed(paths, bound="normal") > 0.8 * 200
    assert failed(paths, bound="fixed") > 0.3 * 200


@pytest.mark.parametrize(
    ("mechanism", "theta"),
    [
        ("randomized_response", 0.3),
        ("laplace", 0.3),
        ("rappor", NEARLY),
        ("auto", 0.3),
        ("repetition", NEARLY),
    ],
)
@pytest.mark.parametrize("target", ["population", "sample"])
@pytest.mark.parametrize("weights", ["optimal", "paper", "uniform", "proportional"])
def test_a_paths_bounds_are_those_of_the_metric(
    mechanism: str, theta: float | tuple[float, ...], target: str, weights: str
) -> None:
    paths = Paths(Population(mechanism, theta, ()), 1)
    metric = paths.population.metric
    for bound in ("fixed", "anytime", "normal"):
        question = Question(bound=bound, target=target, weights=weights)
        for look, (counts, _, sums) in enumerate(paths.statistics()):
            if look % 40:
                continue
            columns = [counts[:, None], sums[:, 0]]
            left = metric.randomizer.columns - sum(part.shape[1] for part in columns)
            columns.append(np.zeros((len(counts), left), dtype=np.int64))
            statistic = np.concatenate(columns, axis=1).ravel()
            shown = metric.estimate(statistic, bound=bound, target=target, weights=weights)
            lower, upper, _ = paths.bounds(counts, sums, question)
            if metric.kind == "frequency":
                lower, upper = (1 + lower) / 2, (1 + upper) / 2
            assert np.allclose(np.ravel(shown.lower), lower[0], atol=1e-6)
            assert np.allclose(np.ravel(shown.upper), upper[0], atol=1e-6)
            assert shown.bound == bound


@pytest.mark.slow
@pytest.mark.parametrize("population", HARD, ids=str)
@pytest.mark.parametrize("beta", [0.05, 0.2])
@pytest.mark.parametrize(
    ("target", "weights"),
    [("population", "optimal"), ("population", "uniform"), ("sample", "paper")],
)
def test_two_thousand_whole_paths_are_covered(
    population: Population, beta: float, target: str, weights: str
) -> None:
    found = failed(Paths(population, 2000), beta=beta, target=target, weights=weights)
    assert found <= most(beta, 2000)
