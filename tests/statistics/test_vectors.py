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
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from tests.statistics.vector_coverage import misses, misses_of
from tests.support.reports.directions import vector_reports, vector_statistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from estimators.estimate import Counts, Floats

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
RUNS = 2000  # of a slow coverage


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


def missed(metric: LocalMetric, data: Floats, per_level: int, runs: int) -> Counts:
    """Count the runs of real reports whose coordinates, and whose radius, miss the mean."""
    count = len(metric.levels)
    level = np.repeat(np.arange(count), per_level).astype(np.uint8)
    rng = np.random.default_rng(4)

    def drawn() -> Iterator[tuple[Counts, Floats]]:
        for run in range(runs):
            held = data[rng.integers(0, len(data), level.size)]
            statistic = metric.zero()
            metric.accumulate(statistic, level, metric.randomize(held, level, SeededBits(run)))
            yield statistic, held.reshape(count, per_level, -1).mean(axis=1)

    return misses_of(metric, drawn(), data.mean(axis=0))[0]


def corner(dimension: int) -> Floats:
    return np.eye(dimension)[:1]


def spread(dimension: int) -> Floats:
    return np.concatenate([np.eye(dimension), -np.eye(dimension)])


HARD = [corner(1), corner(2), corner(10), spread(1), spread(2), spread(10)]


@pytest.mark.parametrize("mechanism", ["hemisphere", "caps"])
@pytest.mark.parametrize("data", HARD, ids=lambda d: f"{len(d)} points, d={d.shape[1]}")
def test_bounds_cover_the_mean_vector(data: Floats, mechanism: str) -> None:
    """No more misses than a coverage of 95% shows in all but one of 10^4 seeds."""
    metric, runs = vectors(data.shape[1], mechanism=mechanism), 300 if mechanism != "caps" else 40
    assert np.all(missed(metric, data, 100, runs) <= binom.isf(1e-4, runs, 0.05))


def enough(found: Counts, runs: int, beta: float) -> bool:
    """Whether so many misses are within three standard errors of the share beta."""
    return bool(np.all(found <= runs * beta + 3 * np.sqrt(runs * beta * (1 - beta))))


EACH = ["hemisphere", "caps", "lifted_caps"]
BETAS = (0.05, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("mechanism", EACH)
@pytest.mark.parametrize("question", [{}, {"weights": "uniform"}, {"target": "sample"}], ids=str)
@pytest.mark.parametrize("per_level", [3, 200])
@pytest.mark.parametrize("data", HARD, ids=lambda d: f"{len(d)} points, d={d.shape[1]}")
def test_bounds_cover_whatever_is_asked(
    data: Floats, per_level: int, question: dict[str, Any], mechanism: str, beta: float
) -> None:
    metric, counts = vectors(data.shape[1], mechanism=mechanism), (per_level,) * len(LEVELS)
    found, _ = misses(metric, data, counts, RUNS, beta=beta, **question)
    assert enough(found, RUNS, beta), found


@pytest.mark.slow
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("mechanism", EACH)
@pytest.mark.parametrize("counts", [(300, 1), (1, 300)], ids=str)
@pytest.mark.parametrize("dimension", [1, 3])
def test_bounds_cover_levels_that_hold_opposites(
    dimension: int, counts: tuple[int, ...], mechanism: str, beta: float
) -> None:
    """The users' own values, with uniform weights, so that one report of a level counts as much."""
    metric = vectors(dimension, (0.25, 8.0), mechanism=mechanism)
    held = np.stack([corner(dimension), -corner(dimension)])
    question: dict[str, Any] = {"target": "sample", "weights": "uniform"}
    found, _ = misses(metric, held, counts, RUNS, beta=beta, **question)
    assert enough(found, RUNS, beta), found


UNEQUAL = np.zeros((3, 10))
UNEQUAL[:, :3] = [[0.9, 0.4, 0.0], [0.9, -0.3, 0.2], [0.8, 0.1, -0.5]]
UNEVEN = [(0, 0, 0, 0, 300), (400, 400, 20, 5, 60), (20_000, 3, 3, 3, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("mechanism", ["caps", "lifted_caps"])
@pytest.mark.parametrize("data", [corner(10), UNEQUAL, corner(60)], ids=["one", "near", "wide"])
@pytest.mark.parametrize("counts", UNEVEN, ids=str)
def test_caps_cover_uneven_data_at_uneven_levels(
    data: Floats, counts: tuple[int, ...], mechanism: str, beta: float
) -> None:
    """The data point along one coordinate, whose noise is several times that of the others."""
    metric = vectors(data.shape[1], (0.25, 1.0, 2.0, 4.0, 8.0), mechanism=mechanism)
    found, _ = misses(metric, data, counts, RUNS, beta=beta)
    assert enough(found, RUNS, beta), found


@pytest.mark.slow
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("dimension", [2, 10])
@pytest.mark.parametrize("counts", [(3000, 3000), (300, 3000)], ids=str)
def test_caps_cover_one_mean_of_levels_that_are_spread_along_different_axes(
    counts: tuple[int, ...], dimension: int, beta: float
) -> None:
    """The mean is zero: one level holds an axis and its opposite, the other one another axis."""
    metric, axes = vectors(dimension, (4.0, 8.0), mechanism="caps"), np.eye(dimension)
    held = np.array([[axes[0], -axes[0]], [axes[1], -axes[1]]])
    found, _ = misses(metric, held, counts, RUNS, beta=beta)
    assert enough(found, RUNS, beta), found


CONCENTRATED = [corner(2), np.array([[0.6, 0.8]]), np.array([[0.1, 0.2]]), corner(10)]


def test_caps_cover_users_who_hold_one_vector() -> None:
    metric = vectors(2, (4.0, 8.0), mechanism="caps")
    found, _ = misses(metric, CONCENTRATED[1], (100, 400), 200, beta=0.2)
    assert np.all(found <= binom.isf(1e-4, 200, 0.2))


@pytest.mark.slow
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("mechanism", ["caps", "lifted_caps"])
@pytest.mark.parametrize("data", CONCENTRATED, ids=["axis", "between", "inside", "d=10"])
def test_caps_cover_users_who_hold_one_vector_in_two_thousand_runs(
    data: Floats, mechanism: str, beta: float
) -> None:
    metric = vectors(data.shape[1], (4.0, 8.0), mechanism=mechanism)
    found, _ = misses(metric, data, (100, 400), RUNS, beta=beta)
    assert enough(found, RUNS, beta), found


@pytest.mark.parametrize("question", [{}, {"target": "sample"}], ids=str)
@pytest.mark.parametrize("mechanism", ["hemisphere", pytest.param("caps", marks=pytest.mark.slow)])
def test_bounds_of_runs_that_were_not_computed_would_have_held(
    mechanism: str, question: dict[str, Any]
) -> None:
    """All bounds of 100 runs against those that :func:`misses` takes."""
    metric, counts, runs = vectors(2, (1.0, 4.0), mechanism=mechanism), (30, 60), 100
    data = np.array([[0.6, 0.8], [0.1, 0.2], [0.0, -1.0]])
    found, computed = misses(metric, data, counts, runs, seed=8, beta=0.5, **question)
    assert computed < runs
    every = np.zeros(2, dtype=np.int64)
    for statistic, means in vector_statistics(metric, data, counts, runs, 8):
        answer = metric.estimate(statistic, beta=0.5, **question)
        truth = answer.weights @ means if question else data.mean(axis=0)
        assert answer.radius is not None
        every[0] += bool(np.any((answer.lower > truth) | (truth > answer.upper)))
        every[1] += bool(np.linalg.norm(answer.value - truth) > answer.radius)
    assert found.tolist() == every.tolist()


def path_misses(data: Floats, epsilons: tuple[float, ...], last: int, runs: int) -> Floats:
    """Count the paths on which a coordinate, or the length, was ever beyond its bound.

    The sums are added up in the order of arrival and looked at after each tenth part more.
    """
    metric, d = vectors(data.shape[1], epsilons, mechanism="caps"), data.shape[1]
    mechanism = metric.randomizer
    assert isinstance(mechanism, RankedDirections)
    looks = np.unique(np.geomspace(10, last, 60).astype(int))
    truth, missed = data.mean(axis=0), np.zeros(2)
    for run in range(runs):
        rng = np.random.default_rng(run)
        level = rng.integers(0, len(epsilons), last).astype(np.uint8)
        held, reports = data[rng.integers(0, len(data), last)], np.empty((last, d), dtype=np.int64)
        for index in range(len(epsilons)):
            own = level == index
            reports[own] = vector_reports(mechanism, held[own], index, rng)
        statistic, start, failed = metric.zero(), 0, np.zeros(2, dtype=bool)
        for look in looks.tolist():
            metric.accumulate(statistic, level[start:look], reports[start:look])
            answer = metric.estimate(statistic, beta=0.2, bound="anytime")
            start = look
            assert answer.radius is not None
            failed[0] |= bool(np.any((answer.lower > truth) | (truth > answer.upper)))
            failed[1] |= bool(np.linalg.norm(answer.value - truth) > answer.radius)
        missed += failed
    return missed


def test_caps_hold_at_all_times_along_paths() -> None:
    missed = path_misses(corner(3), (1.0, 4.0), 3000, 20)
    assert np.all(missed <= binom.isf(1e-4, 20, 0.2))


@pytest.mark.slow
@pytest.mark.parametrize("data", [corner(2), corner(10), spread(10)], ids=["d=2", "d=10", "even"])
def test_caps_hold_at_all_times_along_long_paths(data: Floats) -> None:
    missed = path_misses(data, (0.5, 2.0, 4.0), 100_000, 60)
    assert np.all(missed <= binom.isf(1e-4, 60, 0.2))


@pytest.mark.parametrize(("dimension", "length"), [(2, 0.0), (2, 0.7), (10, 1.0)])
def test_caps_are_unbiased_with_the_variance_of_the_formula(dimension: int, length: float) -> None:
    """B^2 (1 + d / (6 g^2)) - |x|^2 for a report: within 5 standard errors."""
    check_caps(dimension, 4.0, length, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 6.0, 8.0])
@pytest.mark.parametrize(
    ("dimension", "n"), [(2, 200_000), (10, 50_000), (100, 4000), (1024, 400), (4096, 100)]
)
def test_caps_are_unbiased_at_every_level_and_dimension(
    epsilon: float, dimension: int, n: int
) -> None:
    for length in (0.0, 0.5, 1.0):
        check_caps(dimension, epsilon, length, n)


def check_caps(dimension: int, epsilon: float, length: float, n: int) -> None:
    metric = vectors(dimension, [epsilon], mechanism="caps")
    x = np.random.default_rng(dimension).normal(size=dimension)
    x *= length / np.linalg.norm(x)
    reports = metric.randomize(np.tile(x, (n, 1)), np.zeros(n, dtype=np.uint8), SeededBits(3))
    mechanism = metric.randomizer
    assert isinstance(mechanism, RankedDirections)
    found = reports * (mechanism.scale[0] / mechanism.grid)
    along, error = found @ x, found - x
    assert abs(along.mean() - length**2) <= 5 * along.std() / np.sqrt(n)
    assert np.linalg.norm(error.mean(axis=0)) <= mechanism.scale[0] / np.sqrt(n) * (
        1 + 5 / np.sqrt(dimension)
    )
    square = (error**2).sum(axis=1)
    expected = mechanism.scale[0] ** 2 * (1 + dimension / (6 * mechanism.grid**2)) - length**2
    # the mean fraction of a coordinate is not quite uniform where few steps of the grid matter
    assert abs(square.mean() - expected) <= 5 * square.std() / np.sqrt(n) + 1e-3 * expected


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
