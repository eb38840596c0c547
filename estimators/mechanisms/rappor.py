"""Symmetric unary encoding (basic RAPPOR) for frequencies: one bit for each category."""

from __future__ import annotations

import numpy as np

from estimators.estimate import Array, Bools
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli
from estimators.mechanisms.mechanism import Epsilons, Levels
from estimators.mechanisms.shared.frequencies import IndependentBits
from estimators.mechanisms.shared.signs import FlippedSigns


class Rappor(IndependentBits):
    """RAPPOR: one bit for each category, each flipped with probability 1 / (1 + e^(epsilon/2)).

    Before flipping, only the bit of the user's category is 1. A report is k bits, packed eight to a
    byte, the first category in the lowest bit, the last byte padded with zeros. Statistic of a
    level: the number of reports and the number of ones of each category. Source: HIST, section 2
    (k-RAPPOR); Duchi, Jordan and Wainwright (2013).

    The variance of one unbiased bit of a level is f (1 - f) + flip (1 - flip) / a^2; for the
    weights see :class:`estimators.mechanisms.shared.frequencies.SupportCounts`.

    Parameters
    ----------
    categories : int
        k, at least 2.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Rappor([Fraction(8)], categories=10)
    >>> report = mechanism.randomize(np.array([3]), np.array([0]), SeededBits(1))
    >>> report, np.unpackbits(report, bitorder="little")[:10]
    (array([[8, 0]], dtype=uint8), array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0], dtype=uint8))
    """

    name = "rappor"

    def __init__(self, epsilons: Epsilons, *, categories: int) -> None:
        self._flipped = FlippedSigns([epsilon / 2 for epsilon in epsilons])
        super().__init__(epsilons, categories, self._flipped)

    def _bits(self, values: Array, level: Levels, bits: Bits) -> Bools:
        flipped = bernoulli(bits, self._flipped.thresholds, level, self.categories)
        flipped[np.arange(len(flipped)), values] ^= True
        return flipped
