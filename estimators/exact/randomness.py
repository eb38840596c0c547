"""Sources of random bits.

Everything that protects a person uses :class:`SystemBits`, the operating system's generator.
:class:`SeededBits` is reproducible and for tests and simulations only.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_OWN_STREAM = 0x646974686572


class Bits(Protocol):
    """A source of independent uniform bits, as 64-bit words."""

    def integers(self, n: int) -> Words:
        """Return `n` independent uniform 64-bit words, dtype uint64, shape (n,)."""


class SystemBits:
    """The operating system's cryptographic generator (``os.urandom``).

    >>> SystemBits().integers(3).shape
    (3,)
    """

    def integers(self, n: int) -> Words:
        """Return `n` independent uniform 64-bit words, dtype uint64, shape (n,)."""
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)


class SeededBits:
    """A reproducible generator for tests and simulations, never for a person's report.

    Two instances with the same `seed` give the same words, in chunks of any size. They are
    independent of ``numpy.random.default_rng(seed)``, so values and noise may share a seed.

    >>> first, second = SeededBits(7), SeededBits(7)
    >>> [int(x) for x in first.integers(2)] == [int(x) for x in second.integers(2)]
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generator = np.random.Generator(np.random.PCG64([seed, _OWN_STREAM]))

    def integers(self, n: int) -> Words:
        """Return the next `n` words of the sequence, dtype uint64, shape (n,)."""
        return self._generator.integers(0, 2**64, size=n, dtype=np.uint64)
