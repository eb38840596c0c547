from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.exact.thresholds import WORD, exp_bounds, flip_threshold

EPSILONS = st.integers(1, 640_000).map(lambda i: Fraction(i, 10_000))


@given(EPSILONS)
def test_the_bounds_enclose_the_exponential_as_decimal_arithmetic_has_it(x: Fraction) -> None:
    with localcontext(prec=60):
        reference = Fraction((Decimal(x.numerator) / Decimal(x.denominator)).exp())
    lower, upper = exp_bounds(x)
    assert lower < upper
    assert abs(lower / reference - 1) < Fraction(1, 10**55)
    assert abs(upper / reference - 1) < Fraction(1, 10**55)


def test_more_precision_narrows_the_bounds_from_both_sides() -> None:
    (coarse_low, coarse_high), (low, high) = (exp_bounds(Fraction(64), p) for p in (64, 512))
    assert coarse_low < low < high < coarse_high


@given(EPSILONS)
def test_the_threshold_is_private_and_one_less_would_not_be(epsilon: Fraction) -> None:
    threshold = flip_threshold(epsilon)
    lower, upper = exp_bounds(epsilon)
    assert Fraction(WORD - threshold, threshold) <= lower
    assert threshold == 1 or Fraction(WORD - threshold + 1, threshold - 1) > upper


def test_a_double_would_have_been_too_low_at_epsilon_one() -> None:
    from math import e

    assert int(2**64 / (1 + e)) < flip_threshold(Fraction(1))


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1)])
def test_no_threshold_without_a_positive_epsilon(epsilon: Fraction) -> None:
    with pytest.raises(ValueError, match="above 0"):
        flip_threshold(epsilon)


def test_exp_of_zero_is_exact_and_of_less_is_refused() -> None:
    assert exp_bounds(Fraction(0)) == (Fraction(1), Fraction(1))
    with pytest.raises(ValueError, match="at least 0"):
        exp_bounds(Fraction(-1))
