"""Bounds that hold at all times at once, along whole paths.

Where sums are counts, the law of the paths that are still covered is carried from look to look: the
chance that the truth is ever outside is exact. Paths of real reports of every mechanism are drawn;
such a test fails falsely where misses exceed what a share of beta shows in all but one of 10^4
seeds.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from estimators import LocalMetric, define
from estimators.estimate import Estimate, Floats
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import Oue, Rappor, mechanism_class
from estimators.question import Question
from tests.support.reports.cases import CASES, exact
from tests.support.rows import row

BETAS = (0.05, 0.2)


def ever_missed(mechanism: Any, f: float, last: int, **question: Any) -> float:
    """Return the exact chance that bounds ever miss f, looking at each tenth part more."""
    looks = np.unique(np.ceil(1.1 ** np.arange(1 + np.log(last) / np.log(1.1))).astype(int))
    chance = mechanism.signs.q[0] + f * mechanism.signs.contrast[0]
    covered, before = np.ones(1), 0
    for n in looks.tolist():
        more = binom.pmf(np.arange(n - before + 1), n - before, chance)
        covered, before = np.convolve(covered, more), n
        likely = np.flatnonzero(covered > 1e-18)  # what is left out counts as missed
        found = mechanism.estimate(
            np.append(n, likely)[None], Question(simultaneous=False, **question)
        )
        kept = likely[(found.lower <= f) & (f <= found.upper)]
        covered[np.setdiff1d(np.arange(n + 1), kept)] = 0.0
    return 1 - float(covered.sum())


@pytest.mark.parametrize("last", [500, pytest.param(8_000, marks=pytest.mark.more)])
def test_the_exact_chance_that_a_share_is_ever_outside_is_below_beta(last: int) -> None:
    """That of bounds for a fixed number, which are looked at again and again, is far above it."""
    for mechanism, f in itertools.product((Oue, Rappor), (0.0, 0.03, 0.5, 1.0)):
        one = mechanism([exact(1.0)], categories=5)
        found = [ever_missed(one, f, last, bound="anytime", beta=beta) for beta in BETAS]
        once = [ever_missed(one, f, last, bound=x) for x in ("fixed", "normal") if f == 0.5]
        with row(mechanism.__name__, f):
            assert 0.05 * BETAS[0] < found[0] <= BETAS[0]
            assert 0.05 * BETAS[1] < found[1] <= BETAS[1]
            assert found[1] > 1.5 * found[0]
            assert min(once, default=1) > 0.1


LOOKS = (20, 30, 45, 70, 100, 150, 220, 330, 500, 750, 1100, 1600)
LONG = np.unique(np.geomspace(20, 50_000, 40).astype(int)).tolist()
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
SMALL = {
    "count_sketch": {"rows": 64, "buckets": 16},
    "projective_sketch": {"rows": 64, "points": 64},
}


def metric_of(case: str, path: int) -> LocalMetric:
    mechanism, kind = CASES[case]
    domain, chosen = DOMAINS[kind], mechanism_class(mechanism, kind)
    if not chosen.closed_vocabulary:  # hashes of its own for each path
        options = {**SMALL.get(mechanism, {}), "seed": path}
        domain = {"categories": "open", "watch": tuple(NAMES), "options": options}
    if chosen.discovers:
        domain |= {"discover": True, "preset": "bytes"}
        domain["options"] |= {"last": 16, "rows": 16}
    metric: LocalMetric = define(name="m", kind=kind, mechanism=mechanism, levels=LEVELS, **domain)
    return metric


def drawn(metric: LocalMetric, n: int, rng: np.random.Generator) -> tuple[Any, Floats]:
    """Return the values of `n` users, and the truth of their distribution."""
    if metric.kind == "mean":
        return np.where(rng.random(n) < 0.9, 1.0, -1.0), np.array([0.8])
    if metric.kind == "frequency":
        values = rng.choice(K, n, p=SHARES)
        return (NAMES[values] if metric.categories == "open" else values), SHARES
    if metric.kind == "distribution":  # a spike in the first bin, and a few values in the last
        return np.where(rng.random(n) < 0.9, 0.0, 1.0), np.array([0.0, *[0.9] * 7, 1.0])
    return VECTORS[(rng.random(n) < 0.5).astype(int)], VECTORS.mean(axis=0)


def misses(estimate: Estimate, truth: Floats) -> bool:
    outside = np.any((truth < estimate.lower) | (truth > estimate.upper))
    if estimate.radius is None:
        return bool(outside)
    return bool(outside or np.linalg.norm(estimate.value - truth) > estimate.radius)


def left(case: str, paths: int, looks: Any) -> int:
    """Return how many paths of real reports are ever beyond their bounds at beta = 0.2."""
    rng, found = np.random.default_rng(8), 0
    for path in range(paths):
        metric = metric_of(case, path)
        values, truth = drawn(metric, looks[-1], rng)
        level = rng.integers(0, len(LEVELS), looks[-1]).astype(np.uint8)
        reports = metric.randomize(values, level, SeededBits(path))
        statistic = metric.zero()
        for begin, end in itertools.pairwise((0, *looks)):
            metric.accumulate(statistic, level[begin:end], reports[begin:end])
            if misses(metric.estimate(statistic, 0.2, bound="anytime"), truth):
                found += 1
                break
    return found


def test_few_real_reports_of_every_mechanism_are_covered_at_all_times() -> None:
    """Six paths: more than four that are left have a chance of 0.2%, where beta is exact."""
    for case in CASES:
        with row(case):
            assert left(case, 6, LOOKS[:6:2]) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_five_hundred_long_paths_are_covered(case: str) -> None:
    """To 50,000 reports: that 28% are left is found nearly always."""
    assert left(case, 500, LONG) <= binom.isf(1e-4, 500, 0.2)
