"""The errors of the frequency mechanisms are those of their theoretical standard deviations.

Root mean square and mean largest error (l_inf) within 5%, five standard errors of as many runs as
that takes: one cell of the grid in 10^6 would fail by chance.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.statistics.errors import DATA, LEVELS, MIXED, NAMES, SIZES, largest_error, measure


def check(name: str, levels: tuple[float, ...], categories: int, data: str) -> None:
    found = measure(name, levels, categories, data)
    assert found.root_mean_square == pytest.approx(1, abs=0.05)
    assert found.largest == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("levels", "categories", "data"), [((1.0,), 17, "Zipf 1.1"), (MIXED, 100, "point mass")]
)
def test_errors_are_as_predicted(
    name: str, levels: tuple[float, ...], categories: int, data: str
) -> None:
    check(name, levels, categories, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_errors_are_as_predicted_on_the_whole_grid(name: str, levels: tuple[float, ...]) -> None:
    for categories in SIZES:
        for data in DATA:
            check(name, levels, categories, data)


def test_the_largest_of_two_opposite_errors_is_one_error() -> None:
    """E abs(Z) = sqrt(2 / pi); of two independent ones 2 / sqrt(pi)."""
    rng = np.random.default_rng(1)
    opposite, _ = largest_error(np.array([[1.0, -1.0], [-1.0, 1.0]]), rng)
    independent, _ = largest_error(np.eye(2), rng)
    assert opposite == pytest.approx((2 / np.pi) ** 0.5, rel=0.02)
    assert independent == pytest.approx(2 / np.pi**0.5, rel=0.02)
