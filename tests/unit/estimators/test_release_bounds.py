"""Bounds on what a release is about: above every law they speak of, and close to it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators import define
from estimators.bounds import Law
from estimators.central.bounds import ValueLaw, _bins, _log_tail, population_limits
from estimators.central.release import Noise
from estimators.exact.randomness import SeededBits
from tests.support.rows import row

GRID = 8
#: Chances of the values -1, -3/4, ..., 1: signs, almost constant, skewed, even, three-point.
DISTRIBUTIONS = {
    "signs": {0: 0.3, 16: 0.7},
    "rare": {0: 0.98, 16: 0.02},
    "narrow": {9: 0.5, 10: 0.5},
    "skewed": {7: 0.95, 16: 0.05},
    "even": dict.fromkeys(range(17), 1 / 17),
    "three": {0: 0.1, 8: 0.8, 16: 0.1},
}


def sums(distribution: dict[int, float], users: tuple[int, ...], weights: tuple[int, ...]) -> Any:
    """Return the exact law of sum d_l sum x, as chances of 0, 1, ... eighths above the least."""
    law = np.ones(1)
    for n, weight in zip(users, weights, strict=True):
        one = np.zeros(16 * weight + 1)
        for value, chance in distribution.items():
            one[value * weight] = chance
        for _ in range(n):
            law = np.convolve(law, one)
    return law


def test_no_law_of_values_has_a_larger_tail() -> None:
    for name, (users, weights) in itertools.product(
        DISTRIBUTIONS, [((60,), (1,)), ((40, 15), (1, 3))]
    ):
        with row(name, users, weights):
            distribution = DISTRIBUTIONS[name]
            law = sums(distribution, users, weights)
            total = sum(n * d for n, d in zip(users, weights, strict=True))
            tails = np.cumsum(law[::-1])[::-1]
            places = np.arange(law.size) / (GRID * total) - 1
            mean = sum(p * v for v, p in distribution.items()) / GRID - 1
            known = (np.array(users, float), np.array(weights) / total, np.ones(len(users)))
            kinds: list[Law] = [ValueLaw(*known)]
            are_signs = set(distribution) == {0, 16}
            if are_signs:
                kinds.append(Law(*known))
            for kind in kinds:
                bound = np.exp(_log_tail(kind, np.full(places.size, mean), places - 1e-12))
                assert np.all(bound >= tails * (1 - 1e-9))
                if are_signs:  # others have less variance than the bound has to allow for
                    assert (bound[tails < 1e-3] < 0.1).all()


def test_the_bins_of_the_noise_hold_all_of_it() -> None:
    for rate in [Fraction(1, 1000), Fraction(1, 3), Fraction(4)]:
        with row(rate):
            noise = Noise((rate,), (1,), 1)
            ends, chances = _bins(noise, math.log(0.01))
            assert chances.sum() == pytest.approx(1)
            assert np.all(chances > 0)
            drawn = noise.draw(SeededBits(1), 100_000)
            tally = np.histogram(drawn, np.append(-np.inf, ends + 0.5))[0] / 100_000
            assert np.abs(tally - chances).max() < 0.008


def test_a_limit_is_one_of_a_larger_sum_too() -> None:
    """Many categories share limits: none may lie above the limit of the category alone."""
    noise, n = Noise((Fraction(1),), (2**25,), 2), 3000
    law, total = Law(np.array([float(n)]), np.array([1 / n]), np.ones(1)), n * 2**25
    released = np.linspace(-0.05, 0.6, 130)
    lower, upper = population_limits(noise, law, released, total, 0.0, math.log(1e-3))
    assert np.all(np.diff(lower) >= 0)
    assert np.all(np.diff(upper) >= 0)
    for index in (0, 90):
        alone = population_limits(
            noise, law, released[index : index + 1], total, 0.0, math.log(1e-3)
        )
        width = max(alone[1][0] - alone[0][0], 0.01)
        assert alone[0][0] - 0.03 * width <= lower[index] <= alone[0][0] + 1e-3 * width
        assert alone[1][0] - 1e-3 * width <= upper[index] <= alone[1][0] + 0.03 * width


@pytest.mark.parametrize(
    ("kind", "n", "epsilon", "excess"),
    [
        ("mean", 10_000, 0.02, 1.15),
        ("mean", 100_000, 1.0, 1.03),
        ("frequency", 1000, 0.05, 1.05),
        ("frequency", 100_000, 1.0, 1.02),
    ],
)
def test_bounds_are_close_to_the_quantile_of_noise_and_sampling(
    kind: str, n: int, epsilon: float, excess: float
) -> None:
    domain: dict[str, Any] = {"range": (0, 1)} if kind == "mean" else {"categories": 2}
    metric = define(name="m", kind=kind, trust="central", levels=[epsilon], **domain)
    statistic, level = metric.zero(), np.zeros(n, dtype=np.uint8)
    metric.accumulate(statistic, level, metric.randomize(np.arange(n) % 2, level))
    released = metric.release(statistic, SeededBits(5))
    numbers = 1 if kind == "mean" else 2
    rng = np.random.default_rng(1)
    both = rng.laplace(scale=numbers / (n * epsilon), size=300_000)
    both += rng.normal(scale=0.5 / math.sqrt(n), size=both.size)
    exact = np.quantile(both, 1 - 0.025 / numbers)
    half = (np.atleast_1d(released.upper)[0] - np.atleast_1d(released.lower)[0]) / 2
    assert 0.99 < half / exact < excess
