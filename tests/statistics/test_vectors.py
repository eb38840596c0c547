"""Vector means: real reports against their law, their variance and their bounds.

The seeds are fixed. Each number compared would lie outside for fewer than one seed in 10^4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from estimators import LocalMetric, define
from estimators.bounds.spheres import width
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import Hemisphere

if TYPE_CHECKING:
    from estimators.estimate import Floats

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)


def vectors(dimension: int, levels: Any = LEVELS, **changes: Any) -> LocalMetric:
    definition = {"name": "v", "kind": "vector_mean", "mechanism": "hemisphere", "levels": levels}
    metric: LocalMetric = define(**{**definition, "dimension": dimension, "radius": 1.0, **changes})
    return metric


@pytest.mark.parametrize("dimension", [1, 2, 3, 10])
@pytest.mark.parametrize("grid", [2, 2**14])
def test_a_report_is_unbiased_whatever_the_grid(dimension: int, grid: int) -> None:
    metric, n = vectors(dimension, [3.0], options={"grid": grid}), 200_000
    x = np.array([0.6, -0.3, 0.2, *[0.05] * 7])[:dimension]
    level = np.zeros(n, dtype=np.uint8)
    reports = metric.randomize(np.tile(x, (n, 1)), level, SeededBits(dimension))
    assert isinstance(metric.randomizer, Hemisphere)
    unbiased = reports * (metric.randomizer.scale[0] / grid)
    error = unbiased.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(unbiased.mean(axis=0) - x) < 5 * error)


@pytest.mark.parametrize("dimension", [1, 2, 10])
def test_the_variance_is_that_of_the_formula(dimension: int) -> None:
    """B^2 / d (1 - m^2 d / B^2) a coordinate; the variance of 10^5 reports is within 3%."""
    metric, n = vectors(dimension, [1.0]), 100_000
    x = np.zeros((n, dimension))
    x[:, 0] = 0.8
    reports = metric.randomize(x, np.zeros(n, dtype=np.uint8), SeededBits(3))
    scale = width(dimension) / np.tanh(0.5)
    found = (reports * (scale / 2**14)).var(axis=0)
    expected = np.full(dimension, scale**2 / dimension) - x.mean(axis=0) ** 2
    assert found == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0])
def test_the_sign_of_the_inner_product_is_randomized_response(length: int) -> None:
    metric, n = vectors(5, [2.0]), 100_000
    x = np.array([2.0, -1.0, 0.5, 0.0, 1.0])
    x *= length / np.linalg.norm(x)
    reports = metric.randomize(np.tile(x, (n, 1)), np.zeros(n, dtype=np.uint8), SeededBits(8))
    side = np.array([2.0, -1.0, 0.5, 0.0, 1.0])
    positive = int((reports.astype(float) @ side > 0).sum())
    p = (1 + np.tanh(1.0) * length) / 2
    assert chisquare([positive, n - positive], [n * p, n * (1 - p)]).pvalue > 1e-5


def hits(metric: LocalMetric, data: Floats, per_level: int, runs: int, **question: Any) -> Any:
    """Count the runs whose coordinates, and whose radius, cover the mean of `data`."""
    count = len(metric.levels)
    level = np.repeat(np.arange(count), per_level).astype(np.uint8)
    rng, found = np.random.default_rng(4), np.zeros(2, dtype=int)
    for run in range(runs):
        held = data[rng.integers(0, len(data), level.size)]
        statistic = metric.zero()
        metric.accumulate(statistic, level, metric.randomize(held, level, SeededBits(run)))
        answer = metric.estimate(statistic, **question)
        truth = data.mean(axis=0)
        if question.get("target") == "sample":
            truth = answer.weights @ held.reshape(count, per_level, -1).mean(axis=1)
        assert answer.radius is not None
        found[0] += bool(np.all((answer.lower <= truth) & (truth <= answer.upper)))
        found[1] += bool(np.linalg.norm(answer.value - truth) <= answer.radius)
    return found


def corner(dimension: int) -> Floats:
    return np.eye(dimension)[:1]


def spread(dimension: int) -> Floats:
    return np.concatenate([np.eye(dimension), -np.eye(dimension)])


HARD = [corner(1), corner(2), corner(10), spread(1), spread(2), spread(10)]


@pytest.mark.parametrize("data", HARD, ids=lambda d: f"{len(d)} points, d={d.shape[1]}")
def test_bounds_cover_the_mean_vector(data: Floats) -> None:
    """No more misses than a coverage of 95% shows in all but one of 10^4 seeds."""
    found = hits(vectors(data.shape[1]), data, 100, 300)
    assert np.all(300 - found <= binom.isf(1e-4, 300, 0.05))


@pytest.mark.slow
@pytest.mark.parametrize("question", [{}, {"weights": "uniform"}, {"target": "sample"}], ids=str)
@pytest.mark.parametrize("per_level", [3, 200])
@pytest.mark.parametrize("data", HARD, ids=lambda d: f"{len(d)} points, d={d.shape[1]}")
def test_bounds_cover_whatever_is_asked(
    data: Floats, per_level: int, question: dict[str, Any]
) -> None:
    for beta in (0.05, 0.2):
        least = (1 - beta) - 3 * np.sqrt(beta * (1 - beta) / 2000)
        found = hits(vectors(data.shape[1]), data, per_level, 2000, beta=beta, **question)
        assert np.all(found >= least * 2000)


def test_four_thousand_coordinates_are_estimated() -> None:
    metric = vectors(4096, [1.0, 4.0], radius=2.0)
    x = np.zeros((2000, 4096))
    x[:, 7] = 5.0
    level = (np.arange(2000) % 2).astype(np.uint8)
    reports = metric.randomize(x, level, SeededBits(1))
    assert metric.randomizer.width == 8192
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    answer = metric.estimate(statistic)
    truth = np.zeros(4096)
    truth[7] = 2.0
    assert answer.radius is not None
    assert float(np.linalg.norm(answer.value - truth)) <= answer.radius
    assert np.all((answer.lower <= truth) & (truth <= answer.upper))
