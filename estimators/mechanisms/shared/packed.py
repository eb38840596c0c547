"""Reports with one bit for each category, packed eight to a byte."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.errors import ReportError
from estimators.estimate import Array, Bools, Counts
from estimators.exact.randomness import Bits
from estimators.exact.tallies import sum_bits
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports, rows_by_level
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.signs import ReportedSigns
from estimators.shuffling.set_laws import SetLaw

COINS_AT_A_TIME = 2**22  # the most coins drawn at a time: they take a few megabytes


class PackedBits(SupportCounts):
    """A report is k bits, the first category in the lowest bit, the last byte padded with zeros."""

    dtype = np.dtype(np.uint8)

    def __init__(self, epsilons: Epsilons, categories: int, signs: ReportedSigns) -> None:
        super().__init__(epsilons, categories, signs)
        self.shape = (self.least_width(categories),)
        used_bits = categories % 8 or 8
        self._valid_last = bytes(range(2**used_bits))

    @classmethod
    def least_width(cls, categories: int) -> int:
        """Return how many bytes k bits take."""
        return -(-categories // 8)

    @abstractmethod
    def _bits(self, values: Array, level: Levels, bits: Bits) -> Bools:
        """Return one row of k private bits for each category index."""

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one row of packed bits for each category index."""
        reports = np.empty((values.size, *self.shape), dtype=np.uint8)
        rows = max(1, COINS_AT_A_TIME // self.categories)
        for start in range(0, values.size, rows):
            chunk = slice(start, start + rows)
            private = self._bits(values[chunk], level[chunk], bits)
            reports[chunk] = np.packbits(private, axis=1, bitorder="little")
        return reports

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report in which a bit after that of the last category is 1."""
        last = values[self.width - 1 :: self.width]
        if strange := last.translate(None, self._valid_last):
            raise ReportError(
                "bad_value",
                f"last byte {strange[0]}: expected zeros after bit {self.categories - 1}",
            )

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return in which reports the category's bit is 1."""
        ones: Bools = (reports[:, category // 8] >> category % 8 & 1).astype(np.bool_)
        return ones

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, ones of category 0, 1, ...)."""
        for index, rows in rows_by_level(level, len(self.epsilons)):
            of_level = reports.view(np.uint8)[rows]
            table[index, 0] += len(of_level)
            table[index, 1:] += sum_bits(of_level, self.categories)


class IndependentBits(PackedBits):
    """A report of independent bits: 1 with probability p for the user's category, q for others."""

    memoizable = True

    def privacy_ratio(self, level: int) -> Fraction:
        """Return p (1 - q) / (q (1 - p)), exactly: two categories differ in two bits."""
        p, q = self.signs.exact[level]
        return p * (1 - q) / (q * (1 - p))

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of a category's bit, for the privacy of crowds."""
        q = self.signs.exact[level][1]
        return (SetLaw(self.privacy_ratio(level), q, q**2),)
