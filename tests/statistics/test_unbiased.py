"""Estimates from randomized reports are unbiased.

Each number compared lies outside 4 standard errors (100 runs) for one seed in 8,000.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import binom

from estimators.exact.randomness import SeededBits
from estimators.mechanisms import (
    CountSketch,
    PrefixTree,
    ProjectiveSketch,
    Repetition,
    mechanisms_for,
)
from estimators.mechanisms.shared.block_differences import BlockDifferences
from estimators.mechanisms.shared.frequencies import SupportCounts
from tests.support.reports.cases import COMPOSITE
from tests.support.reports.populations import LEVELS, Population, hashed

if TYPE_CHECKING:
    from estimators import LocalMetric
    from estimators.estimate import Counts, Floats

EVEN = (100,) * 5
#: The data at which category 0's estimate has its largest variance, where not at 1/2: for Hadamard
#: response at epsilon = 1, and recursive Hadamard at 2, all hold another category of its block.
HARDEST = {
    "grr": ((0.755, 0.245, 0.0, 0.0, 0.0), EVEN),
    "oue": ((1.0, 0.0, 0.0, 0.0, 0.0), EVEN),
    "subset_selection": ((0.9, 0.1, 0.0, 0.0, 0.0), EVEN),
    "projective_geometry_response": ((0.56, 0.44, 0.0, 0.0, 0.0), EVEN),
    "hadamard_response": ((0.0, 0.0, 1.0, 0.0, 0.0), (0, 0, 500, 0, 0)),
    "recursive_hadamard": ((0.0, 0.0, 0.0, 0.0, 1.0), (0, 0, 0, 500, 0)),
    "projection": ((0.0, 1.0, 0.0, 0.0, 0.0), EVEN),
    "count_sketch": ((0.0, 1.0, 0.0, 0.0, 0.0), (0, 0, 500, 0, 0)),
    "prefix_tree": ((0.85, 0.15, 0.0, 0.0, 0.0), EVEN),
    "projective_sketch": ((0.95, 0.05, 0.0, 0.0, 0.0), EVEN),
}
#: Their statistics take longer to draw.
HASHED = ("prefix_tree", "projective_sketch")
RUNS, EACH = 100, 300
POPULATIONS = [
    Population("randomized_response", 0.98, ()),
    Population("laplace", -0.4, ()),
    Population("auto", 0.5, ()),
    Population("repetition", -0.5, ()),
    *[Population(name, (0.7, 0.25, 0.05, 0.0, 0.0), ()) for name in mechanisms_for("frequency")],
]
SINGLE = [p for p in POPULATIONS if p.mechanism not in COMPOSITE]
COMPOSED = [p for p in POPULATIONS if p.mechanism in COMPOSITE]
FREQUENCIES = [p for p in POPULATIONS if isinstance(p.theta, tuple)]


def name(population: Population) -> str:
    return f"{population.mechanism}_{population.metric.kind}"


every_policy = pytest.mark.parametrize("weights", ["optimal", "paper", "uniform", "proportional"])


@every_policy
@pytest.mark.parametrize("population", SINGLE, ids=name)
def test_the_mean_of_100_runs_is_the_truth(population: Population, weights: str) -> None:
    expect_the_truth(population, weights)


@pytest.mark.slow
@every_policy
@pytest.mark.parametrize("population", COMPOSED, ids=name)
def test_the_mean_of_100_runs_of_several_mechanisms_is_the_truth(
    population: Population, weights: str
) -> None:
    expect_the_truth(population, weights)


def expect_the_truth(population: Population, weights: str) -> None:
    truth, runs = counted_runs(population)
    found = [
        np.atleast_1d(metric.estimate(statistic, weights=weights, bound="normal").value)
        for metric, statistic in runs
    ]
    error = np.std(found, axis=0, ddof=1) / np.sqrt(RUNS)
    assert np.all(np.abs(np.mean(found, axis=0) - truth) <= 4 * error)


@functools.cache
def counted_runs(population: Population) -> tuple[Floats, list[tuple[LocalMetric, Counts]]]:
    """Return the truth, and each run's metric and statistic: the same ones for every policy."""
    if population.metric.kind == "mean":
        values = np.tile(np.linspace(-1, 1, EACH) ** 3 * 0.2 + population.frequencies[1] - 0.5, 5)
        truth = np.atleast_1d(values.mean())
    else:
        values = np.tile(np.repeat(np.arange(5), (population.frequencies * EACH).astype(int)), 5)
        if population.metric.categories == "open":
            values = np.array(population.names)[values]
        truth = population.frequencies
    level = np.repeat(np.arange(len(LEVELS)), EACH).astype(np.uint8)
    runs = []
    for run in range(RUNS):
        metric = population.reseeded(run).metric
        statistic = metric.zero()
        metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(run)))
        runs.append((metric, statistic))
    return truth, runs


@pytest.mark.parametrize("population", POPULATIONS, ids=name)
def test_effective_reports_is_the_worst_variance_of_noise_free_reports_over_ours(
    population: Population,
) -> None:
    """For a mean, at theta = 0; a variance is within 5 standard errors, 22% at 1,000 runs."""
    if population.metric.kind == "mean":
        worst, spread = Population(population.mechanism, 0.0, (100,) * 5), 1.0
    else:
        frequencies, counts = HARDEST.get(population.mechanism, ((0.5, 0.5, 0.0, 0.0, 0.0), EVEN))
        worst = Population(population.mechanism, frequencies, counts)
        spread = 0.25
    metric, rng = worst.metric, np.random.default_rng(3)
    found: list[Floats] = []
    runs = 1000 if population.mechanism in ("randomized_response", "rappor") else 400
    runs = 200 if population.mechanism in (*COMPOSITE, *HASHED) else runs
    for _ in range(runs):
        statistic = worst.statistic(worst.held(rng), rng)
        found.append(np.atleast_1d(metric.estimate(statistic, bound="normal").value))
    claimed = spread / metric.estimate(statistic).effective_reports
    measured = np.var(found, axis=0)[0]
    assert measured == pytest.approx(claimed, rel=5 * np.sqrt(2 / runs))


@pytest.mark.parametrize(
    ("level", "population"),
    [
        pytest.param(
            level,
            population,
            id=f"{level}-{name(population)}",
            marks=pytest.mark.slow if level and population.mechanism in HASHED else (),
        )
        for level in range(len(LEVELS))
        for population in FREQUENCIES
    ],
)
def test_the_variance_of_a_report_is_as_documented(population: Population, level: int) -> None:
    """1,000 runs (200 of sketches), within 5 standard errors, 22% (50%)."""
    runs = 200 if population.mechanism in ("count_sketch", *HASHED) else 1000
    counts = tuple(60 * np.eye(len(LEVELS), dtype=int)[level])
    drawn = Population(population.mechanism, population.theta, counts)
    metric, rng = drawn.metric, np.random.default_rng(level)
    found = [estimated(metric, drawn.statistic(drawn.held(rng), rng), level) for _ in range(runs)]
    measured = 60 * np.var(found, axis=0)
    assert measured == pytest.approx(documented_variance(drawn, level), rel=5 * np.sqrt(2 / runs))


def estimated(metric: LocalMetric, statistic: Counts, level: int) -> Floats:
    """Return the estimate of one level, without its bounds."""
    mechanism, table = metric.randomizer, statistic.reshape(len(LEVELS), -1)
    if isinstance(mechanism, CountSketch | PrefixTree | ProjectiveSketch):
        alone = np.zeros_like(table)
        alone[level] = table[level]
        return np.asarray(metric.estimate(alone.ravel(), bound="normal").value)
    if isinstance(mechanism, BlockDifferences):
        signs = mechanism.differences(table, np.array([level]))[0][0]
        found: Floats = signs / (mechanism.contrast[level] * table[level, 0])
        return found
    assert isinstance(mechanism, SupportCounts)
    share = np.eye(len(LEVELS))[level]
    mean: Floats = mechanism.signs.mean(table[:, 0], share, mechanism.support(table))
    return (1 + mean) / 2


def documented_variance(population: Population, level: int) -> Floats:
    """Return chance (1 - chance) / (p - q)^2 for the chance of support of each category.

    For several reports of a user, the variance given the category over their number, and f (1 - f).
    For block differences (A - (c f)^2) / c^2, A the chance of the category's block; for a count
    sketch too, at these hashes, with f and what collides. For a projective sketch at these hashes;
    for a prefix tree as well, of the reports of whole strings: of a third, drawn by chance.
    """
    mechanism, f = population.metric.randomizer, population.frequencies
    if isinstance(mechanism, CountSketch):
        bucket, sign = hashed(population)
        block = bucket // (mechanism.buckets // mechanism.blocks[level])
        share = (block[:, None] == block).mean(axis=2) @ f
        collided = ((bucket[:, None] == bucket) * sign[:, None] * sign).mean(axis=2) @ f
        contrast = mechanism.contrast[level]
        chance = 2 * mechanism.other[level] + contrast * share
        return np.asarray((chance - (contrast * collided) ** 2) / contrast**2)
    if isinstance(mechanism, PrefixTree):
        names = population.metric.domain.to_unit(np.array(population.names))
        points = mechanism.layout.row_points(names[:, 0], level)
        held = (points[:, None] == points).mean(axis=2) @ f
        p, q = mechanism.signs.p[level], mechanism.signs.q[level]
        chance, whole = q + held * (p - q), np.arange(1, 61)
        reports = 60 * (binom.pmf(whole, 60, 1 / 3) / whole).sum()
        alone = 1 - 1 / mechanism.layout.sketches[level].points
        return np.asarray(reports * chance * (1 - chance) / ((p - q) * alone) ** 2)
    if isinstance(mechanism, ProjectiveSketch):
        rows = mechanism.hashed_rows[level]
        points = rows.points(population.metric.domain.to_unit(np.array(population.names)))
        held = (points[:, None] == points).mean(axis=2) @ f
        p, q = mechanism.signs.p[level], mechanism.signs.q[level]
        chance, alone = q + held * (p - q), 1 - 1 / rows.geometry.points
        return np.asarray(chance * (1 - chance) / ((p - q) * alone) ** 2)
    if isinstance(mechanism, BlockDifferences):
        contrast, blocks = mechanism.contrast[level], mechanism.blocks[level]
        share = np.array([f[x % blocks :: blocks].sum() for x in range(f.size)])
        chance = 2 * mechanism.other[level] + share * contrast
        return np.asarray((chance - (contrast * f) ** 2) / contrast**2)
    assert isinstance(mechanism, SupportCounts)
    p, q = mechanism.signs.p[level], mechanism.signs.q[level]
    if isinstance(mechanism, Repetition):
        given = (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (p - q) ** 2
        return np.asarray(given / mechanism.repeats[level] + f * (1 - f))
    chance = q + f * (p - q)
    return np.asarray(chance * (1 - chance) / (p - q) ** 2)
