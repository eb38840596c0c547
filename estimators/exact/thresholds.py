"""Exact integer thresholds for epsilon: rational arithmetic only, no floating point.

A coin of probability ``T / 2**64`` is private only if ``T`` is rounded in the right direction.
Doubles are too coarse for that: near 2**63 they are 2**11 apart (Mironov, "On significance of the
least significant bits for differential privacy", 2012).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

Choice = TypeVar("Choice", int, bool)

WORD = 2**64


@functools.lru_cache(maxsize=4096)
def exp_bounds(x: Fraction, precision: int = 256) -> tuple[Fraction, Fraction]:
    """Return rational bounds on e^x.

    `x`: at least 0; `precision`: binary digits after the point. Returns ``lower <= e^x <= upper``,
    which are equal only for x = 0. With ``y = x / 2**halvings <= 1/2`` the Taylor series of e^y is
    summed in fixed point, every term rounded down for `lower` and up for `upper`; the remainder
    after the term y^m/m! is below twice the next term. Squaring `halvings` times, rounded the same
    way, gives e^x.

    Raises ValueError if x is negative.

    >>> lower, upper = exp_bounds(Fraction(1))
    >>> float(lower), upper - lower < Fraction(1, 2**200)
    (2.718281828459045, True)
    """
    if x < 0:
        raise ValueError(f"x = {x}: expected a number of at least 0")
    if x == 0:
        return Fraction(1), Fraction(1)
    halvings = max(0, (2 * x.numerator // x.denominator).bit_length())
    y = x / 2**halvings
    unit = 1 << precision
    lower = upper = low_term = high_term = unit
    step = 1
    while high_term > 1:
        low_term = low_term * y.numerator // (y.denominator * step)
        high_term = -(-high_term * y.numerator // (y.denominator * step))
        lower, upper = lower + low_term, upper + high_term
        step += 1
    upper += 2 * high_term
    for _ in range(halvings):
        lower, upper = lower * lower >> precision, -(-upper * upper >> precision)
    return Fraction(lower, unit), Fraction(upper, unit)


@functools.lru_cache(maxsize=4096)
def flip_threshold(epsilon: Fraction) -> int:
    """Return T = ceil(2^64 / (1 + e^epsilon)): flip if a uniform 64-bit word is below T.

    `epsilon`: above 0. The result is in [1, 2^63]: that of :func:`miss_threshold` for two outputs.

    >>> hex(flip_threshold(Fraction(1)))
    '0x44d9585152ea1936'
    """
    return miss_threshold(epsilon, 1, 1)


@functools.lru_cache(maxsize=4096)
def miss_threshold(epsilon: Fraction, set_size: int, complement_size: int) -> int:
    """Return T = ceil(2^64 outside / (inside e^epsilon + outside)): a word below T is a miss.

    A report is uniform over the input's set of outputs or, after a miss, uniform over the others.
    The result is in [1, 2^64 - 1]. Theorem 1 of docs/proofs/privacy.md, with W = `set_size` and M -
    W = `complement_size`.

    `epsilon`: above 0; `set_size`, `complement_size`: numbers of outputs, or numbers in the same
    proportion; at least 1. Raises ValueError if epsilon is not above 0, or the probability of an
    output inside is below 2^-40.

    >>> float(Fraction(miss_threshold(Fraction(1), 1, 9), WORD))  # 9 / (e + 9)
    0.768030683315926
    """
    if epsilon <= 0:
        raise ValueError(f"epsilon = {epsilon}: expected a number above 0")
    if complement_size >= set_size << 40:
        raise ValueError(
            f"{complement_size} outputs for {set_size}: expected less than 2^40 for each"
        )
    outside = WORD * complement_size
    return at_exp(epsilon, lambda e: math.ceil(outside / (set_size * e + complement_size)))


def output_chances(
    epsilon: Fraction, set_size: int, complement_size: int
) -> tuple[Fraction, Fraction]:
    """Return the probabilities of each output in the input's set, and of each other output.

    `epsilon`, `set_size`, `complement_size`: as for :func:`miss_threshold`.
    """
    misses = miss_threshold(epsilon, set_size, complement_size)
    return Fraction(WORD - misses, WORD * set_size), Fraction(misses, WORD * complement_size)


def at_exp(x: Fraction, function: Callable[[Fraction], Choice]) -> Choice:
    """Return function(e^x) exactly, for a monotone function with values such as integers.

    The function is evaluated at both ends of an interval around e^x, which is narrowed until they
    agree. It must not jump at e^x itself, which is irrational for a rational x other than 0.

    >>> at_exp(Fraction(4), int)
    54
    """
    precision = 128
    while True:
        low, high = map(function, exp_bounds(x, precision))
        if low == high:
            return low
        precision *= 2
