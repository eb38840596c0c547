"""Reads CSV files: finds the delimiter and the header, and picks columns."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import operator
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from estimators.errors import meant, shortened
from producers.populations.text_files import (
    ENCODINGS,
    SAVE,
    detect_encoding,
    open_bytes,
    table_path,
)

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""In the order in which they are tried, with their names."""
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""A first line that tells Excel the delimiter."""
_LONGEST_CELL = 2**31 - 1
_BLOCK = 500  # rows turned into columns at once: measured, twice as fast as 20,000
MANY_LINES = 10
"""If lines of a longer cell have the delimiters of rows, a quote has swallowed rows of text."""
_NUMBER = re.compile(r"[-+.:/TZ ]*[0-9][-+0-9.:/TZ ]*")
"""A number or a time, which distinguishes rows from text."""
_BREAK = re.compile("\r\n|\r|\n")
_QUOTES = (
    'Write "" for a quote that belongs to such a cell; `tr -d \'"\' < FILE | dither define - ...` '
    "reads the file without quotes"
)


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of a CSV file as text, without spaces at the ends of cells.

    Attributes
    ----------
    delimiter : str
    header : list of str
        The names of all columns.
    columns : dict of str to list of str, a cell for each row
        By the name that was asked for.
    notes : list of str
        How the file was read, for people.
    """

    delimiter: str
    header: list[str]
    columns: dict[str, list[str]]
    notes: list[str]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))


class NoColumnError(ValueError):
    """Raised if a CSV file has no column of a name.

    Parameters
    ----------
    path : Path
    name : str
    header : sequence of str
        The names in the header.
    """

    def __init__(self, path: Path, name: str, header: Sequence[str]) -> None:
        self.path, self.name = path, name
        super().__init__(
            f"{path}: no column {shortened(name)}: {meant(name, header)}. The first line has to be "
            "the header: `tail -n +K FILE | dither define - ...` begins with line K"
        )


def positions(header: Sequence[str], name: str) -> list[int]:
    r"""Return the positions of columns with this name, or else with one that looks the same.

    It may be another Unicode form, or else differ in case or space.

    >>> positions(["x", "e\u0301 "], "\xe9"), positions(["x", "X"], "X")
    ([1], [1])
    """
    for form in (str, _composed, lambda text: _composed(" ".join(text.split())).casefold()):
        found = [place for place, other in enumerate(header) if form(other) == form(name)]
        if found:
            break
    return found


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _place(path: Path, header: Sequence[str], name: str) -> int:
    found = positions(header, name)
    if not found:
        raise NoColumnError(path, name, header)
    if len(found) > 1:
        listed = " and ".join(
            f"{shortened(header[place])} at position {place + 1}" for place in found
        )
        raise ValueError(
            f"{path}: the header has column {shortened(name)} {len(found)} times: {listed}: "
            "expected one; rename the others"
        )
    return found[0]


def read_table(path: str | Path, names: Sequence[str], optional: Sequence[str] = ()) -> Table:
    """Return columns of a CSV file.

    Its encoding is UTF-16 if it begins with its mark, else UTF-8, or Windows-1252 if the bytes are
    not UTF-8. The delimiter is that of a first line ``sep=;``, or the first one with which the
    header has all of the names.

    Parameters
    ----------
    path : path
        A CSV file with a header, also in a zip, in gzip or from a pipe (``-``: standard input).
    names : sequence of str
        They may differ from the file's in case and in spaces.
    optional : sequence of str
        Names of further columns, which the file need not have.

    Raises
    ------
    ValueError
        If the file cannot be unpacked or is not text, a column is missing or there are two, a row
        has another length than the header, or a quote is never closed.
    """
    path = table_path(path)
    with open_bytes(path) as raw:
        encoding, why = detect_encoding(path, raw)
        raw.seek(0)
        text = io.TextIOWrapper(raw, encoding=encoding, newline="")
        told = _SEPARATOR.fullmatch(text.readline())
        rows = _choose_rows(path, text, 1 if told else 0, told[1] if told else DELIMITERS, names)
        header = rows.header
        names = [*dict.fromkeys([*names, *(each for each in optional if positions(header, each))])]
        places = {name: _place(path, header, name) for name in names}
        columns, said = _columns(rows, places)
    note = f"file: {ENCODINGS[encoding]}, separated by "
    note += DELIMITERS.get(rows.delimiter, repr(rows.delimiter)) + f"; {why}" * bool(why)
    differing = [(header[place], name) for name, place in places.items() if header[place] != name]
    notes = ["; ".join([note, *said])]
    notes += [f"column: {shortened(found)} for {shortened(name)}" for found, name in differing]
    return Table(rows.delimiter, header, columns, notes)


class _Rows:
    """The rows of a CSV text, with one delimiter; a quote in a wrong place is a ValueError."""

    def __init__(self, path: Path, text: TextIO, skipped: int, delimiter: str) -> None:
        text.seek(0)
        csv.field_size_limit(_LONGEST_CELL)
        blanks = re.compile(rf'(?<!")" +(?=[{re.escape(delimiter)}\r\n]|$)')  # after a quote
        lines = (
            blanks.sub('"', line) if '" ' in line else line
            for line in itertools.islice(text, skipped, None)
        )
        self._csv = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
        self._text, self._skipped = text, skipped
        self.path, self.delimiter = path, delimiter
        self.long_cells: list[tuple[int, int]] = []
        """The number of lines of each cell with several, and the line in which its row begins."""
        self.header: list[str] = []
        self.header = next((row for [row] in self.blocks(1) if row), [])

    def blocks(self, size: int = _BLOCK) -> Iterator[list[list[str]]]:
        """Yield the next rows, so many at once; an empty line is an empty row."""
        block: list[list[str]] = [[]]
        while block:
            line, block = self._line() + 1, []
            try:
                block.extend(itertools.islice(self._csv, size))
            except csv.Error as error:
                raise self._misquoted(line + sum(map(_count_lines, block)), error) from None
            if self._line() - line >= len(block):
                self._check_long_cells(block, line)
            if block:
                yield block

    def _line(self) -> int:
        """Return the number of lines that have been read."""
        return self._skipped + self._csv.line_num

    def _misquoted(self, first: int, error: csv.Error) -> ValueError:
        """Return the error for a row that begins in this line."""
        wrong = "which is never closed: expected one more"
        if "expected after" in str(error):
            wrong = f"which is closed in line {self._line()}: expected {self.delimiter!r} after it"
        self._text.seek(0)
        line = next(itertools.islice(self._text, first - 1, None))
        return ValueError(
            f"{self.path}, line {first}: a cell begins with a quote, {wrong}: "
            f"{shortened(line)}. {_QUOTES}"
        )

    def _check_long_cells(self, block: list[list[str]], line: int) -> None:
        for row in block:
            for place, cell in enumerate(row):
                lines = _BREAK.split(cell)
                if len(lines) == 1:
                    continue
                self.long_cells.append((len(lines), line))
                if self._has_rows(lines, row, place):
                    raise ValueError(
                        f"{self.path}, line {line}: a quote opens a cell of {len(lines):,} lines "
                        f"that look like rows: {shortened(cell)}: expected a quote at the end of "
                        f"the cell, or its text in one line. {_QUOTES}"
                    )
            line += _count_lines(row)

    def _has_rows(self, lines: Sequence[str], row: Sequence[str], place: int) -> bool:
        """Return whether most lines of a row's cell look like the row, or like one of a header."""
        parts = [line.split(self.delimiter) for line in lines[1:]]
        parts[-1] += row[place + 1 :]
        fitting = [cells for cells in parts if len(cells) == len(row) > 1]
        if len(lines) > (MANY_LINES if self.header else 2) and len(fitting) > 0.8 * len(parts):
            return True
        numbers = [other for other, cell in enumerate(row) if _NUMBER.fullmatch(cell)]
        if not numbers or (len(lines) == 2 and numbers[0] > place):
            return False
        alike = [all(_NUMBER.fullmatch(cells[other]) for other in numbers) for cells in fitting]
        return 2 * sum(alike) > len(parts)


def _count_lines(row: list[str]) -> int:
    return 1 + sum(len(_BREAK.findall(cell)) for cell in row)


def _choose_rows(
    path: Path, text: TextIO, skipped: int, delimiters: Iterable[str], names: Sequence[str]
) -> _Rows:
    """Return the rows after their header, with the first delimiter that gives all columns.

    Raises
    ------
    ValueError
        If there is none: what is wrong with the delimiter that gives most columns.
    """
    text.seek(0)
    first = next(itertools.islice(text, skipped, None), "")
    wrong: dict[ValueError, int] = {}
    for delimiter in delimiters:
        try:
            rows = _Rows(path, text, skipped, delimiter)
        except ValueError as error:
            wrong[error] = first.count(delimiter) + 1
            continue
        missing = [name for name in names if not positions(rows.header, name)]
        if not missing:
            return rows
        if not rows.header:
            raise ValueError(f"{path} is empty: expected a CSV file with a header. {SAVE}")
        wrong[NoColumnError(path, missing[0], rows.header)] = len({*rows.header})
    raise max(wrong, key=lambda error: wrong[error])


def _columns(rows: _Rows, places: Mapping[str, int]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns, and notes on lines and rows that are unlike others."""
    header, done, empty, repeated = rows.header, 0, 0, 0
    picked = [operator.itemgetter(place) for place in places.values()]
    columns: dict[str, list[str]] = {name: [] for name in places}
    for block in rows.blocks():
        empty += block.count([])
        repeated += block.count(header) + block.count(["\ufeff" + header[0], *header[1:]])
        block = [row for row in block if row]
        for number, row in enumerate(block, done + 1):
            if len(row) != len(header):
                raise ValueError(
                    f"{rows.path}, row {number}: {len(row)} cells, expected {len(header)} as the "
                    f"header has, separated by {rows.delimiter!r}: "
                    f"{shortened(rows.delimiter.join(row))}. Put a cell with that character in "
                    "quotes, remove lines that are no rows, or name another one in a first line "
                    "sep=;"
                )
        for name, pick in zip(places, picked, strict=True):
            columns[name].extend(map(str.strip, map(pick, block)))
        done += len(block)
    long = rows.long_cells
    notes = [f"empty lines, which are no rows: {empty:,}"] * (empty > 0)
    notes += [f"rows that are the header again: {repeated:,}"] * (repeated > 0)
    if long:
        notes.append(
            f"cells of several lines: {len(long):,}, the longest of {max(long)[0]:,} lines, the "
            f"first in line {long[0][1]:,}"
        )
    return columns, notes
