"""Reads CSV files in stages: unpack, decode, find the delimiter and the header, pick columns."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import gzip
import io
import itertools
import lzma
import operator
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from estimators.errors import meant

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""In the order in which they are tried, with their names."""
UTF_8, UTF_16, WESTERN = "utf-8-sig", "utf-16", "cp1252"
ENCODINGS = {UTF_8: "UTF-8", UTF_16: "UTF-16", WESTERN: "Windows-1252"}
_SAVE = "A spreadsheet saves it with 'CSV UTF-8'"
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""A first line that tells Excel the delimiter."""
_LONGEST_CELL = 2**31 - 1
_END = "\0\0\0"
"""A line after the last one: it becomes part of a cell only if a quote is still open."""
_BLOCK = 500  # rows turned into columns at once: measured, twice as fast as 20,000
_CHUNK = 1 << 20


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
        known = [repr(other)[1:-1] for other in header]  # a terminal obeys some characters
        super().__init__(f"{path}: no column {name!r}: {meant(name, known)}")


def positions(header: Sequence[str], name: str) -> list[int]:
    """Return the positions of columns with this name, or else one that differs in case or space."""
    for form in (str, lambda text: " ".join(text.split()).casefold()):
        found = [place for place, other in enumerate(header) if form(other) == form(name)]
        if found:
            break
    return found


def _place(path: Path, header: Sequence[str], name: str) -> int:
    found = positions(header, name)
    if not found:
        raise NoColumnError(path, name, header)
    if len(found) > 1:
        listed = " and ".join(f"{header[place]!r} at position {place + 1}" for place in found)
        raise ValueError(
            f"{path}: the header has column {name!r} {len(found)} times: {listed}: expected one; "
            "rename the others"
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
        A CSV file with a header, also in a zip, in gzip or from a pipe.
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
    path = Path(path)
    with _bytes(path) as raw:
        encoding = _detect_encoding(raw)
        raw.seek(0)
        text = io.TextIOWrapper(raw, encoding=encoding, newline="")
        told = _SEPARATOR.fullmatch(text.readline())
        start = 1 if told else 0
        marks = told[1] if told else DELIMITERS
        headers = {mark: next(_rows(text, mark, start)) for mark in marks}
        delimiter = _delimiter(path, headers, names)
        header = headers[delimiter]
        names = [*dict.fromkeys([*names, *(each for each in optional if positions(header, each))])]
        places = {name: _place(path, header, name) for name in names}
        rows = itertools.islice(_rows(text, delimiter, start), 1, None)
        columns, empty = _columns(path, rows, len(header), places)
    note = f"file: {ENCODINGS[encoding]}, separated by {DELIMITERS.get(delimiter, repr(delimiter))}"
    note += f"; empty lines, which are no rows: {empty:,}" * (empty > 0)
    differing = [(header[place], name) for name, place in places.items() if header[place] != name]
    notes = [note, *(f"column: {found!r} for {name!r}" for found, name in differing)]
    return Table(delimiter, header, columns, notes)


def _delimiter(path: Path, headers: Mapping[str, list[str]], names: Sequence[str]) -> str:
    for delimiter, header in headers.items():
        if all(positions(header, name) for name in names):
            return delimiter
    likely = max(headers.values(), key=lambda header: len(set(header)))
    if likely == [_END] or "\0" in "".join(likely):
        raise ValueError(f"{path} is empty or no text: expected a CSV file with a header. {_SAVE}")
    raise next(NoColumnError(path, name, likely) for name in names if not positions(likely, name))


def _detect_encoding(raw: Any) -> str:
    if raw.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return UTF_16
    raw.seek(0)
    text = io.TextIOWrapper(raw, encoding=UTF_8)
    try:
        while text.read(_CHUNK):
            pass
    except UnicodeDecodeError:
        return WESTERN
    finally:
        text.detach()
    return UTF_8


def _rows(text: TextIO, delimiter: str, start: int) -> Iterator[list[str]]:
    """Yield the header, after lines to skip and empty ones, and the rows; a last one is `_END`."""
    text.seek(0)
    lines = itertools.islice(text, start, None)
    csv.field_size_limit(_LONGEST_CELL)
    rows = csv.reader(itertools.chain(lines, [_END]), delimiter=delimiter)
    return itertools.dropwhile(operator.not_, rows)


def _columns(
    path: Path, rows: Iterator[list[str]], width: int, places: Mapping[str, int]
) -> tuple[dict[str, list[str]], int]:
    """Return the columns, and how many empty lines are no rows."""
    done, empty = 0, 0
    picked = [operator.itemgetter(place) for place in places.values()]
    columns: dict[str, list[str]] = {name: [] for name in places}
    while block := list(itertools.islice(rows, _BLOCK)):
        if block[-1] == [_END]:
            del block[-1]
        empty += block.count([])
        block = [row for row in block if row]
        for number, row in enumerate(block, done + 1):
            if len(row) != width or row[-1].endswith(_END):
                wrong = f"{len(row)} cells, expected {width} as the header has"
                if row[-1].endswith(_END):
                    wrong = f"the quote before {row[-1][:20]!r} is never closed: expected one more"
                raise ValueError(f"{path}, row {number}: {wrong}")
        for name, pick in zip(places, picked, strict=True):
            columns[name].extend(map(str.strip, map(pick, block)))
        done += len(block)
    return columns, empty


@contextmanager
def open_table(path: Path, encoding: str = UTF_8) -> Iterator[TextIO]:
    """Open a CSV file as text, also packed or from a pipe.

    Raises
    ------
    ValueError
        If it cannot be unpacked or is not text, or a zip does not have exactly one such file.
    """
    with _bytes(path) as raw, io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
        yield text


@contextmanager
def _bytes(path: Path) -> Iterator[Any]:
    """Open a file as unpacked bytes in which one can seek; errors of its format name it."""
    with path.open("rb") as file:
        try:
            yield _unpacked(path, file if file.seekable() else io.BytesIO(file.read()))
        except (UnicodeDecodeError, *_DAMAGE) as error:
            wrong = "cannot be unpacked"
            if isinstance(error, UnicodeDecodeError):
                wrong = "neither UTF-8, nor UTF-16, nor Windows-1252"
            raise ValueError(
                f"{path}: {wrong} ({error}): expected text, or an undamaged zip or gzip of it "
                f"without a password. {_SAVE}"
            ) from None


_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)
"""A password and an unknown method of compression are a RuntimeError of zipfile."""


def _unpacked(path: Path, packed: Any) -> Any:
    """Return the bytes inside zip and gzip, however often they are packed."""
    start = packed.read(4)
    packed.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return _unpacked(path, gzip.GzipFile(fileobj=packed, mode="rb"))
    if start not in (b"PK\x03\x04", b"PK\x05\x06"):
        return packed
    archive = zipfile.ZipFile(packed)
    names = [name for name in archive.namelist() if not _NO_TABLE.search(name)]
    inside = [name for name in names if ".csv" in name.lower()] or names
    if len(inside) != 1:
        raise ValueError(
            f"{path}: expected one CSV file in the zip, found {inside[:_SHOWN]}. Of several, "
            f"`unzip -p {path.name} NAME | dither define /dev/stdin ...` reads one. {_SAVE}"
        )
    return _unpacked(path, archive.open(inside[0]))


_NO_TABLE = re.compile(r"/$|(^|/)(__MACOSX/|\.)")
"""A folder in a zip, and what macOS adds."""
_SHOWN = 10
