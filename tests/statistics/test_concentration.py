"""Users who hold nearly the same vector: bounds from the variance of `caps`, and of differences.

Reports are drawn from the law of their scores, so that paths of 10^5 reports take no time; that the
mechanism has this law is tested elsewhere. The seeds are fixed; more misses than are allowed here
have a chance below 10^-4 each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import binom

from estimators import LocalMetric, define
from estimators.comparison import compare
from estimators.mechanisms import Caps

if TYPE_CHECKING:
    from estimators.estimate import Floats
    from estimators.mechanisms.mechanism import Levels

BETA = 0.2


def caps(dimension: int, levels: tuple[float, ...]) -> LocalMetric:
    return define(
        name="v",
        kind="vector_mean",
        mechanism="caps",
        dimension=dimension,
        radius=1.0,
        levels=levels,
    )


def reports(metric: LocalMetric, values: Floats, level: Levels, rng: np.random.Generator) -> Floats:
    """Reports on the grid for unit vectors, one a row."""
    mechanism = metric.randomizer
    assert isinstance(mechanism, Caps)
    score = np.zeros(len(values))
    for index, law in enumerate(mechanism.laws):
        z, above, below = law.scores
        each, mine = np.concatenate([-z[::-1], z]), level == index
        chances = np.cumsum(np.concatenate([below[::-1], above]))
        drawn = rng.random(np.count_nonzero(mine)) * chances[-1]
        score[mine] = each[np.minimum(np.searchsorted(chances, drawn), each.size - 1)]
    across = rng.normal(size=values.shape)
    across -= (across * values).sum(axis=1)[:, None] * values
    across *= (np.sqrt(1 - score**2) / np.linalg.norm(across, axis=1))[:, None]
    scaled = (score[:, None] * values + across) * mechanism.grid
    rounded = np.floor(scaled + rng.random(scaled.shape))
    return np.clip(rounded, -mechanism.grid, mechanism.grid).astype(mechanism.dtype)


def near(center: Floats, spread: float, n: int, rng: np.random.Generator) -> Floats:
    """Unit vectors around a center."""
    values = center + spread * rng.normal(size=(n, center.size))
    found: Floats = values / np.linalg.norm(values, axis=1)[:, None]
    return found


def misses(
    center: Floats, spread: float, levels: tuple[float, ...], last: int, paths: int, looks: int
) -> tuple[Floats, Floats]:
    """Count paths that were ever beyond a bound; and the last half-width and radius."""
    metric, missed = caps(center.size, levels), np.zeros(2, dtype=int)
    many = near(center, spread, 10**6, np.random.default_rng(1)) if spread else center[None]
    truth, size = many.mean(axis=0), np.zeros(2)
    times = np.unique(np.geomspace(20, last, looks).astype(int))
    for path in range(paths):
        rng = np.random.default_rng(path)
        level = rng.integers(0, len(levels), last).astype(np.uint8)
        values = many[rng.integers(0, len(many), last)]
        drawn = reports(metric, values, level, rng)
        statistic, start, failed = metric.zero(), 0, np.zeros(2, dtype=bool)
        for look in times.tolist():
            metric.accumulate(statistic, level[start:look], drawn[start:look])
            found, start = metric.estimate(statistic, beta=BETA, bound="anytime"), look
            assert found.radius is not None
            failed[0] |= bool(np.any((found.lower > truth) | (truth > found.upper)))
            failed[1] |= bool(np.linalg.norm(found.value - truth) > found.radius)
            size[:] = np.max(found.value - found.lower), found.radius
        missed += failed
    return missed, size


AXIS, BETWEEN = np.array([1.0, 0.0]), np.array([0.6, 0.8])
CASES = [
    (AXIS, 0.0, (8.0,)),
    (BETWEEN, 0.0, (4.0, 8.0)),
    (BETWEEN, 0.1, (8.0,)),
    (np.eye(3)[0], 0.05, (2.0, 8.0)),
]


def test_the_law_of_scores_is_that_of_reports_and_bounds_hold_along_paths() -> None:
    missed, size = misses(AXIS, 0.0, (8.0,), 10_000, 4, 20)
    assert np.all(missed <= binom.isf(1e-4, 4, BETA))
    assert np.all(size < 0.01)  # from the mean square alone they are above 0.02


@pytest.mark.slow
@pytest.mark.parametrize(("center", "spread", "levels"), CASES, ids=str)
def test_bounds_hold_along_five_hundred_long_paths(
    center: Floats, spread: float, levels: tuple[float, ...]
) -> None:
    missed, _ = misses(center, spread, levels, 100_000, 500, 50)
    assert np.all(missed <= binom.isf(1e-4, 500, BETA)), missed


def difference_misses(
    centers: tuple[Floats, Floats], levels: tuple[float, ...], n: int, runs: int, bound: str
) -> tuple[Floats, Floats]:
    """Count runs beyond a bound on the difference, at all times at n / 10 and n; the last sizes."""
    metric, missed, size = caps(centers[0].size, levels), np.zeros(2, dtype=int), np.zeros(2)
    truth = centers[0] - centers[1]
    for run in range(runs):
        rng, failed = np.random.default_rng(run), np.zeros(2, dtype=bool)
        arms = metric.zero(), metric.zero()
        for more in (n // 10, n - n // 10):
            for statistic, center in zip(arms, centers, strict=True):
                level = rng.integers(0, len(levels), more).astype(np.uint8)
                drawn = reports(metric, np.tile(center, (more, 1)), level, rng)
                metric.accumulate(statistic, level, drawn)
            if bound == "anytime" or more > n // 10:
                found = compare(metric, *arms, beta=BETA, bound=bound)
                lower, upper = np.asarray(found.lower), np.asarray(found.upper)
                assert found.radius is not None
                failed[0] |= bool(np.any((lower > truth) | (truth > upper)))
                failed[1] |= bool(np.linalg.norm(np.asarray(found.value) - truth) > found.radius)
                size[:] = np.max(upper - lower) / 2, found.radius
        missed += failed
    return missed, size


@pytest.mark.parametrize(("bound", "most"), [("fixed", 0.012), ("anytime", 0.025)])
def test_differences_of_nearly_equal_vectors_are_narrow(bound: str, most: float) -> None:
    """From the mean squares alone, half-width and radius are 0.035 and more, and 0.05 and more."""
    missed, size = difference_misses((AXIS, BETWEEN), (8.0,), 10_000, 4, bound)
    assert np.all(missed <= binom.isf(1e-4, 4, BETA))
    assert np.all(size < most)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bound", ["fixed", "anytime"])
@pytest.mark.parametrize("levels", [(8.0,), (4.0, 8.0)], ids=str)
@pytest.mark.parametrize("second", [AXIS, BETWEEN], ids=["same", "other"])
def test_differences_cover_in_a_thousand_runs(
    second: Floats, levels: tuple[float, ...], bound: str
) -> None:
    missed, _ = difference_misses((AXIS, second), levels, 600, 1000, bound)
    assert np.all(missed <= binom.isf(1e-4, 1000, BETA)), missed
