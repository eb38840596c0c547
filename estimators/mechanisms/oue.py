"""Optimized unary encoding for frequencies: one bit a category, with fewer flips of zeros."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Bools
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_bytes
from estimators.exact.thresholds import WORD, flip_threshold
from estimators.mechanisms.mechanism import Epsilons, Levels
from estimators.mechanisms.shared.packed import PackedBits
from estimators.mechanisms.shared.signs import ReportedSigns
from estimators.shuffling.set_laws import SetLaw


class Oue(PackedBits):
    """Optimized unary encoding: a report has one random bit for each category.

    The bit of the user's category is 1 with probability 1/2, others with 1 / (e^epsilon + 1).

    A report is k bits, packed eight to a byte, the first category in the lowest bit, the last byte
    padded with zeros. Statistic of a level: the number of reports and the number of ones of each
    category. Source: Wang, Blocki, Li and Jha (2017), section 4.2 (OUE).

    Privacy is theorem 1 of docs/proofs/privacy.md. A rare category has variance 4 e^epsilon /
    (e^epsilon - 1)^2 a report, the least of all unary encodings; a category that all users hold has
    at least 1, so RAPPOR is better at large epsilons for few large categories.

    Parameters
    ----------
    categories : int
        k, at least 2.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Oue([Fraction(8)], categories=10)
    >>> reports = mechanism.randomize(np.full(6, 3), np.zeros(6, dtype=int), SeededBits(1))
    >>> reports[:, 0].tolist()  # 8: category 3 alone
    [8, 0, 8, 8, 0, 8]
    """

    name = "oue"
    memoizable = True

    def __init__(self, epsilons: Epsilons, *, categories: int) -> None:
        self.flips = [flip_threshold(epsilon) for epsilon in epsilons]
        """T, per level."""
        q = [Fraction(flips, WORD) for flips in self.flips]
        super().__init__(epsilons, categories, ReportedSigns([Fraction(1, 2)] * len(q), q))
        self._thresholds = np.array(self.flips, dtype=np.uint64)

    def _bits(self, values: NDArray[Any], level: Levels, bits: Bits) -> Bools:
        ones = bernoulli(bits, self._thresholds, level, self.categories)
        ones[np.arange(len(ones)), values] = uniform_bytes(bits, len(ones)) < 128
        return ones

    def privacy_ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) / T, exactly: two categories differ in two bits."""
        return Fraction(WORD - self.flips[level], self.flips[level])

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of a category's bit, for the privacy of crowds; bits are independent."""
        inside = Fraction(self.flips[level], WORD)
        return (SetLaw(self.privacy_ratio(level), inside, inside**2),)
