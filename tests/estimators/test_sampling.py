"""Each sampler against a script of every bit it uses, then against its law.

The chi-square tests have fixed seeds and would each fail once in 10^6 seeds.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from estimators.randomness import SeededBits, SystemBits
from estimators.sampling import (
    bernoulli,
    bernoulli_exp,
    round_up,
    sample_discrete_laplace,
    uniform_below,
)
from tests.estimators.cases import ScriptedBits

FALSE_ALARM = 1e-6
WORD = 2**64


def words(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


@given(st.integers(0, WORD - 1))
def test_a_coin_shows_the_comparison_of_a_whole_word_for_every_first_byte(threshold: int) -> None:
    first, rest = divmod(threshold, 2**56)
    for byte in range(256):
        if byte != first:
            assert bernoulli(ScriptedBits([byte]), words(threshold))[0] == (byte < first)
    at = ScriptedBits([first, rest << 8])
    assert not bernoulli(at, words(threshold))[0]
    assert at.words == []
    if rest:
        assert bernoulli(ScriptedBits([first, (rest - 1) << 8]), words(threshold))[0]


def test_coins_of_many_columns_follow_the_threshold_of_their_row() -> None:
    coins = bernoulli(SeededBits(3), words(0, 2**63, WORD - 1), 8000)
    assert coins.shape == (3, 8000)
    assert not coins[0].any()
    assert coins[2].all()
    assert abs(int(coins[1].sum()) - 4000) < 5 * np.sqrt(2000)


def test_coins_have_the_probability_of_their_threshold() -> None:
    thresholds = words(2**56, 2**60 + 12345, 2**62, WORD // 3)
    heads = bernoulli(SeededBits(4), thresholds, 200_000).sum(axis=1)
    p = thresholds / WORD
    for observed, chance in zip(heads, p, strict=True):
        expected = np.array([chance, 1 - chance]) * 200_000
        assert chisquare([observed, 200_000 - observed], expected).pvalue > FALSE_ALARM


def test_rounding_never_moves_a_whole_number() -> None:
    assert not round_up(SystemBits(), np.zeros(1000)).any()
    assert round_up(SystemBits(), np.ones(1000)).all()
    assert round_up(ScriptedBits([2**63 - 1]), np.array([0.5]))[0]
    assert not round_up(ScriptedBits([2**63]), np.array([0.5]))[0]


def test_uniform_integers_reject_the_words_that_do_not_fill_a_whole_round() -> None:
    bound = 3 * 2**62  # one whole round; the last quarter of the words is rejected
    script = ScriptedBits([bound, 5], [WORD - 1], [7])
    assert uniform_below(script, words(bound, bound)).tolist() == [7, 5]


@pytest.mark.parametrize("bound", [1, 2, 6, 1000])
def test_uniform_integers_are_uniform(bound: int) -> None:
    drawn = uniform_below(SeededBits(5), np.full(100_000, bound, dtype=np.uint64))
    tally = np.bincount(drawn.astype(np.int64), minlength=bound)
    assert len(tally) == bound
    assert bound == 1 or chisquare(tally).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    ("script", "outcome"),
    [([1], True), ([0, 1], False), ([0, 0, 1], True), ([0, 0, 0, 1], False)],
)
def test_the_exponential_coin_is_true_after_an_even_number_of_successes(
    script: list[int], outcome: bool
) -> None:
    # coins of probability 1/2, 1/4, 1/6, ... until one fails: uniform below 2, 4, 6, ...
    bits = ScriptedBits(script)
    assert bernoulli_exp(bits, words(1), words(2))[0] == outcome
    assert bits.words == []


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 3), (1, 1), (7, 4), (5, 1)])
def test_the_exponential_coin_has_its_probability(numerator: int, denominator: int) -> None:
    n = 200_000
    ones = np.ones(n, dtype=np.uint64)
    coins = bernoulli_exp(SeededBits(6), ones * np.uint64(numerator), ones * np.uint64(denominator))
    p = np.exp(-numerator / denominator)
    if numerator == 0:
        assert coins.all()
    else:
        expected = [n * p, n * (1 - p)]
        assert chisquare([coins.sum(), n - coins.sum()], expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 40), (1, 1), (5, 2), (3, 1000)])
def test_the_discrete_laplace_has_its_law(numerator: int, denominator: int) -> None:
    n = 300_000
    ones = np.ones(n, dtype=np.uint64)
    z = sample_discrete_laplace(
        SeededBits(7), ones * np.uint64(numerator), ones * np.uint64(denominator)
    )
    q = np.exp(-numerator / denominator)
    reach = int(np.log(20 * (1 + q) / (n * (1 - q))) / np.log(q))  # 20 expected in a cell
    inner = np.arange(-reach, reach + 1)
    inside = (1 - q) / (1 + q) * q ** np.abs(inner)
    tail = q ** (reach + 1) / (1 + q)
    tally = np.bincount(np.clip(z, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    assert chisquare(tally, n * np.r_[tail, inside, tail]).pvalue > FALSE_ALARM


def test_rates_may_differ_from_draw_to_draw() -> None:
    rates = np.tile(words(1, 4), 50_000)
    z = sample_discrete_laplace(SeededBits(8), rates, np.full(100_000, 8, dtype=np.uint64))
    for start, rate in ((0, 1 / 8), (1, 1 / 2)):
        half = z[start::2]
        expected = 1 / (2 * np.sinh(rate / 2) ** 2)
        assert abs(half.var() / expected - 1) < 6 * np.sqrt(5 / half.size)  # kurtosis is below 6


def test_a_scale_beyond_64_bit_arithmetic_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at most"):
        sample_discrete_laplace(SeededBits(1), words(1), words(2**41))


@given(st.lists(st.integers(0, 20), max_size=6), st.integers(0, 2**32))
def test_seeded_bits_do_not_depend_on_how_they_are_asked_for(sizes: list[int], seed: int) -> None:
    whole, parts = SeededBits(seed), SeededBits(seed)
    expected = whole.integers(sum(sizes)).tolist()
    assert [int(word) for n in sizes for word in parts.integers(n)] == expected
