"""Hadamard response, plain and recursive: transform, decoding, bounds and scale."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from scipy.signal import fftconvolve
from scipy.stats import binom

from estimators.bounds.block_differences.law import DifferenceLaw, log_cosh
from estimators.bounds.block_differences.limits import difference_interval, log_remainder
from estimators.exact import hadamard
from estimators.mechanisms import HadamardResponse, RecursiveHadamard
from tests.support.rows import row


def test_the_transform_is_the_product_with_hadamards_matrix() -> None:
    for size in (1, 2, 8, 64):
        table = np.random.default_rng(size).integers(-(10**9), 10**9, (3, size))
        assert np.array_equal(hadamard.transform(table), table @ scipy.linalg.hadamard(size)), size


def test_every_category_has_a_row_of_its_own() -> None:
    epsilons = [Fraction(x, 100) for x in (1, 50, 69, 70, 100, 134, 135, 400, 1000, 6400)]
    for categories in (2, 3, 10, 1000, 65536):
        with row(categories):
            mechanism = HadamardResponse(epsilons, categories=categories)
            for blocks, size in zip(mechanism.blocks, mechanism.block_sizes, strict=True):
                assert size & (size - 1) == 0
                assert size // 2 - 1 < categories / blocks <= size - 1
                assert blocks * size <= 6 * categories
            recursive = RecursiveHadamard(epsilons, categories=categories)
            size = 1 << (categories - 1).bit_length()
            assert (recursive.bits[0], recursive.bits[-1]) == (1, size.bit_length())
            for bits, rows in zip(recursive.bits, recursive.rows, strict=True):
                assert rows * 2 ** (bits - 1) == size
            assert set(recursive.symbols) == {2 * size}


def test_the_tail_of_one_tilt_is_within_its_bound() -> None:
    """P(W >= K + x) <= R e^-x, by enumeration; the variance that R is given is the true one."""
    one, pairs = np.ones(1), ((0.3, 0.15), (0.4, 0.001), (0.9, 0.02), (0.02, 0.02))
    rows = itertools.product((1, 7, 40), pairs, (0.0, 0.1, 0.9), (0.0, 0.4), (0.05, 0.5, 2.0))
    for n, (c, u), f, block, tilt in rows:
        ups, downs = _outcomes(n)
        chance = 2 * u + c * (f + block * (1 - f))
        law = DifferenceLaw(n * one, one, c * one, 2 * u * one, (2 * u + c) * one)
        cost = float(log_cosh(np.array([tilt]))[0])
        total = tilt * (ups - downs) - cost * (ups + downs)
        least = np.array([n * (chance - (c * f) ** 2)])
        log_r = float(log_remainder(law, np.array([[tilt]]), least)[0])
        for up, down in ((chance + c * f, chance - c * f), (chance - c * f, chance + c * f)):
            cumulant = n * np.log1p((up - down) / 2 * np.tanh(tilt))
            outcomes = _trinomial(n, (up / 2, down / 2))[ups, downs]
            for spent in (0.0, 0.5, 3.0, 9.0):
                tail = outcomes[total >= cumulant + spent].sum()
                assert tail <= np.exp(log_r - spent) * (1 + 1e-9), (n, c, u, f, block, tilt)


@pytest.mark.parametrize(
    ("n", "c", "u", "fixed"),
    [
        (25, 0.3, 0.15, True),
        (25, 0.4, 0.001, False),
        (25, 0.02, 0.02, True),
        (500, 0.3, 0.15, True),
        (500, 0.45, 0.01, False),
        (500, 0.9, 0.02, True),
    ],
)
def test_limits_miss_with_at_most_their_chance(n: int, c: float, u: float, fixed: bool) -> None:
    """Whole regions, by enumeration; the limits of 500 reports rest on cells of the variance."""
    one, (ups, downs) = np.ones(1), _outcomes(n)
    law = DifferenceLaw(
        n * one, one / (n * c), c * one, 2 * u * one, (2 * u + c) * one, fixed=fixed
    ).rows(None)
    sums, sizes = (x.astype(float)[None, None] for x in (ups - downs, ups + downs))
    for beta in (0.2, 0.001):
        lower, upper = (x[0] for x in difference_interval(law, sums, sizes, np.log(beta)))
        for share, block in ((0.0, 0.3), (0.1, 0.0), (0.5, 0.3), (0.98, 0.0)):
            holders = round(share * n)
            f, others = holders / n, u + block * c / 2
            if fixed:
                chance = _sum_of_two(n, holders, (c + u, u), (others, others))[ups, downs]
            else:
                either = f * u + (1 - f) * others
                chance = _trinomial(n, (either + f * c, either))[ups, downs]
            assert chance.sum() == pytest.approx(1)
            assert chance[lower > f + 1e-12].sum() <= beta
            assert chance[upper < f - 1e-12].sum() <= beta


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
