"""How often the bounds cover the truth, at the data that is hardest for them.

The bounds hold with probability 1 - beta at least. A coverage of exactly 95% would show less than
94.5% in 2,000 runs for 14% of seeds; the seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from estimators.exact.randomness import SeededBits
from estimators.mechanisms import mechanisms_for
from tests.support.reports.cases import COMPOSITE
from tests.support.reports.populations import Population, covers

EVEN = (200, 200, 200, 200, 200)
PRIVATE = (3000, 500, 100, 20, 5)
MANY = (4000, 4000, 4000, 4000, 4000)
POINT = (1.0, *[0.0] * 15)
NEARLY = (0.97, 0.03, *[0.0] * 14)

MEANS = ("randomized_response", "laplace", "auto", "repetition")
HISTOGRAMS = list(mechanisms_for("frequency"))

#: Their bounds are others where there are many reports: the variance seen chooses the tilt.
BLOCKS = ("hadamard_response", "recursive_hadamard")

#: Their statistics take long to draw.
HASHED = ("prefix_tree", "projective_sketch")

#: Their bounds are hardly wider than they must be: more runs, and no more misses than a coverage of
#: 95% shows in all but one of 10^4 seeds. Here 4,000 runs of other seeds covered 95.6%.
TIGHT = {"laplace": 1000}

#: The others run less often here, and 2,000 times among the slow tests.
FAST = ("randomized_response", "rappor")

HARDEST = [
    Population("randomized_response", 0.98, EVEN),
    Population("laplace", -0.98, EVEN),
    Population("auto", 0.98, EVEN),
    Population("repetition", -0.98, EVEN),
    *[Population(mechanism, POINT, EVEN) for mechanism in HISTOGRAMS],
]
HARD = [
    *[
        Population(mechanism, theta, counts)
        for mechanism in MEANS
        for theta in (-1.0, 0.0, 0.98)
        for counts in (EVEN, PRIVATE, (0, 0, 30, 0, 0))
    ],
    *[
        Population(mechanism, frequencies, counts)
        for mechanism in HISTOGRAMS
        for frequencies in (POINT, NEARLY)
        for counts in (EVEN, PRIVATE, (0, 0, 30, 0, 0))
    ],
    *[Population(mechanism, NEARLY, MANY) for mechanism in BLOCKS],
]


def name(population: Population) -> str:
    return f"{population.mechanism}_{population.metric.kind}"


def fast_runs(mechanism: str, most: int, others: int) -> int:
    """Return how often a mechanism runs among the fast tests."""
    return 100 if mechanism in (*COMPOSITE, *HASHED) else most if mechanism in FAST else others


def covered(population: Population, runs: int, **question: Any) -> int:
    rng, hits = np.random.default_rng(2026), 0
    for run in range(runs):
        drawn = population.reseeded(run)
        held = drawn.held(rng)
        estimate = drawn.metric.estimate(drawn.statistic(held, rng), **question)
        hits += covers(estimate, drawn.truth(held, estimate))
    return hits


@pytest.mark.parametrize("population", HARDEST, ids=name)
def test_bounds_cover_the_population_at_the_hardest_data(population: Population) -> None:
    runs = fast_runs(population.mechanism, 1000, 200)
    assert covered(population, runs) >= 0.945 * runs


@pytest.mark.parametrize("population", HARDEST, ids=name)
def test_bounds_cover_the_users_own_values_at_the_hardest_data(population: Population) -> None:
    runs = fast_runs(population.mechanism, 200, 100)
    hits = covered(population, runs, target="sample", weights="uniform")
    assert hits >= 0.945 * runs


@pytest.mark.parametrize("beta", [0.05, 0.2])
@pytest.mark.parametrize("mechanism", BLOCKS)
def test_bounds_cover_where_the_variance_seen_chooses_the_tilt(mechanism: str, beta: float) -> None:
    """No more misses than a coverage of 1 - beta shows in all but one of 10^4 seeds."""
    misses = 150 - covered(Population(mechanism, NEARLY, MANY), 150, beta=beta)
    assert misses <= binom.isf(1e-4, 150, beta)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "weights"),
    [
        ("population", "optimal"),
        ("population", "uniform"),
        ("sample", "paper"),
        ("sample", "uniform"),
    ],
)
@pytest.mark.parametrize("population", HARD, ids=str)
def test_bounds_cover_whatever_is_asked(population: Population, target: str, weights: str) -> None:
    for beta in (0.05, 0.2):
        least = (1 - beta) - 3 * np.sqrt(beta * (1 - beta) / 2000)
        hits = covered(population, 2000, beta=beta, target=target, weights=weights)
        assert hits >= least * 2000


def end_to_end(population: Population, runs: int) -> int:
    rng, hits = np.random.default_rng(11), 0
    for run in range(runs):
        drawn = population.reseeded(run)
        metric, held = drawn.metric, drawn.held(rng)
        values, level = drawn.reports(held, rng)
        statistic = metric.zero()
        metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(run)))
        estimate = metric.estimate(statistic)
        hits += covers(estimate, drawn.truth(held, estimate))
    return hits


@pytest.mark.parametrize(
    "population", [p for p in HARDEST if p.mechanism not in COMPOSITE], ids=name
)
def test_randomized_reports_are_covered_end_to_end(population: Population) -> None:
    """No more misses than a coverage of 95% shows in all but one of 10^4 seeds."""
    assert 200 - end_to_end(population, 200) <= binom.isf(1e-4, 200, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("population", HARDEST, ids=name)
def test_two_thousand_randomized_runs_are_covered_end_to_end(population: Population) -> None:
    assert end_to_end(population, 2000) >= 0.945 * 2000


@pytest.mark.parametrize(
    ("mechanism", "kind"),
    [*[(name, "mean") for name in MEANS], *[(name, "frequency") for name in HISTOGRAMS]],
)
def test_uniform_weights_cover_a_population_whose_values_go_with_the_level(
    mechanism: str, kind: str
) -> None:
    """Each level has a mean of its own; the truth is the mean of all users' distributions."""
    rng = np.random.default_rng(5)
    means = [-1.0, 1.0, -0.5, 0.9, 1.0]
    if kind == "frequency":
        parts = [Population(mechanism, ((1 - m) / 2, (1 + m) / 2, 0.0), EVEN) for m in means]
    else:
        parts = [Population(mechanism, m, EVEN) for m in means]
    truth: Any = np.mean([p.frequencies for p in parts], axis=0)
    if kind == "mean":
        truth = truth[1] - truth[0]
    hits, runs = 0, TIGHT.get(mechanism) or fast_runs(mechanism, 200, 100)
    for run in range(runs):
        drawn = parts[0].reseeded(run)
        held = np.stack([part.held(rng)[i] for i, part in enumerate(parts)])
        estimate = drawn.metric.estimate(drawn.statistic(held, rng), weights="uniform")
        hits += covers(estimate, truth)
    assert runs - hits <= (binom.isf(1e-4, runs, 0.05) if mechanism in TIGHT else 0.055 * runs)
