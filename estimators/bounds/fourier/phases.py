"""The factors exp(i tau y) of a Fourier integral, at nodes that are whole multiples of one step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Floats, Integers

MAX_DIGIT_BITS = 4
"""The most bits of a digit of a multiple: a table has the factors of all values of the digit."""
NUMBERS_PER_BLOCK = 2**14
"""The most numbers of a block: larger arrays are new pages of memory each time, which take most of
the time."""
STEPS_PER_NODE = 4
"""The distance of the first two nodes, in steps."""

# Once an array of 4 MB has been freed, glibc keeps the memory of smaller arrays. Before, it gives
# memory back to the system after each block, so that each page is new again: a third of the time.
np.empty(2**19)


@dataclasses.dataclass(frozen=True)
class Phases:
    """Nodes tau = m h: the step h, and the multiples m, ascending from 0."""

    step: float
    multiples: Integers

    @classmethod
    def near_nodes(cls, at: Floats) -> Phases:
        """Return nodes within half a step of the numbers `at`, of which the first is 0."""
        step = float(at[1]) / STEPS_PER_NODE
        return cls(step, np.unique(np.rint(at / step).astype(np.int64)))

    @property
    def nodes(self) -> Floats:
        """The nodes tau, shape (nodes,)."""
        return self.multiples.astype(np.float64) * self.step

    def scaled(self, factor: float) -> Phases:
        """Return the nodes times a factor."""
        return Phases(self.step * factor, self.multiples)

    def factors_in_blocks(
        self, y: Floats, weight: Floats | float = 1.0
    ) -> Iterator[tuple[slice, NDArray[np.complex128]]]:
        """Yield weight exp(i tau y) for some nodes at a time, with the slice of these nodes.

        Each array has the shape (*y.shape, nodes of the slice); `weight` broadcasts with `y`.

        >>> phases = Phases(0.5, np.array([0, 1, 300]))
        >>> ((part, factors),) = phases.factors_in_blocks(np.array([0.1]))
        >>> factors.round(6).ravel()
        array([ 1.      +0.j      ,  0.99875 +0.049979j, -0.759688+0.650288j])
        """
        # products of tables are several times faster than exponentials
        bits = max(1, int(self.multiples[-1]).bit_length())
        digit_bits = math.ceil(bits / math.ceil(bits / MAX_DIGIT_BITS))
        tables = []
        for first in range(0, bits, digit_bits):
            factor = np.exp(1j * (self.step * 2.0**first * y))[..., None]
            table = np.empty((*y.shape, 1 << digit_bits), np.complex128)
            table[..., 0] = 1.0 if first else weight
            for bit in range(digit_bits):
                np.multiply(table[..., : 1 << bit], factor, out=table[..., 1 << bit : 2 << bit])
                factor = factor**2
            tables.append((table, (self.multiples >> first) & ((1 << digit_bits) - 1)))
        size = max(1, NUMBERS_PER_BLOCK // y.size)
        for begin in range(0, self.multiples.size, size):
            part = slice(begin, begin + size)
            factors = tables[0][0].take(tables[0][1][part], axis=-1)
            for table, digits in tables[1:]:
                factors *= table.take(digits[part], axis=-1)
            yield part, factors
