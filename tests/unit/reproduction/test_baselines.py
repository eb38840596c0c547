"""The closed formula for shuffled reports: its numbers, its condition, an exact audit."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from reproduction.baselines import clones_epsilon


def test_the_numbers_of_the_theorem() -> None:
    for epsilon, reports, delta, expected in (
        (1.0, 100_000, 1e-6, 0.072555),
        (4.0, 1_000_000, 1e-8, 0.226368),
        (0.1, 10_000, 1e-6, 0.016292),
        (8.0, 10_000_000, 1e-6, 0.432145),
    ):
        assert clones_epsilon(epsilon, reports, delta) == pytest.approx(expected, abs=1e-6)


def test_it_applies_up_to_the_theorems_epsilon_and_not_beyond() -> None:
    for reports, delta in ((1000, 1e-6), (100_000, 1e-3), (10**7, 1e-9)):
        limit = math.log(reports / (16 * math.log(2 / delta)))
        assert clones_epsilon(limit * 0.999999, reports, delta) is not None
        assert clones_epsilon(limit * 1.000001, reports, delta) is None
    assert [clones_epsilon(0.01, reports, 1e-6) for reports in (1, 16, 200)] == [None] * 3


@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 2000), (2.0, 5000), (0.3, 3000)])
def test_shuffled_randomized_response_is_as_private_as_it_says(epsilon: float, n: int) -> None:
    """The exact delta of all others holding 0 and one user 0 or 1, from the law of the sum."""
    delta = 1e-4
    shuffled = clones_epsilon(epsilon, n, delta)
    assert shuffled is not None
    flip = 1 / (1 + math.exp(epsilon))
    others = binom.pmf(np.arange(-1, n + 1), n - 1, flip)
    zero = (1 - flip) * others[1:] + flip * others[:-1]
    one = flip * others[1:] + (1 - flip) * others[:-1]
    for first, second in ((zero, one), (one, zero)):
        assert np.maximum(first - math.exp(shuffled) * second, 0).sum() <= delta
