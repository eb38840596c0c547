"""What is printed claims no more than is known; Python and the dashboard print the same."""

import json
import math
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from estimators import rounding
from tests.support.paths import ROOT


def exact(x: float) -> Fraction:
    """Return the shortest decimal of a float."""
    return Fraction(repr(x))


def test_numbers_are_rounded_as_the_vectors_say() -> None:
    """The dashboard's are put to the same test in a browser (`tests/services/browser`)."""
    vectors = json.loads((ROOT / "tests" / "vectors" / "rounding.json").read_text())
    for name, cases in vectors.items():
        for *given_, expected in cases:
            assert getattr(rounding, name)(*given_) == expected, (name, given_)
    assert rounding.interval((math.nan, 0.0, 1.0)) == ("-", "0.00", "1.00")
    assert rounding.at_most(None) == rounding.down(math.nan, 2) == "-"


@example(lower=17179869184.0, wide=6.103515625e-05, share=1.0, places=None)
@given(
    st.floats(-1e12, 1e12), st.floats(0, 1e12), st.floats(0, 1), st.one_of(st.none(), st.just(3))
)
def test_a_printed_interval_contains_the_one_that_was_computed(
    lower: float, wide: float, share: float, places: int | None
) -> None:
    upper = lower + wide
    value = min(upper, lower + share * wide)
    shown, low, high = rounding.interval((value, lower, upper), places)
    assert Fraction(low) <= exact(lower) <= exact(upper) <= Fraction(high)
    assert Fraction(low) <= Fraction(shown) <= Fraction(high)
    if places is None and wide > 1e-13 and wide > 1e-9 * abs(lower):
        assert Fraction(high) - Fraction(low) <= Fraction(3, 2) * (exact(upper) - exact(lower))


@given(st.floats(1e-300, 1, exclude_max=True), st.floats(1e-9, 1e6))
def test_no_certainty_or_loss_is_larger_than_what_is_printed(beta: float, epsilon: float) -> None:
    assert Fraction(rounding.certainty(beta).rstrip("%")) / 100 <= 1 - exact(beta)
    assert Fraction(rounding.percent(beta)) / 100 >= exact(beta)
    assert exact(epsilon) <= Fraction(rounding.loss(epsilon))
    assert float(rounding.loss(epsilon)) <= 1.001 * epsilon


@given(
    st.sampled_from(["minimum", "maximum"]),
    st.floats(-1e9, 1e9),
    st.floats(1e-6, 1e9),
    st.integers(1, 30),
    st.floats(0, 1),
)
def test_a_statement_about_an_extreme_is_never_stronger_than_its_certificate(
    kind: str, low: float, wide: float, rounds: int, share: float
) -> None:
    high = low + wide
    certificate = low + share * wide
    told = Fraction(rounding.certified(kind, low, high, rounds, certificate))
    weaker = told - exact(certificate) if kind == "minimum" else exact(certificate) - told
    assert 0 <= weaker <= Fraction(high - low) / 2**rounds / 10 or weaker < Fraction(1, 10**14)
