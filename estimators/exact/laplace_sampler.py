"""Discrete Laplace noise, drawn exactly and many at a time, with look-up tables.

A law on a few integers is drawn by inversion (theorem 3 of docs/proofs/privacy.md). The first 16
bits of a uniform number usually decide, with a table of 2^16 entries. Otherwise the next 48 are
drawn, and after a tie as many more as necessary. The tables have floors of irrational numbers,
enclosed between fractions until both ends have the same floor.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Integers
from estimators.exact.randomness import Bits
from estimators.exact.thresholds import exp_bounds

PREFIX_BITS, WORD_BITS = 16, 64
UNDECIDED_PREFIX = -1
DIGITS_AT_A_TIME = 10
"""How many binary digits are drawn together; 1 in 64 prefixes of 16 bits does not decide them."""

LARGEST_EXPONENT = 40
"""The last cell of a law has all larger values, with a probability of at least about e^-40, so the
64-bit floors of all cumulative probabilities are different."""

LEAST_RATE = Fraction(1, 2**40)
LARGEST_RATE = 40

Floors = Callable[[int], list[int]]
Enclosure = tuple[tuple[int, int], tuple[int, int]]
"""Fractions, as numerators and denominators, between which a number lies."""


class Inversion:
    """Draws from a law on 0, 1, ..., m, exactly.

    `floors`: a function from a number of bits b to floor(2^b c_j) for j = 1 to m, where c_j is the
    probability of a number below j; no c_j may be a multiple of 2^-b.

    >>> from estimators.exact.randomness import SeededBits
    >>> third = Inversion(lambda bits: [2**bits // 3])
    >>> third.draw(SeededBits(1), 9).tolist()
    [1, 1, 1, 0, 0, 1, 0, 1, 0]
    """

    def __init__(self, floors: Floors) -> None:
        self._floors = floors
        self.thresholds = np.array(floors(WORD_BITS), dtype=np.uint64)
        """floor(2^64 c_j)."""
        if (np.diff(self.thresholds) == 0).any():
            raise ValueError("two cumulative probabilities have the same 64 bits")
        starts = np.arange(2**PREFIX_BITS, dtype=np.uint64) << np.uint64(WORD_BITS - PREFIX_BITS)
        self._guide = np.searchsorted(self.thresholds, starts).astype(np.int16)
        self._guide[self.thresholds >> np.uint64(WORD_BITS - PREFIX_BITS)] = UNDECIDED_PREFIX

    def draw(self, bits: Bits, n: int) -> NDArray[np.int16]:
        """Return `n` independent numbers with this law, shape (n,)."""
        prefix = bits.integers(-(-n // 4)).view(np.uint16)[:n]
        drawn = self._guide[prefix]
        undecided = np.flatnonzero(drawn == UNDECIDED_PREFIX)
        if undecided.size:
            word = prefix[undecided].astype(np.uint64) << np.uint64(WORD_BITS - PREFIX_BITS)
            word |= bits.integers(undecided.size) >> np.uint64(PREFIX_BITS)
            numbers = np.searchsorted(self.thresholds, word, side="right")
            for i in np.flatnonzero(self.thresholds[np.maximum(numbers, 1) - 1] == word).tolist():
                numbers[i] -= self._is_below(bits, int(numbers[i]) - 1)
            drawn[undecided] = numbers
        return drawn

    def _is_below(self, bits: Bits, index: int) -> bool:
        """Return whether a number whose first 64 bits are those of c_j is below c_j."""
        precision = WORD_BITS
        while True:
            precision += WORD_BITS
            digits = self._floors(precision)[index] % 2**WORD_BITS
            drawn = int(bits.integers(1)[0])
            if drawn != digits:
                return bool(drawn < digits)


class DiscreteLaplace:
    """Integers z with P(z) proportional to exp(-rate abs(z)), exactly.

    `rate`: 2^-40 to 40. Raises ValueError if the rate is outside this range.

    >>> from estimators.exact.randomness import SeededBits
    >>> DiscreteLaplace(Fraction(1, 100)).draw(SeededBits(1), 5).tolist()
    [68, 109, 142, -27, 26]
    """

    def __init__(self, rate: Fraction) -> None:
        if not LEAST_RATE <= rate <= LARGEST_RATE:
            raise ValueError(f"rate {rate}: expected 2^-40 to {LARGEST_RATE}")
        self.rate = rate
        self.digits = max(0, math.floor(math.log2(1 / rate)))
        """m, the number of digits that are drawn independently."""
        self.sign = Inversion(functools.partial(_signs, rate))
        groups = -(-self.digits // DIGITS_AT_A_TIME)
        ends = [self.digits * i // groups for i in range(groups + 1)] if groups else [0]
        self.lowest = [
            Inversion(functools.partial(_geometric, rate * 2**i, 2 ** (j - i) - 1, unbounded=False))
            for i, j in itertools.pairwise(ends)
        ]
        """The law of each group of the lowest digits, the least significant first."""
        self._starts = ends[:-1]
        top = rate * 2**self.digits
        self.cells = max(1, int(LARGEST_EXPONENT / top))
        """The number of values of the remainder that each have a cell."""
        self.remainder = Inversion(functools.partial(_geometric, top, self.cells, unbounded=True))

    def draw(self, bits: Bits, n: int) -> Integers:
        """Return `n` independent numbers with this law, dtype int64, shape (n,)."""
        magnitude = self.remainder.draw(bits, n).astype(np.int64)
        pending = np.flatnonzero(magnitude == self.cells)
        while pending.size:
            further = self.remainder.draw(bits, pending.size)
            magnitude[pending] += further
            pending = pending[further == self.cells]
        magnitude <<= self.digits
        for start, group in zip(self._starts, self.lowest, strict=True):
            magnitude += group.draw(bits, n).astype(np.int64) << start
        magnitude += 1
        magnitude *= self.sign.draw(bits, n) - 1
        return magnitude


discrete_laplace = functools.lru_cache(maxsize=256)(DiscreteLaplace)
"""The law with a rate, whose tables (half a megabyte) are computed only once."""


def _signs(rate: Fraction, bits: int) -> list[int]:
    """Return floors of P(z < 0) = q / (1 + q) and P(z < 1) = 1 / (1 + q)."""

    def enclosed(precision: int) -> list[Enclosure]:
        (lower, upper), unit = _powers(rate, 1, precision)[1], 1 << precision
        below = (lower, unit + lower), (upper, unit + upper)
        return [below, ((unit, unit + upper), (unit, unit + lower))]

    return _floors(enclosed, bits)


def _geometric(rate: Fraction, cells: int, bits: int, *, unbounded: bool) -> list[int]:
    """Return floors of the probabilities that a geometric number is below 1, 2, ..., `cells`.

    P(k) = (1 - q) q^k with q = exp(-rate). If not `unbounded`, the probabilities are conditional:
    given that the number is at most `cells`.
    """

    def enclosed(precision: int) -> list[Enclosure]:
        unit = 1 << precision
        below = [(unit - high, unit - low) for low, high in _powers(rate, cells + 1, precision)]
        lower, upper = (unit, unit) if unbounded else below[-1]
        return [((low, upper), (high, lower)) for low, high in below[1:-1]]

    return _floors(enclosed, bits)


def _powers(rate: Fraction, last: int, precision: int) -> list[tuple[int, int]]:
    """Return integer bounds on 1, q, ..., q^last in units of 2^-precision, with q = exp(-rate)."""
    unit = 1 << precision
    low, high = exp_bounds(rate, precision)
    lower, upper = int(unit / high), math.ceil(unit / low)
    powers = [(unit, unit)]
    for _ in range(last):
        down, up = powers[-1]
        powers.append((down * lower >> precision, -(-up * upper >> precision)))
    return powers


def _floors(enclosed: Callable[[int], list[Enclosure]], bits: int) -> list[int]:
    precision = 2 * bits
    while True:
        ends = [((a << bits) // b, (c << bits) // d) for (a, b), (c, d) in enclosed(precision)]
        if all(low == high for low, high in ends):
            return [low for low, _ in ends]
        precision *= 2
