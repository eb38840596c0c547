"""Exact noise: every table against independent arithmetic, every bit that is used, then the law.

The chi-square tests have fixed seeds and would each fail once in 10^6 seeds.
"""

from __future__ import annotations

import decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from estimators.exact.noise import LEAST_RATE, DiscreteLaplace, Inversion
from estimators.exact.randomness import SeededBits
from tests.support.reports.cases import ScriptedBits
from tests.support.rows import row

FALSE_ALARM = 1e-6
WORD = 2**64
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
    check(law.rest, [context.subtract(one, power(top * j)) for j in range(1, law.cells + 1)])
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
    law.rest = Inversion(lambda bits: DiscreteLaplace(rate).rest._floors(bits)[:2])
    z = np.abs(law.draw(SeededBits(9), n))
    q = np.exp(-1.0)
    expected = 2 * (1 - q) / (1 + q) * q ** np.arange(9)
    expected[0] /= 2
    tally = np.bincount(np.minimum(z, 9), minlength=10)
    assert chisquare(tally, n * np.r_[expected, 1 - expected.sum()]).pvalue > FALSE_ALARM
