"""Optimized unary encoding for frequencies: one bit for each category, fewer flips of zeros."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from estimators.estimate import Array, Bools
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_bytes
from estimators.mechanisms.mechanism import Epsilons, Levels
from estimators.mechanisms.shared.frequencies import IndependentBits
from estimators.mechanisms.shared.signs import FlippedSigns, ReportedSigns


class Oue(IndependentBits):
    """Optimized unary encoding: a report has one random bit for each category.

    The bit of the user's category is 1 with probability 1/2, and each other bit with probability 1
    / (e^epsilon + 1).

    A report is k bits, packed eight to a byte, the first category in the lowest bit, the last byte
    padded with zeros. Statistic of a level: the number of reports and the number of ones of each
    category. Source: Wang, Blocki, Li and Jha (2017), section 4.2 (OUE).

    Privacy is theorem 1 of docs/proofs/privacy.md. For a rare category, a report has the variance 4
    e^epsilon / (e^epsilon - 1)^2, the least of all unary encodings. For a category that all users
    hold, the variance is at least 1, so RAPPOR is better at large epsilons for few large
    categories.

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

    def __init__(self, epsilons: Epsilons, *, categories: int) -> None:
        flipped = FlippedSigns(epsilons)
        signs = ReportedSigns([Fraction(1, 2)] * len(epsilons), [q for _, q in flipped.exact])
        super().__init__(epsilons, categories, signs)
        self._thresholds = flipped.thresholds

    def _bits(self, values: Array, level: Levels, bits: Bits) -> Bools:
        ones = bernoulli(bits, self._thresholds, level, self.categories)
        ones[np.arange(len(ones)), values] = uniform_bytes(bits, len(ones)) < 128
        return ones
