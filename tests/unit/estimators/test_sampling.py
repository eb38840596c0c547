"""Samplers against every bit that they use, and exact noise against other arithmetic.

The chi-square tests have fixed seeds and would each fail once in 10^6 seeds.
"""

import decimal
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from estimators.exact.laplace_sampler import LEAST_RATE, DiscreteLaplace, Inversion
from estimators.exact.randomness import SeededBits, SystemBits
from estimators.exact.sampling import bernoulli, bytes_below, round_up, uniform_below
from estimators.exact.thresholds import WORD, exp_bounds, flip_threshold
from tests.support.reports.cases import ScriptedBits
from tests.support.rows import row

FALSE_ALARM = 1e-6
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
    script = ScriptedBits([bound, 5], [WORD - 1], [bound], [7])
    assert uniform_below(script, words(bound, bound)).tolist() == [7, 5]


def test_bytes_that_do_not_fill_a_whole_round_are_rejected_and_the_others_count_alike() -> None:
    every = np.arange(256, dtype=np.uint8).view(np.uint64).tolist()
    for bound in range(1, 256):
        whole = 256 // bound * bound
        bounds = np.full(whole, bound, dtype=np.uint8)
        found = bytes_below(ScriptedBits(every[: -(-whole // 8)]), bounds)
        assert found.tolist() == [byte % bound for byte in range(whole)]
        script = ScriptedBits(*[[whole], [255], [whole]] * (whole < 256), [0])
        assert bytes_below(script, bounds[:1]) == [0]
        assert script.words == [], bound


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


RATES = (
    LEAST_RATE,
    Fraction(1, 20_480_000),
    Fraction(1, 4096),
    Fraction(3, 1000),
    Fraction(2, 3),
    Fraction(1),
    Fraction(5, 2),
    Fraction(40),
)


def decimals(bits: int) -> decimal.Context:
    return decimal.Context(prec=bits // 3 + 30, Emin=-(10**6), Emax=10**6)


def floors(numbers: list[decimal.Decimal], bits: int, context: decimal.Context) -> list[int]:
    return [int(context.multiply(x, decimal.Decimal(2**bits))) for x in numbers]


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_every_threshold_is_that_of_another_arithmetic(rate: Fraction) -> None:
    law, context = DiscreteLaplace(rate), decimals(256)

    def power(exponent: Fraction) -> decimal.Decimal:
        """Return e^-exponent."""
        return context.exp(
            context.divide(
                decimal.Decimal(-exponent.numerator), decimal.Decimal(exponent.denominator)
            )
        )

    def check(group: Inversion, below: list[decimal.Decimal]) -> None:
        for bits in (64, 128):
            assert group._floors(bits) == floors(below, bits, context)

    one, q = decimal.Decimal(1), power(rate)
    check(law.sign, [context.divide(x, context.add(one, q)) for x in (q, one)])
    ends = [0, *(low for low in law._starts[1:]), law.digits]
    for start, end, group in zip(ends, ends[1:], law.lowest, strict=False):
        cells = 2 ** (end - start)
        all_of_them = context.subtract(one, power(rate * 2**start * cells))
        check(
            group,
            [
                context.divide(context.subtract(one, power(rate * 2**start * j)), all_of_them)
                for j in range(1, cells)
            ],
        )
    top = rate * 2**law.digits
    check(law.remainder, [context.subtract(one, power(top * j)) for j in range(1, law.cells + 1)])
    groups = [len(group.thresholds) + 1 for group in law.lowest]
    assert np.prod(groups, dtype=np.int64) == 2**law.digits
    assert law._starts == [int(np.log2(np.prod(groups[:i]))) for i in range(len(groups))]


def fifths(bits: int) -> list[int]:
    return [2**bits * j // 5 for j in range(1, 5)]


def test_words_next_to_a_threshold_are_told_apart_and_a_tie_draws_more() -> None:
    law = Inversion(fifths)

    def drawn(word: int, *more: int) -> int:
        script = ScriptedBits([word >> 48, (word % 2**48) << 16, *more])
        found = int(law.draw(script, 1)[0])
        assert script.words == []
        return found

    for which, threshold in enumerate(fifths(64)):
        first, second = (fifths(bits)[which] % WORD for bits in (128, 192))
        for step in (-1, 1):
            expected = which + (step == 1)
            assert drawn(threshold + step) == expected
            assert drawn(threshold, first + step) == expected
            assert drawn(threshold, first, second + step) == expected


def test_probabilities_that_64_bits_do_not_tell_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="the same 64 bits"):
        Inversion(lambda bits: [2**bits // 3, (2 ** (bits + 80) // 3 + 2**bits) >> 80])


def test_a_rate_that_has_no_table_is_refused() -> None:
    for rate in (Fraction(1, 2**41), Fraction(41), Fraction(0), Fraction(-1)):
        with row(rate), pytest.raises(ValueError, match="expected"):
            DiscreteLaplace(rate)


@pytest.mark.parametrize("rate", [Fraction(1, 40), Fraction(5, 2), Fraction(3, 1000)])
def test_the_discrete_laplace_has_its_law(rate: Fraction) -> None:
    n = 300_000
    z = DiscreteLaplace(rate).draw(SeededBits(7), n)
    q = np.exp(-float(rate))
    reach = int(np.log(20 * (1 + q) / (n * (1 - q))) / np.log(q))  # 20 expected in a cell
    inner = np.arange(-reach, reach + 1)
    inside = (1 - q) / (1 + q) * q ** np.abs(inner)
    tail = q ** (reach + 1) / (1 + q)
    tally = np.bincount(np.clip(z, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    assert chisquare(tally, n * np.r_[tail, inside, tail]).pvalue > FALSE_ALARM


def test_what_is_beyond_the_last_cell_begins_again_there() -> None:
    """The same law from a table of two cells as from one of forty."""
    rate, n = Fraction(1), 300_000
    law = DiscreteLaplace(rate)
    assert law.cells == 40
    law.cells = 2
    law.remainder = Inversion(lambda bits: DiscreteLaplace(rate).remainder._floors(bits)[:2])
    z = np.abs(law.draw(SeededBits(9), n))
    q = np.exp(-1.0)
    expected = 2 * (1 - q) / (1 + q) * q ** np.arange(9)
    expected[0] /= 2
    tally = np.bincount(np.minimum(z, 9), minlength=10)
    assert chisquare(tally, n * np.r_[expected, 1 - expected.sum()]).pvalue > FALSE_ALARM


EPSILONS = st.integers(1, 640_000).map(lambda i: Fraction(i, 10_000))


@given(EPSILONS)
def test_the_bounds_enclose_the_exponential_as_decimal_arithmetic_has_it(x: Fraction) -> None:
    with localcontext(prec=60):
        reference = Fraction((Decimal(x.numerator) / Decimal(x.denominator)).exp())
    lower, upper = exp_bounds(x)
    assert lower < upper
    assert abs(lower / reference - 1) < Fraction(1, 10**55)
    assert abs(upper / reference - 1) < Fraction(1, 10**55)


@given(EPSILONS)
def test_the_threshold_is_private_and_one_less_would_not_be(epsilon: Fraction) -> None:
    threshold = flip_threshold(epsilon)
    lower, upper = exp_bounds(epsilon)
    assert Fraction(WORD - threshold, threshold) <= lower
    assert threshold == 1 or Fraction(WORD - threshold + 1, threshold - 1) > upper


def test_exp_of_zero_is_exact_and_of_less_is_refused() -> None:
    assert exp_bounds(Fraction(0)) == (Fraction(1), Fraction(1))
    with pytest.raises(ValueError, match="at least 0"):
        exp_bounds(Fraction(-1))
    for epsilon in (Fraction(0), Fraction(-1)):
        with pytest.raises(ValueError, match="above 0"):
            flip_threshold(epsilon)
