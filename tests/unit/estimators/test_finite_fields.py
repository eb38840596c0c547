"""Finite fields: their axioms, and that x generates them."""

from __future__ import annotations

import itertools

import numpy as np

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
