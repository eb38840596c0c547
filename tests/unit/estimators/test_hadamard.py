"""Hadamard response, plain and recursive: transform, decoding, bounds and scale."""

from __future__ import annotations

import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import fftconvolve
from scipy.stats import binom

from estimators import define
from estimators.bounds.differences import difference_interval, log_remainder
from estimators.bounds.laws.difference_law import DifferenceLaw
from estimators.bounds.self_normalised import log_cosh
from estimators.exact import hadamard
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import HadamardResponse, RecursiveHadamard
from estimators.mechanisms.shared.block_differences import BlockDifferences
from tests.support.reports.widths import supported


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


@pytest.mark.parametrize("categories", [2, 3, 10, 1000, 65536])
def test_recursive_rows_and_blocks_make_room_for_every_category(categories: int) -> None:
    epsilons = [Fraction(x, 100) for x in (1, 50, 100, 134, 135, 400, 1000, 6400)]
    mechanism = RecursiveHadamard(epsilons, categories=categories)
    size = 1 << (categories - 1).bit_length()
    assert mechanism.bits[0] == 1
    assert mechanism.bits[-1] == size.bit_length()
    for bits, rows, symbols in zip(mechanism.bits, mechanism.rows, mechanism.symbols, strict=True):
        assert rows * 2 ** (bits - 1) == size >= categories
        assert symbols == 2 * size


@pytest.mark.parametrize("name", ["hadamard_response", "recursive_hadamard"])
@pytest.mark.parametrize("categories", [2, 7, 16])
def test_differences_are_those_counted_report_by_report(name: str, categories: int) -> None:
    levels = (0.5, 2.0, 4.0, 16.0)
    metric = define(
        name="m", kind="frequency", mechanism=name, categories=categories, levels=levels
    )
    mechanism = metric.randomizer
    assert isinstance(mechanism, BlockDifferences)
    rng = np.random.default_rng(3)
    level = rng.integers(0, len(levels), 500).astype(np.uint8)
    reports = metric.randomize(rng.integers(0, categories, 500), level, SeededBits(3))
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    table = statistic.reshape(len(levels), -1)
    sums, sizes = mechanism.differences(table, np.arange(len(levels)))
    for index in range(len(levels)):
        expected = np.zeros((2, categories), dtype=np.int64)
        for report in reports[level == index].tolist():
            signs = [sign(mechanism, index, report, x) for x in range(categories)]
            expected += np.array([signs, np.abs(signs)])
        assert sums[index].tolist() == expected[0].tolist()
        assert sizes[index].tolist() == expected[1].tolist()


def sign(mechanism: BlockDifferences, level: int, report: int, category: int) -> int:
    """Return what a report is for a category, from the definition."""
    row, block = divmod(category, mechanism.blocks[level])
    if isinstance(mechanism, RecursiveHadamard):
        drawn, symbol = divmod(report, 2 * mechanism.blocks[level])
        code = scipy.linalg.hadamard(mechanism.rows[level])[drawn, row]
        return int(code * (1 - 2 * (symbol % 2)) * (symbol // 2 == block))
    assert isinstance(mechanism, HadamardResponse)
    size = mechanism.block_sizes[level]
    code = scipy.linalg.hadamard(size)[1 + row, report % size]
    return int(code * (report // size == block))


@pytest.mark.parametrize("categories", [16, 1024, 65536])
@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4, 8, 16])
def test_the_recursive_code_costs_no_more_than_the_plain_one(
    epsilon: float, categories: int
) -> None:
    """The squared l2 error is of order k e^epsilon / (n (e^epsilon - 1)^2) for both, e^epsilon < k.

    Acharya, Sun and Zhang (2019), theorem 7, and Chen, Kairouz and Ozgur (2020), theorem 3.1, as
    HIST lists them in its table 1; for the latter up to (e^epsilon - 1) / (e^(epsilon/2) - 1) more
    at small epsilons. The constants are 4.2 to 8.3, and the recursive one has the smaller.
    """
    epsilons = [Fraction(epsilon)]
    plain = HadamardResponse(epsilons, categories=categories).facts.variances[0]
    recursive = RecursiveHadamard(epsilons, categories=categories).facts.variances[0]
    assert plain / 1.5 < recursive <= plain * (1 + 1e-12)
    if epsilon < np.log(categories):
        assert plain < 9 * np.exp(epsilon) / np.expm1(epsilon) ** 2


@settings(deadline=None, max_examples=200)
@given(
    n=st.integers(1, 60),
    pair=st.sampled_from([(0.3, 0.15), (0.4, 0.001), (0.9, 0.02), (0.02, 0.02)]),
    f=st.floats(0, 1),
    block=st.floats(0, 1),
    tilt=st.floats(0.01, 3),
    spent=st.floats(0, 12),
    mirrored=st.booleans(),
)
def test_the_tail_of_one_tilt_is_within_its_bound(
    n: int,
    pair: tuple[float, float],
    f: float,
    block: float,
    tilt: float,
    spent: float,
    mirrored: bool,
) -> None:
    """P(W >= K + x) <= R e^-x, by enumeration; the variance that R is given is the true one."""
    c, u = pair
    chance = 2 * u + c * (f + block * (1 - f))
    one, (ups, downs) = np.ones(1), _outcomes(n)
    law = DifferenceLaw(n * one, one, c * one, 2 * u * one, (2 * u + c) * one)
    cost = float(log_cosh(np.array([tilt]))[0])
    total = tilt * (ups - downs) - cost * (ups + downs)
    up, down = (chance + c * f) / 2, (chance - c * f) / 2
    if mirrored:
        up, down = down, up
    cumulant = n * np.log1p((up - down) * np.tanh(tilt))
    tail = _trinomial(n, (up, down))[ups, downs][total >= cumulant + spent].sum()
    least = np.array([n * (chance - (c * f) ** 2)])
    log_r = float(log_remainder(law, np.array([[tilt]]), least)[0])
    assert tail <= np.exp(log_r - spent) * (1 + 1e-9)


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
    ups, downs = _outcomes(n)
    sums, sizes = (ups - downs).astype(float)[None], (ups + downs).astype(float)[None]
    lower, upper = difference_interval(law, sums, sizes, np.log(beta))
    if fixed:
        others = (u + (share - f) / max(1 - f, 1e-9) * c / 2) if holders < n else u
        chance = _sum_of_two(n, holders, (c + u, u), (others, others))[ups, downs]
    else:
        middle = 2 * u + share * c
        chance = _trinomial(n, ((middle + f * c) / 2, (middle - f * c) / 2))[ups, downs]
    assert chance.sum() == pytest.approx(1)
    assert chance[lower > f + 1e-12].sum() <= beta
    assert chance[upper < f - 1e-12].sum() <= beta


@pytest.mark.parametrize(("c", "u"), [(0.3, 0.15), (0.45, 0.01), (0.9, 0.02)])
@pytest.mark.parametrize("fixed", [False, True])
def test_limits_of_many_reports_miss_with_at_most_their_chance(
    c: float, u: float, fixed: bool
) -> None:
    """The same for 500 reports, where the limits rest on cells of the variance."""
    n, one = 500, np.ones(1)
    law = DifferenceLaw(
        n * one, one / (n * c), c * one, 2 * u * one, (2 * u + c) * one, fixed=fixed
    )
    ups, downs = _outcomes(n)
    sums, sizes = (ups - downs).astype(float)[None], (ups + downs).astype(float)[None]
    for beta in (0.2, 0.001):
        lower, upper = difference_interval(law, sums, sizes, np.log(beta))
        for f, block in ((0.0, 0.3), (0.1, 0.0), (0.5, 0.3), (0.98, 0.0)):
            others = u + block * c / 2
            if fixed:
                chance = _sum_of_two(n, round(f * n), (c + u, u), (others, others))[ups, downs]
            else:
                either = f * u + (1 - f) * others
                chance = _trinomial(n, (either + f * c, either))[ups, downs]
            assert chance.sum() == pytest.approx(1)
            assert chance[lower > f + 1e-12].sum() <= beta
            assert chance[upper < f - 1e-12].sum() <= beta


@pytest.mark.parametrize("weight", [0.5, 0.8])
@pytest.mark.parametrize("holders", [(0, 25), (60, 0), (40, 5), (0, 0)])
def test_own_values_are_covered_however_the_levels_share_them(
    holders: tuple[int, int], weight: float
) -> None:
    """By enumeration of two levels that weigh differently, with cells of the variance in reach."""
    counts, c, u = np.array([60.0, 25.0]), np.array([0.45, 0.8]), np.array([0.2, 0.02])
    share = np.array([weight, 1 - weight])
    law = DifferenceLaw(counts, share / (counts * c), c, 2 * u, 2 * u + c, fixed=True)
    truth, levels = float(share @ (np.array(holders) / counts)), []
    for n, own, gain, other in zip(counts.astype(int), holders, c, u, strict=True):
        ups, downs = _outcomes(n)
        law_of = _sum_of_two(n, own, (gain + other, other), (other, other))
        levels.append((ups - downs, ups + downs, law_of[ups, downs]))
    i, j = (x.ravel() for x in np.indices([level[0].size for level in levels]))
    sums, sizes = (np.array([levels[0][x][i], levels[1][x][j]], dtype=float) for x in (0, 1))
    chance = levels[0][2][i] * levels[1][2][j]
    assert chance.sum() == pytest.approx(1)
    for beta in (0.3, 0.01):
        lower, upper = difference_interval(law, sums, sizes, np.log(beta))
        assert chance[lower > truth + 1e-12].sum() <= beta
        assert chance[upper < truth - 1e-12].sum() <= beta


@pytest.mark.parametrize("name", ["hadamard_response", "recursive_hadamard"])
@pytest.mark.parametrize(("k", "f"), [(16, 0.3), (16, 0.9), (1024, 0.3), (1024, 0.0)])
def test_at_1e5_reports_it_is_within_eight_percent_of_the_normal_width(
    name: str, k: int, f: float
) -> None:
    assert supported(name, 100_000, k, f) < 1.08


def _outcomes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all numbers of +1 and of -1 that n reports can have."""
    ups, downs = np.indices((n + 1, n + 1)).reshape(2, -1)
    inside = ups + downs <= n
    return ups[inside], downs[inside]


def _trinomial(n: int, chances: tuple[float, float]) -> np.ndarray:
    """Return the chance of each outcome, shape (n + 1, n + 1)."""
    ups, downs = _outcomes(n)
    law, either = np.zeros((n + 1, n + 1)), sum(chances)
    nonzero = binom.pmf(ups + downs, n, min(either, 1))
    law[ups, downs] = nonzero * binom.pmf(ups, ups + downs, chances[0] / either)
    return law


def _sum_of_two(
    n: int, first: int, one: tuple[float, float], other: tuple[float, float]
) -> np.ndarray:
    law = fftconvolve(_trinomial(first, one), _trinomial(n - first, other))
    return np.asarray(np.maximum(law, 0))


@pytest.mark.parametrize("name", ["hadamard_response", "recursive_hadamard"])
@pytest.mark.parametrize("weights", ["optimal", "uniform"])
@pytest.mark.parametrize("target", ["population", "sample"])
def test_reports_without_noise_have_bounds_too(name: str, weights: str, target: str) -> None:
    metric = define(name="m", kind="frequency", mechanism=name, categories=4, levels=[32, 64])
    values, level = np.repeat([0, 1], [3000, 1000]), np.tile([0, 1], 2000).astype(np.uint8)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(1)))
    estimate = metric.estimate(statistic, weights=weights, target=target)
    lower, upper = np.atleast_1d(estimate.lower), np.atleast_1d(estimate.upper)
    assert np.all(lower <= [0.75, 0.25, 0, 0])
    assert np.all(upper >= [0.75, 0.25, 0, 0])
    assert np.all(upper - lower < 0.1)


@pytest.mark.parametrize("name", ["hadamard_response", "recursive_hadamard"])
def test_a_bound_may_fail_nearly_always(name: str) -> None:
    metric = define(name="m", kind="frequency", mechanism=name, categories=2, levels=[2, 4])
    level = np.tile([0, 1], 20_000).astype(np.uint8)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(0 * level, level, SeededBits(1)))
    before = np.zeros(2)
    for beta in (0.999, 0.9, 0.5, 0.05, 1e-9):
        estimate = metric.estimate(statistic, beta=beta)
        width = np.asarray(estimate.upper) - np.asarray(estimate.lower)
        assert np.all(estimate.lower <= np.clip(estimate.value, 0, 1))
        assert np.all(estimate.upper >= np.clip(estimate.value, 0, 1))
        assert np.all(width >= before)
        before = width


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hadamard_response", "recursive_hadamard"])
def test_a_million_categories_are_decoded_in_seconds(name: str) -> None:
    metric = define(
        name="m",
        kind="frequency",
        mechanism=name,
        categories=10**6,
        levels=[1, 4],
    )
    values = np.repeat([17, 999_999], [60_000, 40_000])
    level = np.tile([0, 1], 50_000).astype(np.uint8)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(1)))
    tracemalloc.start()
    start = time.process_time()
    estimate = metric.estimate(statistic)
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(estimate.value, np.ndarray)
    assert np.argsort(estimate.value)[-2:].tolist() == [999_999, 17]
    assert estimate.lower[17] <= 0.6 <= estimate.upper[17]  # type: ignore[index]
    assert seconds < 10
    assert peak < 100 * 8 * 10**6
