"""Projection onto random signs: what it says is drawn with the seed, so every run has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from estimators import LocalMetric, define
from estimators.mechanisms import Projection
from tests.support.reports.populations import LEVELS, Population, covers

if TYPE_CHECKING:
    from estimators.estimate import Counts

EVEN = (200, 200, 200, 200, 200)
#: One other value is all the others: its column may agree with that of the value asked for most.
OTHER = (0.0, 1.0, 0.0, 0.0)
NEARLY = (0.0, 0.97, 0.0, 0.03)


def population(theta: tuple[float, ...], rows: int, seed: int, scale: int = 1) -> Population:
    counts = tuple(scale * n for n in EVEN)
    return Population("projection", theta, counts, (("rows", rows), ("seed", seed)))


def missed(theta: tuple[float, ...], rows: int, runs: int, scale: int = 1, **question: Any) -> int:
    rng, misses = np.random.default_rng(7), 0
    for seed in range(runs):
        drawn = population(theta, rows, seed, scale)
        held = drawn.held(rng)
        estimate = drawn.metric.estimate(drawn.statistic(held, rng), **question)
        misses += not covers(estimate, drawn.truth(held, estimate))
    return misses


@pytest.mark.parametrize("rows", [40, 500])
@pytest.mark.parametrize(("target", "weights"), [("population", "optimal"), ("sample", "uniform")])
def test_bounds_cover_over_seeds(rows: int, target: str, weights: str) -> None:
    """Of 200 runs no more than 20 miss, at beta = 0.05: a chance of 0.1% if it were exact."""
    assert missed(OTHER, rows, 200, target=target, weights=weights) <= 20


@pytest.mark.slow
@pytest.mark.parametrize("theta", [OTHER, NEARLY, (0.25,) * 4], ids=str)
@pytest.mark.parametrize("rows", [40, 500, 5000])
@pytest.mark.parametrize("scale", [1, 1000])
def test_bounds_cover_whatever_is_asked_over_seeds(
    theta: tuple[float, ...], rows: int, scale: int
) -> None:
    """With many reports for the rows, what is left is the columns' agreement."""
    runs = 300
    for bound in ("fixed", "anytime"):
        for target, weights in (("population", "optimal"), ("sample", "paper")):
            question = {"bound": bound, "target": target, "weights": weights}
            misses = missed(theta, rows, runs, scale, beta=0.2, **question)
            assert misses <= 0.2 * runs + 3 * np.sqrt(0.16 * runs)


def open_statistic(metric: LocalMetric, words: list[str], held: Counts, seed: int) -> Counts:
    """Draw the statistic of an open vocabulary from its exact law; `held` is (levels, words)."""
    mechanism, rng = metric.randomizer, np.random.default_rng(seed)
    assert isinstance(mechanism, Projection)
    keys = metric.domain.to_unit(np.array(words, dtype=object))
    signs = np.where(mechanism.positive(np.arange(mechanism.rows)[:, None], keys), 1, -1)
    rows = rng.multinomial(held, np.full(mechanism.rows, 1 / mechanism.rows))
    kept = rng.binomial(rows, mechanism.signs.p[:, None, None])
    sums = ((2 * kept - rows) * signs.T).sum(axis=1)
    return np.concatenate([held.sum(axis=1)[:, None], sums], axis=1).ravel()


def test_an_open_vocabulary_that_moves_is_covered_at_all_times() -> None:
    """One word holds nearly all, then another; 40 seeds, 8 looks, at beta = 0.2."""
    words, misses = ["a", "b", "c"], 0
    for seed in range(40):
        metric = define(
            name="m",
            kind="frequency",
            mechanism="projection",
            categories="open",
            watch=words,
            levels=LEVELS,
            options={"rows": 300, "seed": seed},
        )
        total = np.zeros((len(LEVELS), 3), dtype=np.int64)
        statistic, outside = metric.zero(), False
        for look in range(8):
            new = np.zeros_like(total)
            new[:, [1, 2][look % 2]] = 40 * 3**look
            total += new
            statistic += open_statistic(metric, words, new, 8 * seed + look)
            estimate = metric.estimate(statistic, 0.2, "uniform", "anytime", "sample")
            outside |= not covers(estimate, total.sum(axis=0) / total.sum())
        misses += outside
    assert misses <= 8


def test_the_mean_over_seeds_is_the_truth_and_its_error_as_claimed() -> None:
    """400 seeds: means within 4 standard errors; variances below 1 / (4 effective), within 5."""
    theta, rng, found = (0.0, 0.9, 0.1), np.random.default_rng(5), []
    for seed in range(400):
        drawn = population(theta, 60, seed)
        estimate = drawn.metric.estimate(drawn.statistic(drawn.held(rng), rng))
        found.append(np.asarray(estimate.value))
    error = np.std(found, axis=0, ddof=1)
    assert np.all(np.abs(np.mean(found, axis=0) - theta) < 4 * error / 20)
    claimed = 1 / (4 * estimate.effective_reports)
    assert error[0] ** 2 < claimed * (1 + 5 * np.sqrt(2 / 400))
    assert error[0] ** 2 > 0.8 * claimed * (1 - 5 * np.sqrt(2 / 400))
