"""Look-ups of strings by a projective sketch: their variance, and coverage with worst collisions.

The hardest data is one other string that all others hold, with new hashes in each run. The number
of its rows in which it collides is drawn from its exact law, and so is the support of the string
that is asked for: a run is a column of `estimate_support`, with bounds for each string by itself.
A test fails if coverage is below 1 - beta by three standard errors, which happens in about one of
a thousand cases if a bound is exact, and never if it is as wide as collisions make these.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import ProjectiveSketch
from estimators.question import Question
from tests.support.reports.cases import exact

RUNS = 2000
EIGHT = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
#: Reports of each level: alone, and one level huge beside many small ones.
MIXES = {
    "epsilon 1": (0, 0, 10**5, 0, 0, 0, 0, 0),
    "epsilon 4": (0, 0, 0, 0, 0, 10**7, 0, 0),
    "the first is huge": (10**7, *[30] * 7),
    "the last is huge": (*[30] * 7, 10**7),
    "the middle is huge": (*[500] * 4, 10**6, *[500] * 3),
    "equal": (10**6,) * 8,
}


@functools.cache
def sketch(**options: int) -> ProjectiveSketch:
    return ProjectiveSketch([exact(e) for e in EIGHT], categories=None, **options)


def collisions(mechanism: ProjectiveSketch, rng: np.random.Generator, runs: int) -> Any:
    """Draw the share of rows in which one other string collides, shape (levels, runs)."""
    shares = [
        rng.binomial(rows.rows, 1 / rows.geometry.points, runs) / rows.rows
        for rows in mechanism.hashed_rows
    ]
    return np.array(shares)


def supports(mechanism: ProjectiveSketch, held: Any, others: Any, shares: Any, rng: Any) -> Any:
    """Draw how many reports support the string, with so many holders of it and of the other."""
    p, q = mechanism.signs.p[:, None], mechanism.signs.q[:, None]
    return rng.binomial(held, p) + rng.binomial(others, q + (p - q) * shares)


@pytest.mark.parametrize("beta", [pytest.param(0.05, marks=pytest.mark.slow), 0.2])
@pytest.mark.parametrize("frequency", [0.0, 0.002, 0.3])
@pytest.mark.parametrize("mix", MIXES)
def test_bounds_cover_a_string_beside_a_heavy_one(mix: str, frequency: float, beta: float) -> None:
    rng = np.random.default_rng([len(mix), round(1000 * frequency), round(100 * beta)])
    least = 1 - beta - 3 * math.sqrt(beta * (1 - beta) / RUNS)
    for options in ({}, {"rows": 20, "points": 64}):
        mechanism, counts = sketch(**options), np.array(MIXES[mix])
        shares = collisions(mechanism, rng, RUNS)
        held = rng.binomial(counts[:, None], frequency, (8, RUNS))
        support = supports(mechanism, held, counts[:, None] - held, shares, rng)
        for target, weights in (
            ("population", "optimal"),
            ("population", "uniform"),
            ("sample", "optimal"),
        ):
            question = Question(beta=beta, target=target, weights=weights, simultaneous=False)
            found = mechanism.estimate_support(counts, support, question)
            truth: Any = np.full(RUNS, frequency)
            if target == "sample":
                truth = found.weights @ (held / np.maximum(counts, 1)[:, None])
            covered = (found.lower <= truth + 1e-12) & (truth <= found.upper + 1e-12)
            assert covered.mean() >= least, (options, target, weights)


@pytest.mark.parametrize("weights", ["optimal", "uniform"])
@pytest.mark.parametrize(
    "times",
    [
        pytest.param(10, id="10 looks"),
        pytest.param(150, id="150 looks", marks=pytest.mark.slow),
    ],
)
def test_bounds_for_all_times_cover_along_whole_paths(times: int, weights: str) -> None:
    """To 100,000 reports, levels coming into use one after the other; beta = 0.2."""
    rng, beta, runs = np.random.default_rng(times), 0.2, RUNS if times > 10 else 500
    ends = np.unique(np.round(np.geomspace(1, 10**5, times)).astype(np.int64))
    mechanism, frequency = sketch(rows=20, points=64), 0.05
    shares, question = (
        collisions(mechanism, rng, runs),
        Question(beta=beta, bound="anytime", weights=weights, simultaneous=False),
    )
    counts, support = np.zeros(8, dtype=np.int64), np.zeros((8, runs), dtype=np.int64)
    covered = np.full(runs, fill_value=True)
    for look, size in enumerate(np.diff(ends, prepend=0).tolist()):
        open_levels = 1 + look * 8 // ends.size
        more = rng.multinomial(size, [1 / open_levels] * open_levels + [0.0] * (8 - open_levels))
        held = rng.binomial(more[:, None], frequency, (8, runs))
        counts = counts + more
        support = support + supports(mechanism, held, more[:, None] - held, shares, rng)
        found = mechanism.estimate_support(counts, support, question)
        covered &= (found.lower <= frequency) & (frequency <= found.upper)
    assert covered.mean() >= 1 - beta - 3 * math.sqrt(beta * (1 - beta) / runs)


@pytest.mark.parametrize(
    "epsilon", [2.0, *(pytest.param(e, marks=pytest.mark.slow) for e in (0.5, 1.0, 4.0, 6.0))]
)
def test_absent_strings_have_the_least_possible_variance(epsilon: float) -> None:
    """Within 5%, by the real randomizer: 100,000 reports of 2,000 strings, 10,000 absent ones.

    The variance has a relative standard error of 1.4%. Five of them are allowed beyond the 5%,
    and half a percent for the collisions of 2,000 strings. Neither absent strings nor held ones
    are biased: both means are within five standard errors.
    """
    metric = LocalMetric.require(
        define(name="m", kind="frequency", categories="open", levels=[epsilon])
    )
    assert metric.mechanism == "projective_sketch"  # by default
    n, names = 100_000, [f"name {i}" for i in range(2_000)]
    held, level = names * (n // len(names)), np.zeros(n, dtype=np.uint8)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(held, level, SeededBits(7)))
    asked = np.array([*names, *(f"absent {i}" for i in range(10_000))], dtype=object)
    question = Question(asked=metric.domain.to_unit(asked), bound="normal")
    found = np.asarray(metric.randomizer.estimate(metric.table(statistic), question).value)
    here, value = found[: len(names)], found[len(names) :]
    odds = math.exp(epsilon)
    ratio = n * float((value**2).mean()) * (odds - 1) ** 2 / (4 * odds)
    assert 1 - 5 * 0.0142 < ratio < 1.05 + 5 * 0.0142 + 0.005
    assert abs(value.mean()) < 5 * value.std() / 100
    assert abs(here.mean() - 1 / len(names)) < 5 * here.std() / math.sqrt(len(names))
