"""Coverage of the bounds from counts of symbols, on the hardest data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.bounds.anytime import LOG_WEIGHTS, TILTS
from estimators.bounds.bets.symbol_limits import at_all_times
from estimators.estimate import Floats
from tests.support.windows import HARD, Sample, knots_of

RUNS = 2000
HUGE = np.array([3000.0, 20.0, 20.0, 20.0])


def allowed(beta: float, runs: int) -> float:
    return beta + 3 * math.sqrt(beta * (1 - beta) / runs)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.05, 0.2])
@pytest.mark.parametrize("epsilon", ["1", "3", "8"])
@pytest.mark.parametrize("kind", HARD)
def test_fixed_bounds_cover(kind: str, epsilon: str, beta: float) -> None:
    sample = Sample((epsilon,), np.array([1000.0]), (1.0,), free=False)
    missed, runs = sample.missed(kind, beta, RUNS, np.random.default_rng(21))
    assert missed / runs <= allowed(beta, runs)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.05, 0.2])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("kind", ["ends", "narrow"])
def test_one_huge_level_and_small_ones_are_covered(kind: str, free: bool, beta: float) -> None:
    """Shares of the weights by users, or as large for the few users of high precision."""
    for shares in (HUGE / HUGE.sum(), np.array([0.1, 0.2, 0.3, 0.4])):
        sample = Sample(("0.5", "2", "4", "8"), HUGE, shares, free=free)
        missed, runs = sample.missed(kind, beta, RUNS // 2, np.random.default_rng(22))
        assert missed / runs <= allowed(beta, runs)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_levels_with_means_of_their_own_are_covered(beta: float) -> None:
    """The users' weighted mean is in the bounds, whatever the levels' means are."""
    sample = Sample(("0.5", "2", "4", "8"), HUGE, HUGE / HUGE.sum(), free=True)
    for means in ((-1.0, 1.0, 1.0, 1.0), (0.9, -0.5, 0.0, 0.3)):
        laws = [
            knots_of(shape, np.array([x])) @ chance
            for shape, x, chance in zip(sample.law.shapes, means, sample.chances, strict=True)
        ]
        rng = np.random.default_rng(23)
        missed, runs = sample.missed("ends", beta, RUNS // 2, rng, laws)
        assert missed / runs <= allowed(beta, runs)


def paths(sample: Sample, laws: list[Floats], ends: Floats, runs: int) -> float:
    """Return the share of paths at some time of which the true mean is rejected from below."""
    rng, law = np.random.default_rng(24), sample.law
    weights = law.coefficient * law.counts.sum()  # of one report, the same at all times
    shares = law.counts / law.counts.sum()
    steps = np.diff(np.rint(ends[:, None] * shares).astype(int), axis=0, prepend=0)
    steepest = 0.95 / float((weights * law.symbols.largest).max())
    tilts = TILTS[steepest >= TILTS]
    log_weights = LOG_WEIGHTS[steepest >= TILTS]
    means = [one @ shape.values for one, shape in zip(laws, law.shapes, strict=True)]
    worst = np.full(runs, -np.inf)
    theta = float(sum(m * w * n for m, w, n in zip(means, weights, shares, strict=True)))
    theta /= float(weights @ shares)
    for begin in range(0, runs, 100):
        gained = np.zeros((100, len(ends), len(tilts)))
        for row, (one, shape) in enumerate(zip(laws, law.shapes, strict=True)):
            counts = np.stack(
                [rng.multinomial(n, one, size=100) for n in steps[:, row]], axis=1
            ).cumsum(axis=1)
            gained += counts @ np.log1p(tilts * weights[row] * shape.values[:, None])
        users = steps.cumsum(axis=0)
        if law.free:
            n, total = users.sum(axis=1)[:, None], (users @ weights)[:, None]
            fair = n * np.log1p(tilts * theta * total / n)
        else:
            fair = users @ np.log1p(np.outer(weights, tilts) * theta)
        mixed = np.logaddexp.reduce(gained - fair + log_weights, axis=2)
        worst[begin : begin + 100] = mixed.max(axis=1)
        if begin == 0:  # what this test computes is what the bounds do
            last = [rng.multinomial(n, one) for n, one in zip(users[-1], laws, strict=True)]
            again = Sample.of(law, users[-1].astype(float), weights)
            low = at_all_times(again.bets(last), math.log(0.05), float(users[-1] @ weights))
            gain = sum(
                part @ np.log1p(tilts * w * shape.values[:, None])
                for part, w, shape in zip(last, weights, law.shapes, strict=True)
            )
            at = np.logaddexp.reduce(
                gain - fair_at(law.free, users[-1], weights, tilts, low) + log_weights
            )
            if low == -1.0:  # nothing is rejected
                assert at <= -math.log(0.05)
            else:
                assert at == pytest.approx(-math.log(0.05), abs=1e-4)
    return float((worst >= -math.log(0.05)).mean())


def fair_at(free: bool, users: Floats, weights: Floats, tilts: Floats, theta: float) -> Floats:
    if free:
        n, total = float(users.sum()), float(users @ weights)
        shared: Floats = n * np.log1p(tilts * theta * total / n)
        return shared
    common: Floats = users @ np.log1p(np.outer(weights, tilts) * theta)
    return common


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("kind", ["ends", "narrow"])
def test_bounds_at_all_times_cover_paths(kind: str, free: bool) -> None:
    """A hundred looks at each of 400 paths of 10,000 reports."""
    sample = Sample(("0.5", "3", "8"), np.array([50.0, 30, 20]), (0.2, 0.3, 0.5), free=free)
    ends = np.unique(np.rint(np.geomspace(10, 1e4, 100)))
    assert paths(sample, sample.laws(kind), ends, 400) <= allowed(0.05, 400)


@pytest.mark.slow
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("epsilon", ["1", "8"])
def test_bounds_at_all_times_cover_long_paths(epsilon: str, kind: str, free: bool) -> None:
    """Hundreds of looks at each of 2,000 paths of 100,000 reports."""
    sample = Sample((epsilon,), np.array([100.0]), (1.0,), free=free)
    ends = np.unique(np.rint(np.geomspace(5, 1e5, 300)))
    assert paths(sample, sample.laws(kind), ends, RUNS) <= allowed(0.05, RUNS)
