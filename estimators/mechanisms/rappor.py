"""Symmetric unary encoding (basic RAPPOR) for frequencies: one bit a category."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bounds import FlipNoise, limits
from estimators.errors import ReportError
from estimators.estimate import Counts, Estimate
from estimators.heterogeneity import heterogeneity
from estimators.mechanisms.mechanism import Levels, Mechanism, Reports
from estimators.mechanisms.signs import FlippedSigns
from estimators.question import Question
from estimators.randomness import Bits
from estimators.sampling import bernoulli
from estimators.weights import LevelFacts, level_weights, total_weight

CHUNK = 2**22  # coins drawn at a time: a few megabytes


class Rappor(Mechanism):
    """RAPPOR: the category as one bit of k, each flipped with probability 1 / (1 + e^(epsilon/2)).

    A report is k bits, packed eight to a byte, the first category in the lowest bit, the last byte
    filled up with zeros. Statistic of a level: the number of reports and the ones of each category.
    Source: HIST, section 2 (k-RAPPOR); Duchi, Jordan and Wainwright (2013).

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.
    categories : int
        k, at least 2.

    Notes
    -----
    The variance of one unbiased bit of a level is f (1 - f) + flip (1 - flip) / a^2. The weights
    ``optimal`` take its mean over the categories at f = 1/k, which is its largest mean: they
    minimise the worst-case sum of squared errors. (At f = 0 alone, one report at a large epsilon
    would outweigh all others.) ``paper`` is HLDP's Algorithm 5, tanh^2(epsilon / 2).

    Examples
    --------
    >>> from estimators.randomness import SeededBits
    >>> mechanism = Rappor([Fraction(8)], categories=10)
    >>> report = mechanism.randomize(np.array([3]), np.array([0]), SeededBits(1))
    >>> report, np.unpackbits(report, bitorder="little")[:10]
    (array([[8, 0]], dtype=uint8), array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0], dtype=uint8))
    """

    name = "rappor"
    kinds = frozenset({"frequency"})
    dtype = np.dtype(np.uint8)

    def __init__(self, epsilons: Sequence[Fraction], *, categories: int) -> None:
        super().__init__(epsilons)
        self.categories = categories
        self.shape = (-(-categories // 8),)
        self.columns = 1 + categories
        used_bits = categories % 8 or 8
        self._valid_last = bytes(range(2**used_bits))
        self._signs = FlippedSigns([epsilon / 2 for epsilon in self.epsilons])
        epsilon = np.array([float(e) for e in self.epsilons])
        flip, contrast = self._signs.flip, self._signs.contrast
        self._facts = LevelFacts(
            epsilons=epsilon,
            variances=flip * (1 - flip) / contrast**2 + (1 - 1 / categories) / categories,
            paper=np.tanh(epsilon / 2) ** 2,
        )

    def randomize(self, values: NDArray[Any], level: Levels, bits: Bits) -> Reports:
        """Return one row of packed bits for each category index."""
        reports = np.empty((values.size, *self.shape), dtype=np.uint8)
        rows = max(1, CHUNK // self.categories)
        for start in range(0, values.size, rows):
            chunk = slice(start, start + rows)
            flipped = bernoulli(bits, self._signs.thresholds[level[chunk]], self.categories)
            flipped[np.arange(len(flipped)), values[chunk]] ^= True
            reports[chunk] = np.packbits(flipped, axis=1, bitorder="little")
        return reports

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Refuse a report with a one after its last category."""
        last = values[self.width - 1 :: self.width]
        if strange := last.translate(None, self._valid_last):
            raise ReportError(
                "bad_value",
                f"last byte {strange[0]}: expected zeros after bit {self.categories - 1}",
            )

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, ones of category 0, 1, ...)."""
        rows = max(1, CHUNK // self.categories)
        for start in range(0, len(reports), rows):
            chunk = slice(start, start + rows)
            self._accumulate(table, level[chunk], reports[chunk])

    def _accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        tally = np.bincount(level, minlength=len(self.epsilons))
        table[:, 0] += tally
        ordered = (
            reports[np.argsort(level, kind="stable")] if np.count_nonzero(tally) > 1 else reports
        )
        ones = np.unpackbits(
            ordered.view(np.uint8), axis=1, count=self.categories, bitorder="little"
        )
        start = 0
        for index, n in enumerate(tally.tolist()):
            if n:
                table[index, 1:] += _column_sums(ones[start : start + n])
                start += n

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Estimate the frequency of every category, with bounds that hold for all at once.

        A category's bit, as a sign, has mean a theta with theta = 2 f - 1: the estimate of theta,
        and its interval at beta / k, are those of randomized response.
        """
        counts, ones = table[:, 0], table[:, 1:]
        shares = level_weights(question.weights, counts, self._facts)
        if not counts.any():
            nothing, one = np.zeros(self.categories), np.ones(self.categories)
            return self._answer(question, counts, shares, nothing * np.nan, (nothing, one), 0.0)
        law = self._signs.law(counts, shares, question)
        mean = self._signs.mean(counts, shares, ones)
        log_p = math.log(question.beta / (2 * self.categories))
        noise = FlipNoise(law.counts, law.coefficient, self._signs.flip[counts > 0])
        total = total_weight(question.weights, counts, self._facts)
        lower, upper = limits(law, mean, question, log_p, total, noise)
        bounds = (1 + lower) / 2, (1 + upper) / 2
        effective = 1 / law.worst_variance
        apart = heterogeneity(law, self._signs.means(counts, ones)[counts > 0])
        return self._answer(question, counts, shares, (1 + mean) / 2, bounds, effective, apart)

    def privacy_ratio(self, level: int) -> Fraction:
        """Return ((2^64 - T) / T)^2, exactly: two categories differ in two bits."""
        return self._signs.ratio(level) ** 2


def _column_sums(ones: NDArray[np.uint8]) -> Counts:
    """Sum rows of zeros and ones, in bytes for 255 rows at a time."""
    whole = len(ones) // 255 * 255
    blocks = ones[:whole].reshape(-1, 255, ones.shape[1]).sum(axis=1, dtype=np.uint8)
    sums: Counts = blocks.sum(axis=0, dtype=np.int64)
    sums += ones[whole:].sum(axis=0, dtype=np.uint8)
    return sums
