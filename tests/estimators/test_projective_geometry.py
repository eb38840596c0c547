"""Projective geometry response: its choice of a geometry, its decoding and its scale."""

from __future__ import annotations

import math
import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from estimators import Metric
from estimators.finite_fields import prime_power
from estimators.mechanisms import ProjectiveGeometryResponse, SubsetSelection
from estimators.mechanisms.projective_geometry_response import LARGEST_SHARE, best_geometry
from estimators.randomness import SeededBits
from tests.estimators.cases import MANY_LEVELS, exact

EPSILONS = [exact(epsilon) for epsilon in MANY_LEVELS]


def variance_over_best_subset(epsilon: Fraction, categories: int) -> float:
    """Return the variance of a report at f = 1/k over that of subset selection."""
    one = ProjectiveGeometryResponse([epsilon], categories=categories)
    other = SubsetSelection([epsilon], categories=categories)
    return float(one.facts.variances[0] / other.facts.variances[0])


@pytest.mark.parametrize("categories", [2, 3, 4, 7, 10, 100, 1000, 65536, 10**6])
def test_every_category_has_a_hyperplane_and_the_statistic_stays_linear(categories: int) -> None:
    for epsilon in EPSILONS:
        geometry = best_geometry(epsilon, categories)
        assert categories <= geometry.points <= LARGEST_SHARE * categories
        assert geometry.coordinates == 2 or prime_power(geometry.order)


@pytest.mark.parametrize("categories", [2, 10, 1000, 10**6])
def test_it_is_randomized_response_where_the_largest_ratio_asks_for_single_points(
    categories: int,
) -> None:
    for epsilon in (Fraction(45), Fraction(64)):
        geometry = best_geometry(epsilon, categories)
        assert (geometry.points, geometry.size, geometry.shared) == (categories, 1, 0)


@pytest.mark.parametrize("categories", [10, 50, 300])
def test_no_other_geometry_of_the_size_is_much_better(categories: int) -> None:
    """All prime powers that fit, in floating point: the two that are looked at come within 2%."""
    for epsilon in map(exact, (0.0001, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0)):
        found = []
        for order in range(2, LARGEST_SHARE * categories):
            for coordinates in range(3, 12):
                points = (order**coordinates - 1) // (order - 1)
                if categories <= points <= LARGEST_SHARE * categories and prime_power(order):
                    found.append(rare_variance(float(epsilon), order, coordinates, categories))
        chosen = best_geometry(epsilon, categories)
        own = rare_variance(float(epsilon), chosen.order, chosen.coordinates, categories)
        assert own <= 1.02 * min(found)


def rare_variance(epsilon: float, order: int, coordinates: int, categories: int) -> float:
    e = math.exp(epsilon)
    points, size, shared = (
        sum(order**i for i in range(terms))
        for terms in (coordinates, coordinates - 1, coordinates - 2)
    )
    p = size * e / (size * e + points - size)
    q = (shared * e + size - shared) / (size * e + points - size)
    chance = q + (p - q) / categories
    return float(chance * (1 - chance) / (p - q) ** 2)


@pytest.mark.parametrize("epsilon", [0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0])
def test_it_is_as_good_as_subset_selection_but_for_the_rounding_of_the_order(
    epsilon: float,
) -> None:
    """By (1 + r)^2 / 4r, r = (d - 1) / e^epsilon; that is at most 3% at these levels."""
    categories = 65536
    order = best_geometry(exact(epsilon), categories).order
    ratio = (order - 1) / math.exp(epsilon)
    rounding = (1 + ratio) ** 2 / (4 * ratio)
    found = variance_over_best_subset(exact(epsilon), categories)
    assert found == pytest.approx(rounding, rel=0.002)
    assert 0.999 < found < 1.03


@pytest.mark.parametrize("categories", [2, 3, 10, 57, 400])
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
    from estimators import ReportError

    metric = Metric(
        name="m",
        kind="frequency",
        mechanism="projective_geometry_response",
        categories=10,
        levels=[0.0001, 4.0],
    )
    metric.randomizer.check(b"\x00", b"\x0e")
    with pytest.raises(ReportError, match="report 10: expected 0 to 9 at its level"):
        metric.randomizer.check(b"\x00\x01", b"\x0e\x0a")


@pytest.mark.slow
def test_a_million_categories_are_decoded_in_seconds() -> None:
    metric = Metric(
        name="m",
        kind="frequency",
        mechanism="projective_geometry_response",
        categories=10**6,
        levels=[0.5, 1, 2, 4, 8],
    )
    values = np.repeat([17, 999_999], [60_000, 40_000])
    level = np.tile(np.arange(5), 20_000).astype(np.uint8)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(1)))
    table = statistic.reshape(5, -1)
    mechanism = metric.randomizer
    assert isinstance(mechanism, ProjectiveGeometryResponse)
    for one in range(5):
        alone = np.where(np.arange(5)[:, None] == one, table, 0)
        tracemalloc.start()
        start = time.perf_counter()
        support = mechanism.support(alone)
        seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        geometry = mechanism.geometries[one]
        for category in (0, 17, 4711, 999_999):
            plane = (geometry.members + category) % geometry.points
            assert support[one, category] == table[one, 1 + plane].sum()
        assert seconds < 10
        assert peak < 25 * 8 * 10**6
    estimate = metric.estimate(statistic, bound="normal")
    assert isinstance(estimate.value, np.ndarray)
    assert np.argsort(estimate.value)[-2:].tolist() == [999_999, 17]
    assert estimate.lower[17] <= 0.6 <= estimate.upper[17]  # type: ignore[index]
