"""Each sampler against a script of every bit it uses, then against its law.

The chi-square tests have fixed seeds and would each fail once in 10^6 seeds.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from estimators.exact.randomness import SeededBits, SystemBits
from estimators.exact.sampling import bernoulli, round_up, uniform_below
from tests.support.reports.cases import ScriptedBits

FALSE_ALARM = 1e-6
WORD = 2**64
ONE = np.zeros(1, dtype=np.uint8)


def words(*values: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(values, dtype=np.uint64)


@given(st.integers(0, WORD - 1))
def test_a_coin_shows_the_comparison_of_a_whole_word_for_every_first_byte(threshold: int) -> None:
    first, rest = divmod(threshold, 2**56)
    for byte in range(256):
        if byte != first:
            assert bernoulli(ScriptedBits([byte]), words(threshold), ONE)[0] == (byte < first)
    at = ScriptedBits([first, rest << 8])
    assert not bernoulli(at, words(threshold), ONE)[0]
    assert at.words == []
    if rest:
        assert bernoulli(ScriptedBits([first, (rest - 1) << 8]), words(threshold), ONE)[0]


def test_coins_have_the_probability_of_the_threshold_of_their_row() -> None:
    thresholds = words(0, 2**56, 2**60 + 12345, 2**62, WORD // 3, WORD - 1)
    coins = bernoulli(SeededBits(4), thresholds, np.arange(6), 200_000)
    assert coins.shape == (6, 200_000)
    heads = coins.sum(axis=1)
    assert (heads[0], heads[-1]) == (0, 200_000)
    for observed, chance in zip(heads[1:-1], thresholds[1:-1] / WORD, strict=True):
        expected = np.array([chance, 1 - chance]) * 200_000
        assert chisquare([observed, 200_000 - observed], expected).pvalue > FALSE_ALARM


def test_rounding_shows_the_comparison_of_a_whole_word_and_moves_no_whole_number() -> None:
    assert not round_up(SystemBits(), np.zeros(1000)).any()
    assert round_up(SystemBits(), np.ones(1000)).all()
    half, below = np.array([0.5]), np.array([0.5 - 2**-54])
    assert round_up(ScriptedBits([127]), half)[0]
    assert not round_up(ScriptedBits([128], [0]), half)[0]
    assert round_up(ScriptedBits([127], [(2**53 - 129) << 11]), below)[0]
    assert not round_up(ScriptedBits([127], [(2**53 - 128) << 11]), below)[0]


def test_uniform_integers_reject_the_words_that_do_not_fill_a_whole_round() -> None:
    bound = 3 * 2**62  # one whole round; the last quarter of the words is rejected
    script = ScriptedBits([bound, 5], [WORD - 1], [7])
    assert uniform_below(script, words(bound, bound)).tolist() == [7, 5]


@pytest.mark.parametrize("bound", [1, 6, 1000])
def test_uniform_integers_are_uniform(bound: int) -> None:
    drawn = uniform_below(SeededBits(5), np.full(100_000, bound, dtype=np.uint64))
    tally = np.bincount(drawn.astype(np.int64), minlength=bound)
    assert len(tally) == bound
    assert bound == 1 or chisquare(tally).pvalue > FALSE_ALARM


@given(st.lists(st.integers(0, 20), max_size=6), st.integers(0, 2**32))
def test_seeded_bits_do_not_depend_on_how_they_are_asked_for(sizes: list[int], seed: int) -> None:
    whole, parts = SeededBits(seed), SeededBits(seed)
    expected = whole.integers(sum(sizes)).tolist()
    assert [int(word) for n in sizes for word in parts.integers(n)] == expected
