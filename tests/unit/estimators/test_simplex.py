"""The projection onto the simplex is the nearest distribution, by its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators import simplex

vectors = st.lists(st.floats(-3, 3), min_size=1, max_size=30).map(np.array)


@given(vectors)
def test_it_is_a_distribution(values: np.ndarray) -> None:
    projected = simplex.project(values)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(1, abs=1e-12)


@given(vectors)
def test_no_distribution_is_nearer(values: np.ndarray) -> None:
    """A point of a convex set is nearest to x iff (x - point)(y - point) <= 0 at every corner y."""
    projected = simplex.project(values)
    residual = values - projected
    assert residual.max() - residual @ projected <= 1e-12


@given(vectors)
def test_a_distribution_stays_as_it_is(values: np.ndarray) -> None:
    once = simplex.project(values)
    assert np.allclose(simplex.project(once), once, atol=1e-14)


@given(vectors, st.integers(0, 2**32 - 1))
def test_it_comes_closer_to_every_distribution(values: np.ndarray, seed: int) -> None:
    truth = np.random.default_rng(seed).dirichlet(np.ones(values.size))
    before, after = values - truth, simplex.project(values) - truth
    assert after @ after <= before @ before + 1e-12


def test_rows_are_projected_one_by_one() -> None:
    rows = np.random.default_rng(1).normal(size=(4, 3, 7))
    together = simplex.project(rows)
    assert np.array_equal(together[2, 1], simplex.project(rows[2, 1]))


@pytest.mark.parametrize("values", [[], 0.5, [0.5, np.nan], [np.inf, 0.0]])
def test_what_is_no_histogram_is_refused(values: object) -> None:
    with pytest.raises(ValueError, match="values"):
        simplex.project(values)  # type: ignore[arg-type]
