"""Difference sets: any two translates share as many points; sums over them; and their fields."""

import itertools

import numpy as np
import pytest

from estimators.exact.difference_sets import DifferenceSet
from estimators.exact.finite_fields import FiniteField, finite_field, prime_factors, prime_power
from tests.support.rows import row

SETS = [(2, 3), (2, 7), (3, 3), (3, 5), (4, 3), (4, 4), (5, 3), (7, 4), (8, 3), (9, 3), (13, 3)]
LARGER = [(16, 3), (25, 3), (27, 3), (31, 3), (2, 10), (4, 6)]


def test_any_two_translates_share_as_many_points() -> None:
    """All differences of two members, modulo K: each residue but 0 is found c times."""
    for order, coordinates in SETS + LARGER:
        singer = DifferenceSet(order, coordinates)
        points = (order**coordinates - 1) // (order - 1)
        size = (order ** (coordinates - 1) - 1) // (order - 1)
        shared = (order ** (coordinates - 2) - 1) // (order - 1)
        members = singer.members
        differences = (members[:, None] - members) % points
        found = np.bincount(differences.ravel(), minlength=points).tolist()
        with row(order, coordinates):
            assert (singer.points, singer.size, singer.shared) == (points, size, shared)
            assert members.shape == (size,)
            assert np.all(np.diff(members) > 0)
            assert found == [size] + [shared] * (points - 1)
            inside = singer.members.tolist()
            outside = singer.others_at(np.arange(points - size)).tolist()
            assert inside == members.tolist()
            assert outside == sorted(outside)
            assert sorted(inside + outside) == list(range(points))


def test_with_two_coordinates_a_translate_is_one_point() -> None:
    for residues in (2, 3, 6, 10):
        line, counts = DifferenceSet(residues - 1, 2), np.arange(2 * residues).reshape(2, residues)
        with row(residues):
            assert (line.points, line.size, line.shared) == (residues, 1, 0)
            assert line.members.tolist() == [0]
            assert line.translated_sums(counts, residues).tolist() == counts.tolist()
            assert line.others_at(np.arange(residues - 1)).tolist() == list(range(1, residues))
    with pytest.raises(ValueError, match="order = 6"):
        DifferenceSet(6, 3).members  # noqa: B018


def test_sums_over_translates_are_exact() -> None:
    rng = np.random.default_rng(1)
    for order, coordinates in (*SETS[::3], *LARGER[::3]):
        singer = DifferenceSet(order, coordinates)
        for digits, part in ((1, 1.0), (20, 0.02), (31, 0.5), (50, 1.0)):
            counts = rng.integers(0, 2**digits, (2, singer.points))
            counts[:, rng.random(singer.points) > part] = 0
            for translates in (1, singer.points // 2, singer.points):
                rows = (singer.members + np.arange(translates)[:, None]) % singer.points
                expected = counts[:, rows].sum(axis=2)
                with row(order, coordinates, digits, translates):
                    assert np.array_equal(singer.translated_sums(counts, translates), expected)


def test_large_sums_of_many_points_are_exact() -> None:
    """At a hundred translates, counts next to each other or far apart in size."""
    sizes = ((2, 16, 2**45), (2, 16, 1), (5, 7, 2**20), (251, 3, 2**45))
    for order, coordinates, largest in sizes:
        singer, rng = DifferenceSet(order, coordinates), np.random.default_rng(largest)
        for counts in (
            rng.integers(0, largest, singer.points, endpoint=True),
            np.where(rng.random(singer.points) < 0.001, largest, rng.integers(0, 3, singer.points)),
        ):
            (sums,) = singer.translated_sums(counts[None], singer.points)
            for shift in rng.integers(0, singer.points, 100).tolist():
                with row(order, coordinates, largest, shift):
                    assert sums[shift] == counts[(singer.members + shift) % singer.points].sum()


SMALL = [(2, 2), (2, 3), (3, 2), (2, 4), (5, 2), (3, 3), (7, 2), (2, 6), (11, 2), (5, 3)]
LARGE = [(2, 20), (2, 33), (3, 14), (7, 10), (43, 5), (1999, 3)]


def elements(field: FiniteField) -> list[tuple[int, ...]]:
    return list(itertools.product(range(field.prime), repeat=field.degree))


def test_the_powers_of_x_are_all_elements_but_zero() -> None:
    for prime, degree in SMALL:
        field = finite_field(prime, degree)
        powers, power = [], field.unit
        for _ in range(prime**degree - 1):
            powers.append(power)
            power = field.multiply(power, field.x)
        with row(prime, degree):
            assert power == field.unit
            assert sorted(powers) == elements(field)[1:]
    for prime, degree in LARGE:
        field, order = finite_field(prime, degree), prime**degree - 1
        with row(prime, degree):
            assert field.power(field.x, order) == field.unit
            for factor in prime_factors(order):
                assert field.power(field.x, order // factor) != field.unit


def test_prime_powers_are_found() -> None:
    sieve = np.ones(2000, dtype=bool)
    sieve[:2] = False
    for n in range(2, 45):
        sieve[n * n :: n] = False
    primes = np.flatnonzero(sieve).tolist()
    powers = {p**m: (p, m) for p in primes for m in range(1, 11) if p**m < 2000}
    assert {n: prime_power(n) for n in range(1, 2000) if prime_power(n)} == powers
    for n in range(1, 2000):
        assert prime_factors(n) == [p for p in primes if n % p == 0]
