"""Exact bounds of the exponential, and the thresholds that rest on them."""

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
