"""The bases of mechanisms by their outputs: members of a value's set, supports, points, symbols."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.errors import ReportError
from estimators.estimate import AnyIntegers, Array, Bools, Counts, Floats, Integers
from estimators.exact.difference_sets import DifferenceSet
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_below
from estimators.exact.tallies import NUMBERS_COUNTED_AT_A_TIME
from estimators.exact.thresholds import miss_threshold, output_chances
from estimators.mechanisms.mechanism import Epsilons, Levels, Mechanism, Reports, refuse_first
from estimators.shuffling.set_laws import SetLaw

DENSE_TABLE_FACTOR = 2
"""From this many reports for each cell on, np.bincount is faster than adding one by one."""


class OutputSets(Mechanism):
    """A mechanism that reports an output from a set that belongs to the value, or another output.

    `misses`: T, per level: the output is outside the set if a uniform 64-bit word is below T. See
    :func:`estimators.exact.thresholds.miss_threshold`; `chances`: the exact probabilities of each
    output in the set, and of each other output, per level.
    """

    misses: list[int]
    chances: list[tuple[Fraction, Fraction]]

    def _set_misses(
        self, epsilons: Epsilons, set_sizes: Sequence[int], complement_sizes: Sequence[int]
    ) -> None:
        """Set the thresholds, given the numbers of outputs in and outside a set of each level."""
        self._outputs = list(zip(set_sizes, complement_sizes, strict=True))
        levels = [*zip(epsilons, set_sizes, complement_sizes, strict=True)]
        self.misses = [miss_threshold(*level) for level in levels]
        self.chances = [output_chances(*level) for level in levels]
        self._thresholds = np.array(self.misses, dtype=np.uint64)

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the exact ratio of the probabilities of an output in the set and one outside.

        It is (2^64 - T) b / (T a) for a outputs in the set and b outside.
        """
        inside, outside = self.chances[level]
        return inside / outside

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of reports for the set sizes of a level."""
        (set_size, complement_size), (p, q) = self._outputs[level], self.chances[level]
        inside, overlap = Fraction(set_size, set_size + complement_size), self._least_overlap(level)
        is_sign = self.columns == 1 + 2  # the number of reports, and two symbols
        return (SetLaw(p / q, inside, overlap, is_sign=is_sign),)

    def _least_overlap(self, level: int) -> Fraction:
        """Return the least share of all outputs that the sets of two values have in common."""
        return Fraction(0)


class SupportReports(Mechanism):
    """A frequency mechanism whose reports are likeliest for the categories that they support."""

    kinds = frozenset({"frequency"})

    @abstractmethod
    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which `reports`, n rows of one level, support a category, shape (n,).

        `level`: the index of the level; `category`: an index, or the 64-bit key of a string.
        """

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return ln of the privacy ratio for reports that support the category, 0 for others."""
        return np.where(self.supports(reports, level, value), self.log_ratio(level), 0.0)


class PointResponses(OutputSets):
    """A mechanism that reports a point on, or less likely off, the hyperplane of the value's point.

    If a uniform 64-bit word is below T, the reported point is uniform off the hyperplane, otherwise
    uniform on it. Uniform integers are drawn by rejection.
    """

    def _set_spaces(self, epsilons: Epsilons, spaces: Sequence[DifferenceSet]) -> None:
        """Set the thresholds of `spaces`, one for each of the `epsilons`."""
        self._spaces = list(spaces)
        self._sizes = np.array([space.size for space in spaces], dtype=np.int64)
        self._points = np.array([space.points for space in spaces], dtype=np.int64)
        self._set_misses(epsilons, self._sizes.tolist(), (self._points - self._sizes).tolist())

    def _least_overlap(self, level: int) -> Fraction:
        return Fraction(self._spaces[level].shared, self._spaces[level].points)

    def _respond(self, centre: Integers, part: Integers, bits: Bits) -> Integers:
        """Return a reported point for each value.

        `centre`: the value's point; `part`: the index of the space that has it.
        """
        points, sizes = self._points[part], self._sizes[part]
        missed = bernoulli(bits, self._thresholds, part)
        bound = np.where(missed, points - sizes, sizes).astype(np.uint64)
        rank = uniform_below(bits, bound).astype(np.int64)
        point = np.empty_like(rank)
        for used in np.unique(part).tolist():
            space, of_part = self._spaces[used], part == used
            point[of_part & ~missed] = space.members[rank[of_part & ~missed]]
            point[of_part & missed] = space.others_at(rank[of_part & missed])
        return (point + centre) % points


class ReportedSymbols(Mechanism):
    """A mechanism whose report is one of the symbols 0 to K - 1; K depends on the level.

    A report has the fewest of 1, 2 or 4 bytes that suffice for all levels' symbols. Statistic of a
    level: the number of reports and the number for each symbol; cells beyond the K of a level stay
    zero.
    """

    rows_are_alike = True

    def _count_symbols(self, symbols: Sequence[int]) -> None:
        """Set the type of reports and the columns of the statistic, given each level's K."""
        self.columns = 1 + max(symbols)
        self.dtype = index_dtype(max(symbols))
        self._symbols: Array = np.array(symbols, dtype=np.int64)
        self._largest = (self._symbols - 1).astype(self.dtype)
        self._least_largest = self._largest.min()

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report that is not a symbol of its level."""
        reports = np.frombuffer(values, dtype=self.dtype)
        if reports.max(initial=0) <= self._least_largest:
            return
        largest = self._largest[np.frombuffer(levels, dtype=np.uint8)]
        refuse_first(
            reports > largest,
            lambda i: f"report {reports[i]}: expected 0 to {largest[i]} at its level",
        )

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, reports of symbol 0, 1, ...)."""
        count_symbols(table, level, reports)

    def find_error(self, table: Counts) -> str | None:
        """Return why no reports can give this table; None if some can."""
        if table.min() < 0:
            return "a negative number of reports"
        if (table[:, 1:].sum(axis=1) != table[:, 0]).any():
            return "another number of reports than over all symbols"
        return None


def count_symbols(table: Counts, level: AnyIntegers, symbols: AnyIntegers) -> None:
    """Add reported symbols to a table with columns (reports, reports of symbol 0, 1, ...).

    `table`, shape (levels, 1 + symbols): changed in place; `level`, `symbols`, shape (n,): the
    index of each report's level, and its symbol.
    """
    levels, symbol_count = table.shape[0], table.shape[1] - 1
    size = levels * symbol_count
    if symbols.size * DENSE_TABLE_FACTOR < size:
        np.add.at(table[:, 0], level, 1)
        np.add.at(table, (level, symbols.astype(np.intp) + 1), 1)
        return
    narrow = np.uint16 if size < 2**16 else np.uint32 if size < 2**32 else np.uint64
    counts, step = np.zeros(size, dtype=np.int64), max(NUMBERS_COUNTED_AT_A_TIME, size)
    for start in range(0, symbols.size, step):
        chunk = slice(start, start + step)
        cells = np.multiply(level[chunk], symbol_count, dtype=narrow, casting="unsafe")
        np.add(cells, symbols[chunk], out=cells, casting="unsafe")
        counts += np.bincount(cells, minlength=size)
    table[:, 0] += counts.reshape(levels, symbol_count).sum(axis=1)
    table[:, 1:] += counts.reshape(levels, symbol_count)


def check_symbols(values: bytes, dtype: np.dtype[np.integer[Any]], symbols: int) -> None:
    """Raise ReportError for a report that is none of the symbols 0 to `symbols` - 1.

    `values`: the reports, of type `dtype`. The error has the reason ``bad_value``.
    """
    reports = np.frombuffer(values, dtype=dtype)
    if reports.size and reports.max() >= symbols:
        raise ReportError("bad_value", f"report {reports.max()}: expected 0 to {symbols - 1}")


def index_dtype(symbols: int) -> np.dtype[np.integer[Any]]:
    """Return the smallest unsigned little-endian integer for indices below `symbols`.

    Raises ValueError if it needs more than four bytes.
    """
    if symbols > 2**32:
        raise ValueError(f"{symbols} categories: expected at most 2^32")
    return np.min_scalar_type(symbols - 1).newbyteorder("<")
