"""Reads CSV files, plain or in a zip: detects encoding and delimiter, and reads columns."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import io
import itertools
import operator
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from estimators.errors import meant

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""In the order in which they are tried, with their names."""
UTF_8, UTF_16, WESTERN = "utf-8-sig", "utf-16", "cp1252"
ENCODINGS = {UTF_8: "UTF-8", UTF_16: "UTF-16", WESTERN: "Windows-1252"}
_BLOCK = 500  # rows turned into columns at once: measured, twice as fast as 20,000
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class CsvFormat:
    """The format of a CSV file.

    Attributes
    ----------
    encoding : str
        A codec of Python: UTF-8, UTF-16 if the file begins with its mark, else Windows-1252.
    delimiter : str
    """

    encoding: str = UTF_8
    delimiter: str = ","

    def __str__(self) -> str:
        """Return a description."""
        return f"{ENCODINGS[self.encoding]}, separated by {DELIMITERS[self.delimiter]}"


def detect_format(path: str | Path, names: Sequence[str]) -> CsvFormat:
    """Return the format of a file with columns of these names.

    The delimiter is the first one with which the header has all of the names. If there is none, it
    is the first one with which it has them, ignoring case and surrounding spaces.

    Raises
    ------
    ValueError
        If no delimiter gives these names, or the bytes are not text.
    """
    path = Path(path)
    encoding = _detect_encoding(path)
    line = _first_line(path, encoding)
    headers = {delimiter: _split(line, delimiter) for delimiter in DELIMITERS}
    for places in (_exact, _places):
        for delimiter, header in headers.items():
            if all(places(header, name) for name in names):
                return CsvFormat(encoding, delimiter)
    likely = max(headers.values(), key=lambda header: len(set(header)))
    raise next(NoColumnError(path, name, likely) for name in names if not _places(likely, name))


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
        super().__init__(f"{path}: no column {name!r}: {meant(name, header)}")


def _exact(header: Sequence[str], name: str) -> list[int]:
    return [place for place, found in enumerate(header) if found == name]


def _places(header: Sequence[str], name: str) -> list[int]:
    """Return the positions of columns with this name, or else one that differs in case."""
    folded = name.strip().casefold()
    others = (place for place, found in enumerate(header) if found.strip().casefold() == folded)
    return _exact(header, name) or list(others)


def _place(path: Path, header: Sequence[str], name: str) -> int:
    found = _places(header, name)
    if not found:
        raise NoColumnError(path, name, header)
    if len(found) > 1:
        listed = " and ".join(f"{header[place]!r} at position {place + 1}" for place in found)
        raise ValueError(
            f"{path}: the header has column {name!r} {len(found)} times: {listed}: expected one; "
            "rename the others"
        )
    return found[0]


def read_table(
    path: str | Path, names: Sequence[str], optional: Sequence[str] = ()
) -> tuple[dict[str, list[str]], list[str]]:
    """Return columns of a CSV file, and notes on its format and on names that differ in the file.

    Parameters
    ----------
    path : path
        A CSV file with a header.
    names : sequence of str
        They may differ from the file's in case and in surrounding spaces.
    optional : sequence of str
        Names of further columns, which the file need not have.

    Raises
    ------
    ValueError
        As for :func:`detect_format` and :func:`read_columns`.
    """
    path = Path(path)
    form = detect_format(path, names)
    header = _split(_first_line(path, form.encoding), form.delimiter)
    names = [*dict.fromkeys([*names, *(each for each in optional if _places(header, each))])]
    headers = [(name, header[_place(path, header, name)]) for name in names]
    notes = [f"file: {form}"]
    notes += [f"column: {found!r} for {name!r}" for name, found in headers if found != name]
    return read_columns(path, names, form), notes


def _detect_encoding(path: Path) -> str:
    with _open_bytes(path) as raw:
        start = raw.read(2)
        if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return UTF_16
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            decoder.decode(start)
            while chunk := raw.read(_CHUNK):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return WESTERN
    return UTF_8


def _first_line(path: Path, encoding: str) -> str:
    with open_table(path, encoding) as text:
        try:
            return text.readline()
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from None


def _split(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


def read_columns(
    path: str | Path, names: Sequence[str], form: CsvFormat | None = None
) -> dict[str, list[str]]:
    """Return columns of a CSV file as text, in the file's order of rows.

    Parameters
    ----------
    path : path
    names : sequence of str
    form : CsvFormat, optional
        By default the result of :func:`detect_format`.

    Raises
    ------
    ValueError
        If a column is missing or there are two, a row has another length than the header, or the
        bytes are not text.
    """
    path = Path(path)
    form = form or detect_format(path, names)
    with open_table(path, form.encoding) as text:
        rows = csv.reader(text, delimiter=form.delimiter)
        try:
            header = next(rows, [])
            places = {name: _place(path, header, name) for name in names}
            return _columns(path, rows, len(header), places)
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from None
        except csv.Error as error:
            raise ValueError(f"{path}, line {rows.line_num}: {error}") from None


def _not_text(path: Path, error: UnicodeDecodeError) -> ValueError:
    return ValueError(
        f"{path}: neither UTF-8, nor UTF-16, nor Windows-1252 ({error}): expected text, as a "
        "spreadsheet saves it with 'CSV UTF-8'"
    )


def _columns(
    path: Path, rows: Iterator[list[str]], width: int, places: Mapping[str, int]
) -> dict[str, list[str]]:
    done = 0
    picked = [operator.itemgetter(place) for place in places.values()]
    columns: dict[str, list[str]] = {name: [] for name in places}
    while block := list(itertools.islice(rows, _BLOCK)):
        if set(map(len, block)) != {width}:
            for row_number, row in enumerate(block, done + 1):
                if row and len(row) != width:
                    raise ValueError(
                        f"{path}, row {row_number}: {len(row)} cells, expected {width} as the "
                        "header has"
                    )
            block = [row for row in block if row]
        for name, pick in zip(places, picked, strict=True):
            columns[name].extend(map(pick, block))
        done += len(block)
    return columns


@contextmanager
def open_table(path: Path, encoding: str = UTF_8) -> Iterator[TextIO]:
    """Open a CSV file, or the one in a zip, as text.

    Raises
    ------
    ValueError
        If a zip does not contain exactly one.
    """
    with _open_bytes(path) as raw, io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
        yield text


@contextmanager
def _open_bytes(path: Path) -> Iterator[BinaryIO]:
    if not zipfile.is_zipfile(path):
        with path.open("rb") as plain:
            yield plain
        return
    with zipfile.ZipFile(path) as archive:
        inside = [name for name in archive.namelist() if name.lower().endswith(".csv")]
        if len(inside) != 1:
            raise ValueError(f"{path}: expected one CSV file in the zip, found {inside}")
        with archive.open(inside[0]) as packed:
            yield packed  # type: ignore[misc]  # IO[bytes], which a TextIOWrapper takes as well
