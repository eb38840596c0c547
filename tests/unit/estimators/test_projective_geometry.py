"""Projective geometry response: its choice of a geometry, its decoding and its scale."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from estimators import ReportError, define
from estimators.estimate import Counts
from estimators.exact.difference_sets import DifferenceSet
from estimators.exact.finite_fields import FiniteField, prime_power
from estimators.mechanisms import ProjectiveGeometryResponse, SubsetSelection
from estimators.mechanisms.projective_geometry_response import LARGEST_SHARE, best_geometry
from tests.support.reports.cases import MANY_LEVELS, exact
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


@pytest.mark.parametrize("categories", [10, 50])
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
    metric = define(
        name="m",
        kind="frequency",
        mechanism="projective_geometry_response",
        categories=10,
        levels=[0.0001, 4.0],
    )
    metric.randomizer.check(b"\x00", b"\x0e")
    with pytest.raises(ReportError, match="report 10: expected 0 to 9 at its level"):
        metric.randomizer.check(b"\x00\x01", b"\x0e\x0a")


class Coordinates:
    """A projective space by coordinates in GF(d), where its points are powers of a generator x.

    Elements of GF(d) are 0 and 1 + l for the l-th power of x^K; a point has coordinates in the
    basis 1, x, ..., x^(t-1).
    """

    def __init__(self, order: int, coordinates: int) -> None:
        prime, exponent = prime_power(order) or (0, 0)
        field = FiniteField(prime, exponent * coordinates)
        points = (order**coordinates - 1) // (order - 1)
        powers = [field.power(field.x, points * i) for i in range(order - 1)]
        scalars = np.array([(0,) * field.degree, *powers])
        index = {tuple(scalar): i for i, scalar in enumerate(scalars.tolist())}
        sums = (scalars[:, None] + scalars) % prime
        self.add = np.array([[index[tuple(x)] for x in line] for line in sums.tolist()])
        self.multiply = np.zeros((order, order), dtype=np.int64)
        logs = np.arange(order - 1)
        self.multiply[1:, 1:] = 1 + np.add.outer(logs, logs) % (order - 1)
        basis = [field.matrix(number) for number in range(coordinates)]
        place = {}
        for vector in itertools.product(range(order), repeat=coordinates):
            total = np.zeros(field.degree, dtype=np.int64)
            for scalar, by_power in zip(vector, basis, strict=True):
                total = (total + scalars[scalar] @ by_power) % prime
            place[tuple(total.tolist())] = vector
        self.points = np.array([place[field.power(field.x, i)] for i in range(points)])

    def sums(self, counts: Counts) -> Counts:
        """Return the sum of counts over the hyperplane of each normal vector, (d, ..., d).

        The dynamic programme of Feldman, Nelson, Nguyen and Talwar (2022), one coordinate after
        the other: counts of the points whose first products with the normal sum to z, by the
        first coordinates of the normal, the other ones of the point, and z.
        """
        order, coordinates = len(self.add), self.points.shape[1]
        less = np.argmax(self.add[:, :, None] == np.arange(order), axis=1)  # [a, z]: z - a
        table = np.zeros((order,) * (coordinates + 1), dtype=np.int64)
        table[(*self.points.T, 0)] = counts
        for axis in range(coordinates):
            by_point = np.moveaxis(table, axis, 0)
            by_normal = np.zeros_like(by_point)
            for normal, point in np.ndindex(order, order):
                by_normal[normal] += by_point[point][..., less[self.multiply[normal, point]]]
            table = np.moveaxis(by_normal, 0, axis)
        sums: Counts = table[..., 0]
        return sums

    def incidence(self) -> Counts:
        """Return which points lie on the hyperplanes that have the points as normals, (K, K)."""
        total = np.zeros((len(self.points), len(self.points)), dtype=np.int64)
        for own in self.points.T:
            total = self.add[total, self.multiply[own[:, None], own]]
        found: Counts = (total == 0).astype(np.int64)
        return found


@pytest.mark.parametrize(("order", "coordinates"), [(2, 5), (3, 4), (4, 3), (9, 3)])
def test_the_decoder_agrees_with_the_dynamic_programme_of_the_paper(
    order: int, coordinates: int
) -> None:
    space, singer = Coordinates(order, coordinates), DifferenceSet(order, coordinates)
    counts = np.random.default_rng(order).integers(0, 10**9, singer.points)
    programme = space.sums(counts)
    normal_of = {line.tobytes(): i for i, line in enumerate(space.incidence())}
    assert len(normal_of) == singer.points
    for translate, found in enumerate(singer.translated_sums(counts[None], singer.points)[0]):
        inside = np.zeros(singer.points, dtype=np.int64)
        inside[(singer.members + translate) % singer.points] = 1
        normal = space.points[normal_of[inside.tobytes()]]
        assert programme[tuple(normal)] == found
