"""Real reports of every mechanism, added one after the other and looked at again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from estimators import LocalMetric, define
from estimators.estimate import Estimate
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import mechanism_class
from tests.statistics.paths import CHECKED, LAST
from tests.support.reports.cases import CASES, COMPOSITE

PATHS, BETA = 25, 0.2
LOOKS = (20, 30, 45, 70, 100, 150, 220, 330, 500, 750, 1100, 1600)
LEVELS = (0.5, 1.0, 4.0)
K, DIMENSION = 6, 3
SHARES = np.array([0.9, 0.1, 0.0, 0.0, 0.0, 0.0])
DOMAINS: dict[str, dict[str, Any]] = {
    "mean": {"range": (-1, 1)},
    "frequency": {"categories": K},
    "vector_mean": {"dimension": DIMENSION, "radius": 1},
    "distribution": {"range": (0, 1), "bins": 8},
}
NAMES = np.array(list("abcdef"))
VECTORS = np.array([[1.0, 0.0, 0.0], [0.0, -0.6, 0.0]])


def metric_of(case: str, path: int, **options: int) -> LocalMetric:
    mechanism, kind = CASES[case]
    domain, chosen = DOMAINS[kind], mechanism_class(mechanism, kind)
    if not chosen.closed_vocabulary:  # hashes of its own for each path
        domain = {"categories": "open", "watch": tuple(NAMES), "options": {**options, "seed": path}}
    if chosen.discovers:
        domain |= {"discover": True, "preset": "bytes"}
        domain["options"] |= {"last": 16, "rows": 16}
    metric: LocalMetric = define(name="m", kind=kind, mechanism=mechanism, levels=LEVELS, **domain)
    return metric


def drawn(metric: LocalMetric, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of `n` users, and the truth of their distribution."""
    if metric.kind == "mean":
        return np.where(rng.random(n) < 0.9, 1.0, -1.0), np.array([0.8])
    if metric.kind == "frequency":
        values = rng.choice(K, n, p=SHARES)
        return (NAMES[values] if metric.categories == "open" else values), SHARES
    if metric.kind == "distribution":  # a spike in the first bin, and a few values in the last
        return np.where(rng.random(n) < 0.9, 0.0, 1.0), np.array([0.0, *[0.9] * 7, 1.0])
    return VECTORS[(rng.random(n) < 0.5).astype(int)], VECTORS.mean(axis=0)


def misses(estimate: Estimate, truth: np.ndarray) -> bool:
    outside = np.any((truth < estimate.lower) | (truth > estimate.upper))
    if estimate.radius is None:
        return bool(outside)
    return bool(np.linalg.norm(estimate.value - truth) > estimate.radius)


@pytest.mark.parametrize("case", CASES)
def test_bounds_for_all_times_cover_whole_paths(case: str) -> None:
    """No more paths are left than a coverage of 80% shows in all but one of 10^4 seeds."""
    rng, left = np.random.default_rng(8), 0
    paths = PATHS if CASES[case][0] not in COMPOSITE else 15
    for path in range(paths):
        metric = metric_of(case, path)
        values, truth = drawn(metric, LOOKS[-1], rng)
        level = rng.integers(0, len(LEVELS), LOOKS[-1]).astype(np.uint8)
        reports = metric.randomize(values, level, SeededBits(path))
        statistic, begin = metric.zero(), 0
        for end in LOOKS:
            metric.accumulate(statistic, level[begin:end], reports[begin:end])
            begin = end
            if misses(metric.estimate(statistic, BETA, bound="anytime"), truth):
                left += 1
                break
    assert left <= binom.isf(1e-4, paths, BETA)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("hemisphere", {}),
        ("count_sketch", {"rows": 64, "buckets": 16}),
        ("projective_sketch", {"rows": 64, "points": 64}),
    ],
)
def test_two_thousand_real_paths_to_100_000_reports_are_covered(
    case: str, options: dict[str, int]
) -> None:
    """Those whose sums have no law that is easily drawn from: looked at as in `paths`."""
    rng, runs, betas = np.random.default_rng(9), 2000, (0.05, 0.2)
    left = dict.fromkeys(betas, 0)
    for path in range(runs):
        metric = metric_of(case, path, **options)
        values, truth = drawn(metric, LAST, rng)
        level = rng.integers(0, len(LEVELS), LAST).astype(np.uint8)
        reports = metric.randomize(values, level, SeededBits(path))
        statistic, begin, going = metric.zero(), 0, set(betas)
        for end in CHECKED.tolist():
            metric.accumulate(statistic, level[begin:end], reports[begin:end])
            begin = end
            for beta in tuple(going):
                if misses(metric.estimate(statistic, beta, bound="anytime"), truth):
                    left[beta] += 1
                    going.remove(beta)
    for beta, found in left.items():
        assert found <= runs * beta + 3 * np.sqrt(runs * beta * (1 - beta))
