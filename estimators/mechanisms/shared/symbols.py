"""Checks and counts reports of one symbol each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from estimators.errors import ReportError
from estimators.estimate import AnyIntegers, Array, Counts
from estimators.exact.tallies import NUMBERS_COUNTED_AT_A_TIME
from estimators.mechanisms.mechanism import Levels, Mechanism, Reports, refuse_first

DENSE_TABLE_FACTOR = 2
"""From this many reports for each cell on, np.bincount is faster than adding one by one."""


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
