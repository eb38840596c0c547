"""Estimates from randomized reports are unbiased.

Each number compared lies outside 4 standard errors (200 runs) for one seed in 11,000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from estimators.randomness import SeededBits
from tests.statistics.populations import LEVELS, Population

if TYPE_CHECKING:
    from estimators.estimate import Floats

RUNS, EACH = 200, 300
POPULATIONS = [
    Population("randomized_response", 0.98, ()),
    Population("laplace", -0.4, ()),
    Population("rappor", (0.7, 0.25, 0.05, 0.0, 0.0), ()),
]


@pytest.mark.parametrize("weights", ["optimal", "paper", "uniform", "proportional"])
@pytest.mark.parametrize("population", POPULATIONS, ids=lambda p: p.mechanism)
def test_the_mean_of_200_runs_is_the_truth(population: Population, weights: str) -> None:
    metric = population.metric
    if metric.kind == "mean":
        values = np.tile(np.linspace(-1, 1, EACH) ** 3 * 0.2 + population.frequencies[1] - 0.5, 5)
        truth = np.atleast_1d(values.mean())
    else:
        values = np.tile(np.repeat(np.arange(5), (population.frequencies * EACH).astype(int)), 5)
        truth = population.frequencies
    level = np.repeat(np.arange(len(LEVELS)), EACH).astype(np.uint8)
    found = []
    for run in range(RUNS):
        statistic = metric.zero()
        metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(run)))
        found.append(np.atleast_1d(metric.estimate(statistic, weights=weights).value))
    error = np.std(found, axis=0, ddof=1) / np.sqrt(RUNS)
    assert np.all(np.abs(np.mean(found, axis=0) - truth) <= 4 * error)


@pytest.mark.parametrize("population", POPULATIONS, ids=lambda p: p.mechanism)
def test_effective_reports_is_the_worst_variance_of_noise_free_reports_over_ours(
    population: Population,
) -> None:
    """For a mean, at theta = 0; the variance of 1,000 runs is within 5 standard errors, 22%."""
    if population.metric.kind == "mean":
        worst, spread = Population(population.mechanism, 0.0, (100,) * 5), 1.0
    else:
        worst, spread = Population(population.mechanism, (0.5, 0.5, 0, 0, 0), (100,) * 5), 0.25
    metric, rng = worst.metric, np.random.default_rng(3)
    found: list[Floats] = []
    for _ in range(1000):
        statistic = worst.statistic(worst.held(rng), rng)
        found.append(np.atleast_1d(metric.estimate(statistic).value))
    claimed = spread / metric.estimate(statistic).effective_reports
    measured = np.var(found, axis=0)[0]
    assert measured == pytest.approx(claimed, rel=5 * np.sqrt(2 / 1000))
