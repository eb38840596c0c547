"""Projective geometry response: its choice of a geometry, its decoding and its scale."""

from __future__ import annotations

import numpy as np
import pytest

from estimators import ReportError
from estimators.exact.finite_fields import prime_power
from estimators.mechanisms import ProjectiveGeometryResponse, SubsetSelection
from estimators.mechanisms.projective_geometry_response import LARGEST_SHARE, best_geometry
from tests.support.reports.cases import MANY_LEVELS, exact, metric_for
from tests.support.rows import row

EPSILONS = [exact(epsilon) for epsilon in MANY_LEVELS]


def test_every_category_has_a_hyperplane_and_the_statistic_stays_linear() -> None:
    """It is randomized response where the largest ratio asks for single points."""
    for categories in (2, 3, 4, 7, 10, 100, 1000, 65536, 10**6):
        for epsilon in EPSILONS:
            with row(categories, epsilon):
                geometry = best_geometry(epsilon, categories)
                assert categories <= geometry.points <= LARGEST_SHARE * categories
                assert geometry.coordinates == 2 or prime_power(geometry.order)
                if epsilon >= 45:
                    assert (geometry.points, geometry.size, geometry.shared) == (categories, 1, 0)


def test_it_is_as_good_as_subset_selection_but_for_the_rounding_of_the_order() -> None:
    """By (1 + r)^2 / 4r, r = (d - 1) / e^epsilon; that is at most 3% at these levels."""
    epsilons = [exact(epsilon) for epsilon in (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0)]
    one = ProjectiveGeometryResponse(epsilons, categories=65536)
    other = SubsetSelection(epsilons, categories=65536)
    orders = np.array([geometry.order for geometry in one.geometries])
    ratio = (orders - 1) / np.exp(np.array(epsilons, dtype=float))
    found = np.array(one.facts.variances) / other.facts.variances
    assert found == pytest.approx((1 + ratio) ** 2 / (4 * ratio), rel=0.002)
    assert np.all((found > 0.999) & (found < 1.03))


@pytest.mark.parametrize("categories", [2, 10, 57])
def test_the_support_is_counted_over_each_hyperplane(categories: int) -> None:
    mechanism = ProjectiveGeometryResponse(EPSILONS, categories=categories)
    rng = np.random.default_rng(categories)
    table = np.zeros((len(EPSILONS), mechanism.columns), dtype=np.int64)
    for level, geometry in enumerate(mechanism.geometries[:-1]):
        counts = rng.integers(0, 1000, geometry.points)
        table[level, 1 : 1 + geometry.points] = counts
        table[level, 0] = counts.sum()
    support = mechanism.support(table)
    for level, geometry in enumerate(mechanism.geometries):
        for category in range(categories):
            plane = (geometry.members + category) % geometry.points
            assert support[level, category] == table[level, 1 + plane].sum()


def test_a_number_that_is_no_point_of_the_level_is_refused() -> None:
    randomizer = metric_for("projective_geometry_response", [0.0001, 4.0]).randomizer
    randomizer.check(b"\x00", b"\x0e")
    with pytest.raises(ReportError, match="report 10: expected 0 to 9 at its level"):
        randomizer.check(b"\x00\x01", b"\x0e\x0a")
