"""Difference sets: that their translates are the hyperplanes, and that sums over them are exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.exact.difference_sets import DifferenceSet

SETS = [(2, 3), (2, 7), (3, 3), (3, 5), (4, 3), (4, 4), (5, 3), (7, 4), (8, 3), (9, 3), (13, 3)]
LARGER = [(16, 3), (25, 3), (27, 3), (31, 3), (2, 10), (4, 6)]
PRIMES = [(2, 5), (3, 4), (5, 3), (7, 3), (11, 3), (5, 4)]


@pytest.mark.parametrize(("order", "coordinates"), SETS + LARGER)
def test_any_two_translates_share_as_many_points(order: int, coordinates: int) -> None:
    """All differences of two members, modulo K: each residue but 0 is found c times."""
    singer = DifferenceSet(order, coordinates)
    points = (order**coordinates - 1) // (order - 1)
    size = (order ** (coordinates - 1) - 1) // (order - 1)
    shared = (order ** (coordinates - 2) - 1) // (order - 1)
    assert (singer.points, singer.size, singer.shared) == (points, size, shared)
    members = singer.members
    assert members.shape == (size,)
    assert np.all(np.diff(members) > 0)
    differences = (members[:, None] - members) % points
    assert np.bincount(differences.ravel(), minlength=points).tolist() == [size] + [shared] * (
        points - 1
    )


@pytest.mark.parametrize(("order", "coordinates"), PRIMES)
def test_translates_are_the_hyperplanes_of_the_projective_space(
    order: int, coordinates: int
) -> None:
    """By coordinates: point i is x^i; one vector is orthogonal to the points of a translate."""
    from estimators.exact.finite_fields import FiniteField

    singer, field = DifferenceSet(order, coordinates), FiniteField(order, coordinates)
    powers = [field.power(field.x, i) for i in range(singer.points)]
    inverse = [pow(a, -1, order) if a else 0 for a in range(order)]
    canonical = {
        tuple(c * inverse[next(a for a in v if a)] % order for c in v): i
        for i, v in enumerate(powers)
    }
    assert len(canonical) == singer.points
    vectors = np.array(powers)
    hyperplanes = {
        tuple(np.flatnonzero(vectors @ np.array(normal) % order == 0)) for normal in canonical
    }
    translates = {
        tuple(np.sort((singer.members + shift) % singer.points)) for shift in range(singer.points)
    }
    assert translates == hyperplanes


@pytest.mark.parametrize("residues", [2, 3, 6, 10])
def test_with_two_coordinates_a_translate_is_one_point(residues: int) -> None:
    line = DifferenceSet(residues - 1, 2)
    assert (line.points, line.size, line.shared) == (residues, 1, 0)
    assert line.members.tolist() == [0]
    counts = np.arange(2 * residues).reshape(2, residues)
    assert line.translated_sums(counts, residues).tolist() == counts.tolist()


def test_an_order_without_a_field_is_refused() -> None:
    with pytest.raises(ValueError, match="order = 6"):
        DifferenceSet(6, 3).members  # noqa: B018


@pytest.mark.parametrize(("order", "coordinates"), [*SETS, (9, 2)])
def test_ranks_go_through_the_set_and_its_complement(order: int, coordinates: int) -> None:
    singer = DifferenceSet(order, coordinates)
    inside = singer.inside(np.arange(singer.size)).tolist()
    outside = singer.outside(np.arange(singer.points - singer.size)).tolist()
    assert inside == singer.members.tolist()
    assert outside == sorted(outside)
    assert sorted(inside + outside) == list(range(singer.points))


@pytest.mark.parametrize(("order", "coordinates"), [*SETS[::3], *LARGER[::3]])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), digits=st.integers(1, 50), part=st.floats(0.01, 1))
def test_sums_over_translates_are_exact(
    order: int, coordinates: int, seed: int, digits: int, part: float
) -> None:
    singer, rng = DifferenceSet(order, coordinates), np.random.default_rng(seed)
    counts = rng.integers(0, 2**digits, (2, singer.points))
    counts[:, rng.random(singer.points) > part] = 0
    translates = max(1, round(part * singer.points))
    rows = (singer.members + np.arange(translates)[:, None]) % singer.points
    expected = counts[:, rows].sum(axis=2)
    assert np.array_equal(singer.translated_sums(counts, translates), expected)


@pytest.mark.parametrize("largest", [1, 2**20, 2**45])
@pytest.mark.parametrize(("order", "coordinates"), [(2, 16), (5, 7), (251, 3)])
def test_large_sums_of_many_points_are_exact(order: int, coordinates: int, largest: int) -> None:
    """At a hundred translates, counts next to each other or far apart in size."""
    singer, rng = DifferenceSet(order, coordinates), np.random.default_rng(largest)
    for counts in (
        np.full(singer.points, largest),
        rng.integers(0, largest, singer.points, endpoint=True),
        np.where(rng.random(singer.points) < 0.001, largest, rng.integers(0, 3, singer.points)),
    ):
        (sums,) = singer.translated_sums(counts[None], singer.points)
        for shift in rng.integers(0, singer.points, 100).tolist():
            assert sums[shift] == counts[(singer.members + shift) % singer.points].sum()
