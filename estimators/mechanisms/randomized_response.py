"""Randomized response for the mean of a value in [-1, 1]: reports of one bit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds import Law
from estimators.errors import ReportError
from estimators.estimate import Array, Counts, Floats, Indices
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, round_up
from estimators.exact.tallies import tally_signs, tally_signs_by_part
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports, largest_byte
from estimators.mechanisms.shared.means import ScalarMean
from estimators.mechanisms.shared.signs import FlippedSigns, ReportedSigns
from estimators.question import Question
from estimators.shuffling.set_laws import SetLaw
from estimators.weights import LevelFacts

ZEROS_ONES_TO_COLUMNS = np.array([[1, 0], [1, 1]])
"""The matrix that turns (zeros, ones) into (reports, ones)."""


class RandomizedResponse(ScalarMean):
    """Randomized response: a sign, flipped with probability 1 / (1 + e^epsilon).

    A value x in [-1, 1] is first rounded at random to +1, with probability (1 + x) / 2, or to -1.
    Binary data do not change. A report is 1 for the sign +1 and 0 for -1. Statistic of a level: the
    number of reports and the number of ones. Source: HLDP, Algorithm 2; Warner (1965).

    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = RandomizedResponse([Fraction(1)])
    >>> mechanism.randomize(np.ones(8), np.zeros(8, dtype=int), SeededBits(1))
    array([1, 0, 1, 1, 1, 0, 1, 1], dtype=uint8)
    """

    name = "randomized_response"
    memoizable = True
    rows_are_alike = True
    dtype = np.dtype(np.uint8)
    columns = 2

    def __init__(self, epsilons: Epsilons) -> None:
        super().__init__(epsilons)
        self._flipped = FlippedSigns(self.epsilons)
        self.signs: ReportedSigns = self._flipped
        square = self.signs.contrast**2
        self.facts = LevelFacts.of(self.epsilons, 1 / square, square)

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one report, 0 or 1, for each value in [-1, 1]."""
        positive = round_up(bits, (1 + values) / 2)
        return (positive ^ bernoulli(bits, self._flipped.thresholds, level)).astype(np.uint8)

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report other than 0 or 1."""
        if (largest := largest_byte(values)) > 1:
            raise ReportError("bad_value", f"report {largest}: expected 0 or 1")

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, ones)."""
        table += tally_signs(level, len(table), reports) @ ZEROS_ONES_TO_COLUMNS

    def accumulate_slices(
        self, tables: Counts, rows: Indices, sizes: Counts, level: Levels, reports: Reports
    ) -> None:
        """Add batches of reports in place, each to its slice's table; long batches in one call."""
        tallies = tally_signs_by_part(level, tables.shape[1], reports, sizes)
        if tallies is None:
            super().accumulate_slices(tables, rows, sizes, level, reports)
        else:
            np.add.at(tables, rows, tallies @ ZEROS_ONES_TO_COLUMNS)

    def level_means(self, table: Counts) -> Floats:
        """Return the unbiased mean of each level, zero without reports."""
        return self.signs.means(table[:, 0], table[:, 1:])[:, 0]

    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the weighted mean of unbiased signs; see :meth:`ScalarMean.law`."""
        return self.signs.law(counts, shares, question)

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the logarithm of each report's probability under a value in [-1, 1]."""
        flip = self._flipped.flip[level]
        ones = (1 + value) / 2 * (1 - flip) + (1 - value) / 2 * flip
        zeros: Floats = (1 - value) / 2 * (1 - flip) + (1 + value) / 2 * flip
        return np.where(reports == 1, np.log(ones), np.log(zeros))

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that the signs -1 and +1 represent."""
        return self.signs.range()

    def privacy_ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) / T, exactly: the ratio of a report's probabilities for x = 1, -1."""
        return self._flipped.ratio(level)

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of a reported sign, for the privacy of crowds."""
        return (SetLaw(self.privacy_ratio(level), is_sign=True),)
