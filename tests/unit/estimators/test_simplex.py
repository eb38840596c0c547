"""The projection onto the simplex is the nearest distribution, by its optimality conditions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators import simplex

vectors = st.lists(st.floats(-3, 3), min_size=1, max_size=30).map(np.array)


@given(vectors)
def test_no_distribution_is_nearer(values: np.ndarray) -> None:
    """A point of a convex set is nearest to x iff (x - point)(y - point) <= 0 at every corner y."""
    projected = simplex.project(values)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(1, abs=1e-12)
    residual = values - projected
    assert residual.max() - residual @ projected <= 1e-12
    assert np.allclose(simplex.project(projected), projected, atol=1e-14)


def test_rows_are_projected_one_by_one_and_what_is_no_histogram_is_refused() -> None:
    rows = np.random.default_rng(1).normal(size=(4, 3, 7))
    assert np.array_equal(simplex.project(rows)[2, 1], simplex.project(rows[2, 1]))
    wrong: list[Any] = [[], 0.5, [0.5, np.nan], [np.inf, 0.0]]
    for values in wrong:
        with pytest.raises(ValueError, match="values"):
            simplex.project(values)
