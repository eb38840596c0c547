"""Reads columns of CSV files; detects the delimiter, the header, and misplaced quotes."""

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
from producers.populations import text_files

DELIMITER_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""Names of delimiters, in the order in which they are tried."""
_SEPARATOR_LINE = re.compile(r'\s*"?sep ?=(\\t|.)"?[,;]*\s*', re.IGNORECASE)
"""A first line by which a file tells Excel the delimiter."""
_LONGEST_CELL = 2**31 - 1
_BLOCK_ROWS = 500  # measured: twice as fast as 20,000
_SHARED_TEXTS = 50_000
"""Equal cells are stored as one text; after this many different texts, the texts are no longer
compared with later cells, because all cells may differ."""
LONG_CELL_LINES = 10
"""If a cell has more lines than this, and they look like rows, a quote was not closed."""
_NUMBER_OR_TIME = re.compile(r"[-+.:/TZ ]*[0-9][-+0-9.:/TZ ]*")
"""Matches cells that distinguish rows from running text."""
_LINE_BREAK = re.compile("\r\n|\r|\n")
_EXCEL_TEXT = re.compile(r'="([^"]*)"')
"""A text that Excel must not read as a number, written as ="0012"."""
MIN_COMPARED_ROWS = 10
_MAX_SEARCHED_LINES = 100
"""How many lines are searched for the names of columns, for an error that says where they are."""
_MAX_LABEL_ROWS = 3
"""The most rows with labels or units between the header and the data."""
FIRST_LINE_REMEDY = (
    "If the first line is data, `(echo NAME,NAME; cat FILE) | dither define - ...` adds a header"
)
_QUOTES_REMEDY = (
    'Write "" for a quote that belongs to such a cell; `tr -d \'"\' < FILE | dither define - ...` '
    "reads the file without quotes"
)
_BACKSLASH_REMEDY = (
    """`sed 's/\\\\"/""/g' FILE | dither define - ...` writes quotes in cells as CSV files do"""
)


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of a CSV file as stripped text, by the requested names, and notes on the reading."""

    path: Path
    delimiter: str
    header: list[str]
    columns: dict[str, list[str]]
    notes: list[str]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))

    @property
    def decimal(self) -> str:
        """The default of `decimal` for :func:`producers.populations.tables.read_numbers`."""
        return "" if self.delimiter == "," and len(self.header) > 1 else "?"


class NoColumnError(ValueError):
    """Raised if a CSV file has no column of the requested name."""

    def __init__(self, path: Path, name: str, header: Sequence[str], line: int = 0) -> None:
        self.path, self.name = path, name
        first = f"{line}, which has such names" if line else "K"
        has_numbers = not line and any(map(_NUMBER_OR_TIME.fullmatch, header))
        super().__init__(
            f"{path}: no column {shortened(name)}: {meant(name, header)}. The first line has to be "
            f"the header: `tail -n +{line or 'K'} FILE | dither define - ...` begins with line "
            f"{first}"
            + f". {FIRST_LINE_REMEDY}" * has_numbers
            + (f". {_separator_remedy(header[0])}" if len(header) == 1 and not line else "")
        )


def _separator_remedy(first: str) -> str:
    """Return how to state the delimiter of a file, with a guess from its first line.

    >>> print(_separator_remedy('"id" "x"'))
    If ' ' separates cells, `(echo 'sep= '; cat FILE) | dither define - ...` says so
    """
    mark = max(re.findall(r"[^\w\"'.\r\n-]", first) or ["^"], key=first.count)
    word = text_files.shell_word(f"sep={mark}")
    return f"If {mark!r} separates cells, `(echo {word}; cat FILE) | dither define - ...` says so"


def positions(header: Sequence[str], name: str) -> list[int]:
    r"""Return the positions of the columns with this name.

    If there is no such column, the comparison ignores the Unicode form, and then also case and
    surplus spaces.

    >>> positions(["x", "e\u0301 "], "\xe9"), positions(["x", "X"], "X")
    ([1], [1])
    """
    for form in (str, _composed, plain_text):
        matches = [position for position, title in enumerate(header) if form(title) == form(name)]
        if matches:
            break
    return matches


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def plain_text(text: str) -> str:
    """Return a title in lower case, without surplus spaces and invisible characters."""
    return _composed(" ".join(visible(text).split())).casefold()


def visible(text: str) -> str:
    """Return a text without invisible characters, such as marks of the writing direction."""
    return "".join(char for char in text if unicodedata.category(char) != "Cf")


def _place(path: Path, header: Sequence[str], name: str) -> int:
    matches = positions(header, name)
    if len(matches) > 1:
        listed = " and ".join(
            f"{shortened(header[position])} at position {position + 1}" for position in matches
        )
        raise ValueError(
            f"{path}: the header has column {shortened(name)} {len(matches)} times: {listed}: "
            "expected one; rename the others"
        )
    return matches[0]


def read_table(path: str | Path, names: Sequence[str], optional: Sequence[str] = ()) -> Table:
    """Return columns of a CSV file.

    A byte-order mark selects UTF-16; otherwise the encoding is UTF-8, or Windows-1252 if the file
    is not valid UTF-8. A first line ``sep=;`` states the delimiter; otherwise it is the first
    delimiter for which the header has all names.

    Parameters
    ----------
    path : path
        A CSV file with a header, also in a zip, in gzip or from a pipe (``-``: standard input).
    names : sequence of str
        The requested columns, compared with the header as by :func:`positions`.
    optional : sequence of str
        Columns that may be absent.

    Raises
    ------
    ValueError
        If the file cannot be unpacked or is not text, a column is missing or ambiguous, a row is
        not as long as the header, or a quote is never closed.
    """
    path = text_files.table_path(path)
    with text_files.open_bytes(path) as raw:
        encoding, encoding_note = text_files.detect_encoding(path, raw)
        raw.seek(0)
        text = io.TextIOWrapper(raw, encoding=encoding, newline="")
        separator = _SEPARATOR_LINE.fullmatch(text.readline())
        delimiters = [separator[1].replace(r"\t", "\t")] if separator else [*DELIMITER_NAMES]
        try:
            rows = _choose_rows(path, text, 1 if separator else 0, delimiters, names)
        except NoColumnError as error:
            error.args = (". ".join(filter(None, [*error.args, encoding_note])),)
            raise
        header = rows.header
        names = [
            *dict.fromkeys([*names, *(title for title in optional if positions(header, title))])
        ]
        position_by_name = {name: _place(path, header, name) for name in names}
        columns, row_notes = _columns(rows, position_by_name)
    separated = DELIMITER_NAMES.get(rows.delimiter, repr(rows.delimiter))
    note = f"file: {text_files.ENCODING_NAMES[encoding]}, separated by {separated}"
    notes = ["; ".join(filter(None, [note, encoding_note, *row_notes]))]
    for name, position in position_by_name.items():
        title = header[position]
        if title != name:
            notes.append(f"column: {shortened(title)} for {shortened(name)}")
        if _NUMBER_OR_TIME.fullmatch(title) or title in columns[name]:
            notes.append(f"header: {shortened(title)} is the name of a column. {FIRST_LINE_REMEDY}")
    return Table(path, rows.delimiter, header, columns, notes)


class _Rows:
    """The rows of a CSV text; a misplaced quote raises ValueError."""

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
        """The lines of each multi-line cell, and the first line of its row."""
        self.header: list[str] = []
        self.header = next((row for [row] in self.blocks(1) if row), [])

    def blocks(self, size: int = _BLOCK_ROWS) -> Iterator[list[list[str]]]:
        """Yield blocks of at most `size` rows; an empty line is an empty row."""
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
        """Return the number of lines read."""
        return self._skipped + self._csv.line_num

    def _misquoted(self, first: int, error: csv.Error) -> ValueError:
        """Return the error for a misplaced quote in the row that begins in line `first`."""
        wrong = "which is never closed: expected one more"
        if "expected after" in str(error):
            wrong = f"which is closed in line {self._line()}: expected {self.delimiter!r} after it"
        self._text.seek(0)
        line = next(itertools.islice(self._text, first - 1, None))
        return ValueError(
            f"{self.path}, line {first}: a cell begins with a quote, {wrong}: {shortened(line)}. "
            + (_BACKSLASH_REMEDY if '\\"' in line else _QUOTES_REMEDY)
            + f". {_separator_remedy(line)}" * (first == 1)
        )

    def _check_long_cells(self, block: list[list[str]], line: int) -> None:
        for row in block:
            for position, cell in enumerate(row):
                lines = _LINE_BREAK.split(cell)
                if len(lines) == 1:
                    continue
                self.long_cells.append((len(lines), line))
                if self._has_rows(lines, row, position):
                    raise ValueError(
                        f"{self.path}, line {line}: a quote opens a cell of {len(lines):,} lines "
                        f"that look like rows: {shortened(cell)}: expected a quote at the end of "
                        f"the cell, or its text in one line. {_QUOTES_REMEDY}"
                    )
            line += _count_lines(row)

    def _has_rows(self, lines: Sequence[str], row: Sequence[str], position: int) -> bool:
        """Return whether most lines of a cell look like rows of the file."""
        parts = [line.split(self.delimiter) for line in lines[1:]]
        parts[-1] += row[position + 1 :]
        fitting = [cells for cells in parts if len(cells) == len(row) > 1]
        if len(lines) > (LONG_CELL_LINES if self.header else 2) and len(fitting) > 0.8 * len(parts):
            return True
        number_positions = [
            index for index, cell in enumerate(row) if _NUMBER_OR_TIME.fullmatch(cell)
        ]
        if not number_positions or (len(lines) == 2 and number_positions[0] > position):
            return False
        has_numbers = [
            all(_NUMBER_OR_TIME.fullmatch(cells[index]) for index in number_positions)
            for cells in fitting
        ]
        return 2 * sum(has_numbers) > len(parts)


def _count_lines(row: list[str]) -> int:
    return 1 + sum(len(_LINE_BREAK.findall(cell)) for cell in row)


def _choose_rows(
    path: Path, text: TextIO, skipped: int, delimiters: Iterable[str], names: Sequence[str]
) -> _Rows:
    """Return the rows, split by the first delimiter for which all columns are there.

    If there is no such delimiter, raise the error of the delimiter that gives the most columns.
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
            raise ValueError(
                f"{path} is empty: expected a CSV file with a header. {text_files.SAVE_HINT}"
            )
        text.seek(0)
        words = [re.compile(rf"(?<!\w){re.escape(name)}(?!\w)") for name in names]
        lines = enumerate(itertools.islice(text, _MAX_SEARCHED_LINES), 1)
        line = next((n for n, line in lines if all(word.search(line) for word in words)), 0)
        line *= line > skipped + 1
        wrong[NoColumnError(path, missing[0], rows.header, line)] = len({*rows.header})
    raise max(wrong, key=lambda error: wrong[error])


def _columns(
    rows: _Rows, position_by_name: Mapping[str, int]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns by name, and notes on unusual lines and rows."""
    header, done, empty, notes = rows.header, 0, 0, list[str]()
    picked = [operator.itemgetter(position) for position in position_by_name.values()]
    columns: dict[str, list[str]] = {name: [] for name in position_by_name}
    texts: dict[str, str] = {}  # equal cells are one string
    for block in rows.blocks():
        blanks = ([], [""]) if len(header) > 1 else ([],)
        empty += sum(map(block.count, blanks))
        block = [row for row in block if row not in blanks]
        if block and not done and re.fullmatch(r"[\s:+-]*---[\s:+-]*", rule := "".join(block[0])):
            raise ValueError(
                f"{rows.path}, row 1 is a line below the header, {shortened(rule)}: no row. "
                "`sed 2d FILE | dither define - ...` leaves it out; `psql --csv` writes CSV"
            )
        for number, row in enumerate(block, done + 1):
            if row[-1] == header[-1] and [row[0].lstrip("\ufeff"), *row[1:]] == header:
                raise ValueError(
                    f"{rows.path}, row {number} is the first line again. If files were joined, "
                    "`awk 'NR == 1 { h = $0; print } $0 != h' FILE | dither define - ...` leaves "
                    f"such lines out. {FIRST_LINE_REMEDY}"
                )
            if len(row) != len(header):
                raise ValueError(
                    f"{rows.path}, row {number}: {len(row)} cells, expected {len(header)} as the "
                    f"header has, separated by {rows.delimiter!r}: "
                    f"{shortened(rows.delimiter.join(row))}. Put a cell with that character in "
                    "quotes, remove lines that are no rows, name each column in the header (a "
                    "column of row names, or an empty last one, too), or name another delimiter "
                    "in a first line sep=;"
                )
        if not done:
            notes += _unit_notes(header, block)
        for name, pick in zip(position_by_name, picked, strict=True):
            cells = [*map(str.strip, map(pick, block))]
            if '="' in "".join(cells):
                cells = [match[1] if (match := _EXCEL_TEXT.fullmatch(c)) else c for c in cells]
            columns[name].extend(map(texts.setdefault, cells, cells))
        if len(texts) > _SHARED_TEXTS:
            texts.clear()
        done += len(block)
    long = rows.long_cells
    notes += [f"empty lines, which are no rows: {empty:,}"] * (empty > 0)
    if long:
        notes.append(
            f"cells of several lines: {len(long):,}, the longest of {max(long)[0]:,} lines, the "
            f"first in line {long[0][1]:,}"
        )
    return columns, notes


def _unit_notes(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a note if the first rows may have labels, or the units of the numbers below."""
    has_number = [any(map(_NUMBER_OR_TIME.fullmatch, row)) for row in rows]
    labels = has_number.index(True) if True in has_number else 0
    if labels > _MAX_LABEL_ROWS or len(rows) - labels < MIN_COMPARED_ROWS:
        return []
    for title, *cells in zip(header, *rows, strict=True):
        if any(cells[:labels]) and all(map(_NUMBER_OR_TIME.fullmatch, cells[labels:])):
            return [
                f"row 1: {shortened(cells[0])} in column {shortened(title)}, where others have "
                f"numbers{label_rows_remedy(labels, '')}"
            ]
    return []


def label_rows_remedy(rows: int, first: str) -> str:
    """Return how to leave out the first rows if they may be labels, like `first`; else ""."""
    if not 0 < rows <= _MAX_LABEL_ROWS or re.search(r"\d", first):
        return ""
    lines = "2d" if rows == 1 else f"2,{rows + 1}d"
    return f". If these are no data, `sed {lines} FILE | dither define - ...` leaves them out"
