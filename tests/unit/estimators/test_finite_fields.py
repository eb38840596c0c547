"""Finite fields: their axioms, and that x generates them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from estimators.exact.finite_fields import FiniteField, prime_factors, prime_power
from tests.support.rows import row

SMALL = [(2, 2), (2, 3), (3, 2), (2, 4), (5, 2), (3, 3), (7, 2), (2, 6), (11, 2), (5, 3)]
LARGE = [(2, 20), (2, 33), (3, 14), (7, 10), (43, 5), (1999, 3)]


def elements(field: FiniteField) -> list[tuple[int, ...]]:
    return list(itertools.product(range(field.prime), repeat=field.degree))


def test_the_powers_of_x_are_all_elements_but_zero() -> None:
    for prime, degree in SMALL:
        field = FiniteField(prime, degree)
        powers, power = [], field.one
        for _ in range(field.order - 1):
            powers.append(power)
            power = field.multiply(power, field.x)
        with row(prime, degree):
            assert power == field.one
            assert sorted(powers) == elements(field)[1:]
    for prime, degree in LARGE:
        field, order = FiniteField(prime, degree), prime**degree - 1
        with row(prime, degree):
            assert field.power(field.x, order) == field.one
            for factor in prime_factors(order):
                assert field.power(field.x, order // factor) != field.one


@pytest.mark.parametrize(("prime", "degree"), [(2, 3), (3, 2), (5, 2)])
def test_products_are_those_of_a_field(prime: int, degree: int) -> None:
    field = FiniteField(prime, degree)
    all_elements = elements(field)
    zero = all_elements[0]
    product = {(a, b): field.multiply(a, b) for a, b in itertools.product(all_elements, repeat=2)}

    def plus(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        return tuple((i + j) % prime for i, j in zip(a, b, strict=True))

    for a in all_elements[1:]:
        assert product[a, field.power(a, field.order - 2)] == field.one
        assert {product[a, b] for b in all_elements} == set(all_elements)
    for a, b, c in itertools.product(all_elements, repeat=3):
        assert product[product[a, b], c] == product[a, product[b, c]]
        assert product[a, plus(b, c)] == plus(product[a, b], product[a, c])
    for a, b in itertools.product(all_elements, repeat=2):
        assert product[a, b] == product[b, a]
        assert (product[a, b] == zero) == (zero in (a, b))


def test_an_orbit_is_one_power_after_the_other() -> None:
    for prime, degree in ((2, 6), (3, 4), (7, 2), (43, 5)):
        field = FiniteField(prime, degree)
        orbit = field.orbit(np.array(field.power(field.x, 5)), field.matrix(3), 20).tolist()
        with row(prime, degree):
            assert [tuple(one) for one in orbit] == [
                field.power(field.x, 5 + 3 * i) for i in range(20)
            ]


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
