"""Hadamard response: its transform, its bounds and its scale."""

from __future__ import annotations

import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import Metric, hadamard
from estimators.bounds.differences import DifferenceLaw, difference_interval
from estimators.mechanisms import HadamardResponse
from estimators.randomness import SeededBits


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_the_transform_is_the_product_with_hadamards_matrix(size: int) -> None:
    table = np.random.default_rng(size).integers(-(10**9), 10**9, (3, size))
    assert np.array_equal(hadamard.transform(table), table @ scipy.linalg.hadamard(size))


@pytest.mark.parametrize("categories", [2, 3, 10, 1000, 65536])
def test_every_category_has_a_row_of_its_own(categories: int) -> None:
    epsilons = [Fraction(x, 100) for x in (1, 50, 69, 70, 100, 400, 1000, 6400)]
    mechanism = HadamardResponse(epsilons, categories=categories)
    for blocks, size in zip(mechanism.blocks, mechanism.block_sizes, strict=True):
        assert size & (size - 1) == 0
        assert size // 2 - 1 < categories / blocks <= size - 1
        assert blocks * size <= 6 * categories


@settings(deadline=None, max_examples=300)
@given(
    holders=st.integers(0, 25),
    block=st.floats(0, 1),
    plus=st.integers(0, 25),
    minus=st.integers(0, 25),
    pair=st.sampled_from([(0.3, 0.15), (0.4, 0.001), (0.02, 0.02)]),
    fixed=st.booleans(),
    beta=st.sampled_from([0.5, 0.05, 1e-3]),
)
def test_limits_that_miss_the_truth_were_unlikely(
    holders: int,
    block: float,
    plus: int,
    minus: int,
    pair: tuple[float, float],
    fixed: bool,
    beta: float,
) -> None:
    """Whole regions, by enumeration: the limits of all outcomes miss with chance at most beta."""
    n, (c, u) = 25, pair
    holders, plus = min(holders, n), min(plus, n)
    f = holders / n
    share = f + block * (1 - f)
    one = np.ones(1)
    law = DifferenceLaw(
        n * one, one / (n * c), c * one, 2 * u * one, (2 * u + c) * one, fixed=fixed
    )
    total = np.arange(n + 1)
    ups, downs = (x.ravel() for x in np.meshgrid(total, total))
    inside = ups + downs <= n
    ups, downs = ups[inside], downs[inside]
    lower, upper = difference_interval(
        law, (ups - downs) / (n * c), [(ups + downs).astype(float)], np.log(beta)
    )
    if fixed:
        others = (u + (share - f) / max(1 - f, 1e-9) * c / 2) if holders < n else u
        chance = _sum_of_two(n, holders, (c + u, u), (others, others))[ups, downs]
    else:
        middle = 2 * u + share * c
        chance = _trinomial(n, ((middle + f * c) / 2, (middle - f * c) / 2))[ups, downs]
    assert chance.sum() == pytest.approx(1)
    assert chance[lower > f + 1e-12].sum() <= beta
    assert chance[upper < f - 1e-12].sum() <= beta


def _trinomial(n: int, chances: tuple[float, float]) -> np.ndarray:
    law = np.zeros((n + 1, n + 1))
    law[0, 0] = 1
    for _ in range(n):
        moved = law * (1 - sum(chances))
        moved[1:] += law[:-1] * chances[0]
        moved[:, 1:] += law[:, :-1] * chances[1]
        law = moved
    return law


def _sum_of_two(
    n: int, first: int, one: tuple[float, float], other: tuple[float, float]
) -> np.ndarray:
    law = np.zeros((n + 1, n + 1))
    law[0, 0] = 1
    for user in range(n):
        chances = one if user < first else other
        moved = law * (1 - sum(chances))
        moved[1:] += law[:-1] * chances[0]
        moved[:, 1:] += law[:, :-1] * chances[1]
        law = moved
    return law


@pytest.mark.slow
def test_a_million_categories_are_decoded_in_seconds() -> None:
    metric = Metric(
        name="m",
        kind="frequency",
        mechanism="hadamard_response",
        categories=10**6,
        levels=[1, 4],
    )
    values = np.repeat([17, 999_999], [60_000, 40_000])
    level = np.tile([0, 1], 50_000).astype(np.uint8)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(1)))
    tracemalloc.start()
    start = time.perf_counter()
    estimate = metric.estimate(statistic)
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(estimate.value, np.ndarray)
    assert np.argsort(estimate.value)[-2:].tolist() == [999_999, 17]
    assert estimate.lower[17] <= 0.6 <= estimate.upper[17]  # type: ignore[index]
    assert seconds < 10
    assert peak < 100 * 8 * 10**6
