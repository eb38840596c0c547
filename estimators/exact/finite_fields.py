"""Finite fields: polynomials over GF(p) modulo a polynomial for which x is a generator."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from estimators.estimate import Array, Integers

Element = tuple[int, ...]
Matrix = Integers


@dataclasses.dataclass(frozen=True)
class FiniteField:
    """The field of p^n elements: polynomials over GF(p) modulo a polynomial of degree n.

    An element is the tuple of its n coefficients, the constant one first. All elements but zero are
    powers of the element x: see :func:`finite_field`. `prime`: p; `power_of_x`: the element x^n, by
    which every multiplication reduces.

    >>> field = finite_field(3, 2)
    >>> [field.power(field.x, exponent) for exponent in range(4)]
    [(1, 0), (0, 1), (1, 1), (1, 2)]
    """

    prime: int
    power_of_x: Element

    @property
    def degree(self) -> int:
        """n, the number of coefficients of an element."""
        return len(self.power_of_x)

    @property
    def unit(self) -> Element:
        """The element 1."""
        return (1,) + (0,) * (self.degree - 1)

    @property
    def x(self) -> Element:
        """The generator x."""
        return (0, 1) + (0,) * (self.degree - 2)

    def multiply(self, left: Element, right: Element) -> Element:
        """Return the product of two elements."""
        degree, prime = self.degree, self.prime
        product = [0] * (2 * degree - 1)
        for i, a in enumerate(left):
            if a:
                for j, b in enumerate(right):
                    product[i + j] += a * b
        terms = [(j, c) for j, c in enumerate(self.power_of_x) if c]
        for i in range(2 * degree - 2, degree - 1, -1):
            a = product[i] % prime
            if a:
                for j, c in terms:
                    product[i - degree + j] += a * c
        return tuple(c % prime for c in product[:degree])

    def power(self, element: Element, exponent: int) -> Element:
        """Return an element to the power of `exponent`, which is at least 0."""
        power = self.unit
        for bit in f"{exponent:b}":
            power = self.multiply(power, power)
            if bit == "1":
                power = self.multiply(power, element)
        return power

    def has_order(self, order: int, factors: Sequence[int]) -> bool:
        """Return whether x has the order `order`, whose prime factors are `factors`."""
        smaller = (self.power(self.x, order // factor) for factor in factors)
        return self.power(self.x, order) == self.unit and self.unit not in smaller

    def matrix(self, exponent: int) -> Matrix:
        """Return the matrix that multiplies row vectors of coefficients by x^exponent."""
        rows = [self.power(self.x, exponent)]
        for _ in range(1, self.degree):
            rows.append(self.multiply(rows[-1], self.x))
        return np.array(rows, dtype=np.int64)

    def orbit(self, start: Array, step: Matrix, count: int) -> Matrix:
        """Return the products of `start` with the powers 0, 1, ... of `step`, as `count` rows.

        `start`, shape (degree,): an element, as coefficients; `step`, shape (degree, degree): the
        matrix of the element to multiply by; `count`: at least 1. Rows are doubled in each pass.

        >>> field = finite_field(3, 2)
        >>> field.orbit(np.array(field.unit), field.matrix(1), 4).tolist()
        [[1, 0], [0, 1], [1, 1], [1, 2]]
        """
        rows = np.asarray(start, dtype=np.int64)[None]
        while len(rows) < count:
            rows = np.concatenate([rows, rows @ step % self.prime])
            step = step @ step % self.prime
        return rows[:count]


def prime_factors(n: int) -> list[int]:
    """Return the primes that divide n, each once, ascending.

    >>> prime_factors(360)
    [2, 3, 5]
    """
    factors, divisor = [], 2
    while divisor * divisor <= n:
        if n % divisor == 0:
            factors.append(divisor)
            while n % divisor == 0:
                n //= divisor
        divisor += 1
    return [*factors, n] if n > 1 else factors


def prime_power(n: int) -> tuple[int, int] | None:
    """Return p and m if n = p^m with a prime p and m at least 1; else None.

    >>> [prime_power(n) for n in (1, 2, 6, 49)]
    [None, (2, 1), None, (7, 2)]
    """
    factors = prime_factors(n)
    if len(factors) != 1:
        return None
    exponent = 1
    while factors[0] ** exponent < n:
        exponent += 1
    return factors[0], exponent


@functools.lru_cache(maxsize=256)
def finite_field(prime: int, degree: int) -> FiniteField:
    """Return the field of p^n elements whose x^n is the first for which x is a generator.

    x is a generator if its order is p^n - 1. The constant coefficient of x^n is chosen first: up to
    a sign it is the norm of x, so it must generate GF(p), and every generator of GF(p) is the norm
    of such an x. Candidates for x^n are then in the order of their other coefficients. `prime`: p;
    `degree`: n, at least 2.

    >>> finite_field(3, 2).power_of_x
    (1, 1)
    """
    order, constant = prime**degree - 1, _primitive_root(prime)
    if degree % 2 == 0:
        constant = prime - constant
    factors = prime_factors(order)
    fields = (
        FiniteField(prime, (constant, *(number // prime**i % prime for i in range(degree - 1))))
        for number in itertools.count(1)
    )
    return next(field for field in fields if field.has_order(order, factors))


def _primitive_root(prime: int) -> int:
    factors = prime_factors(prime - 1)
    return next(
        g for g in itertools.count(1) if all(pow(g, (prime - 1) // r, prime) != 1 for r in factors)
    )
