"""Tables of answers with one row for each number, as Arrow, CSV or Parquet."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from aggregator.errors import DitherError
from aggregator.reading.frames.columns import ColumnKind, kind_of
from aggregator.timestamps import iso, utc

if TYPE_CHECKING:
    import arro3.core
    import pandas
    import polars

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001
"""The characters with which a formula in a spreadsheet begins, wide forms included."""
FORMULA_QUOTE = "'"
MAX_SHOWN_ROWS = 10
INSTALL_ARROW = "'dither[tables]' brings it (CSV, JSON and to_dict need nothing)"


class LibraryMissingError(DitherError):
    """A library that a form of tables or pictures needs is not installed."""


@contextlib.contextmanager
def needed_by(user: str, library: str, install: str) -> Iterator[None]:
    """Raise LibraryMissingError if a library that is imported in this context is not installed.

    `user`: what needs the library; `library`: its name; `install`: what to install with pip.
    """
    try:
        yield
    except ModuleNotFoundError:
        raise LibraryMissingError(
            f"{user} needs {library}, which is not installed: pip install {install}"
        ) from None


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Frame:
    """An answer as a table, with one row for each number.

    Iteration yields rows, in the form that ``pandas.DataFrame(frame)`` accepts. Libraries that read
    Arrow's PyCapsule interface accept the table, too: ``polars.DataFrame(frame)``,
    ``duckdb.sql("from frame")``.
    Arrow and Parquet need the extra ``tables``.

    Attributes
    ----------
    columns : mapping of str to sequence
        The values of each column, by its name: None if unknown, and times in ms since the epoch.
        docs/tables.md says what each column means.
    """

    columns: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Frame:
        """Return a table with these columns and rows; numbers that are not finite become None."""
        columns = [*zip(*rows, strict=True)] or [()] * len(names)
        named = zip(names, columns, strict=True)
        return cls({name: _finite_or_none(kind_of(name), values) for name, values in named})

    @classmethod
    def concatenate(cls, frames: Sequence[Frame]) -> Frame:
        """Return a table with the rows of several tables, which have the same columns."""
        first, *later_frames = frames
        columns = {name: [*values] for name, values in first.columns.items()}
        for frame in later_frames:
            for name, values in frame.columns.items():
                columns[name].extend(values)
        return cls(columns)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> list[Any]:
        """Return the values of a column; times are datetimes in UTC."""
        values = self.columns[name]
        if kind_of(name) is ColumnKind.TIME:
            return [None if ms is None else utc(ms) for ms in values]
        return [*values]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of values by column name; times are datetimes in UTC."""
        for row in zip(*self.to_dict().values(), strict=True):
            yield dict(zip(self.columns, row, strict=True))

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the values of the columns, by name; times are datetimes in UTC.

        Examples
        --------
        >>> Frame.of(["label", "value"], [("UA", 0.5), ("AA", float("nan"))]).to_dict()
        {'label': ['UA', 'AA'], 'value': [0.5, None]}
        """
        return {name: self[name] for name in self.columns}

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table for pandas, without using Arrow; times are datetime64[us, UTC].

        Raises LibraryMissingError if pandas is not installed.
        """
        with needed_by("to_pandas()", "pandas", "'dither[tables]' pandas brings it"):
            import pandas
        types = {
            ColumnKind.TEXT: ("object", "object"),
            ColumnKind.FLOAT: ("float64", "float64"),
            ColumnKind.INTEGER: ("int64", "Int64"),
            ColumnKind.FLAG: ("bool", "boolean"),
            ColumnKind.TIME: ("datetime64[us, UTC]", "datetime64[us, UTC]"),
        }
        columns = {}
        for name, values in self.to_dict().items():
            columns[name] = pandas.Series(values, dtype=types[kind_of(name)][None in values])
        return pandas.DataFrame(columns)

    def to_polars(self) -> polars.DataFrame:
        """Return the table for polars, with the types of Arrow.

        Raises LibraryMissingError if polars or arro3 is not installed.
        """
        with needed_by("to_polars()", "polars", "'dither[tables]' polars brings it"):
            import polars
        return polars.DataFrame(self)

    def to_csv(self) -> str:
        r"""Return the table as CSV with a header; an unknown value is an empty cell.

        Times are in ISO 8601, in UTC. Floats are exact. Labels may come from strangers: text that a
        spreadsheet could read as a formula, or that begins with ``'``, gets a ``'`` in front. To
        restore the text, remove that ``'``; Parquet and JSON have the text unchanged.

        Examples
        --------
        >>> Frame.of(["label", "value"], [("=1+1", -0.5), ("a, b", None)]).to_csv()
        'label,value\n\'=1+1,-0.5\n"a, b",\n'
        """
        lines = _Lines()
        writer = csv.writer(lines, lineterminator=_Lines.END)
        writer.writerow(self.columns)
        cells = [_cells(kind_of(name), values) for name, values in self.columns.items()]
        writer.writerows(zip(*cells, strict=True))
        return "".join(f"{line}\n" for line in lines)

    def to_arrow(self) -> arro3.core.Table:
        """Return the table as an arro3 table; times are timestamp[us, UTC].

        Raises LibraryMissingError if arro3 is not installed.
        """
        with needed_by("a table for Arrow", "arro3", INSTALL_ARROW):
            from arro3.core import Array, DataType, Field, Schema, Table
        times = DataType.timestamp("us", tz="UTC")
        types = {
            ColumnKind.TEXT: DataType.string(),
            ColumnKind.FLOAT: DataType.float64(),
            ColumnKind.INTEGER: DataType.int64(),
            ColumnKind.FLAG: DataType.bool(),
        }
        arrays, fields = [], []
        for name, values in self.columns.items():
            kind = kind_of(name)
            if kind is ColumnKind.TIME:
                us = [None if value is None else 1000 * value for value in values]
                arrays.append(Array(us, type=DataType.int64()).cast(times))
            else:
                arrays.append(Array(values, type=types[kind]))
            fields.append(Field(name, types.get(kind, times), nullable=True))
        return Table.from_arrays(arrays, schema=Schema(fields))

    def to_parquet(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Write the table as Parquet.

        Raises LibraryMissingError if arro3 is not installed.
        """
        with needed_by("Parquet", "arro3", INSTALL_ARROW):
            from arro3.io import write_parquet
        buffer = io.BytesIO()  # arro3 panics if a file of its own cannot be written
        write_parquet(self.to_arrow(), buffer, compression="zstd(3)")
        if isinstance(file, str | os.PathLike):
            Path(file).write_bytes(buffer.getbuffer())
        else:
            file.write(buffer.getbuffer())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow's PyCapsule interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema of the stream of :meth:`__arrow_c_stream__`."""
        return self.to_arrow().schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        """Return the first rows as text, with control characters escaped as in JSON."""
        columns = []
        for name in self.columns:
            texts = [name, *map(_printable, self[name][:MAX_SHOWN_ROWS])]
            width = max(map(len, texts))
            columns.append([text.ljust(width) for text in texts])
        lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
        hint = [f"... {len(self)} rows"] if len(self) > MAX_SHOWN_ROWS else []
        return "\n".join([*lines, *hint])


class _Lines(list[str]):
    """Collects lines of CSV; the writer ends lines with CR LF, so it quotes text with CR or LF."""

    END = "\r\n"

    def write(self, line: str) -> None:
        """Add a line."""
        self.append(line.removesuffix(self.END))


def _finite_or_none(kind: ColumnKind, values: Sequence[Any]) -> Sequence[Any]:
    """Return a column's values, with None for numbers that are not finite."""
    if kind is not ColumnKind.FLOAT:
        return values
    return [None if x is None or not math.isfinite(x) else x for x in values]


def _cells(kind: ColumnKind, values: Sequence[Any]) -> Sequence[Any]:
    """Return a column's CSV cells; the writer leaves None empty, and writes floats exactly."""
    forms: dict[ColumnKind, Callable[[Any], Any]] = {
        ColumnKind.TEXT: _no_formula,
        ColumnKind.FLAG: lambda flag: str(flag).lower(),
        ColumnKind.TIME: iso,
    }
    if kind not in forms:
        return values
    texts = {value: forms[kind](value) for value in {*values} if value is not None}
    return [texts.get(value) for value in values]


def _no_formula(text: str) -> str:
    starts = (FORMULA_QUOTE, *FORMULA_STARTS)
    is_formula = text.startswith(starts) or text.lstrip().startswith(FORMULA_STARTS)
    return FORMULA_QUOTE + text if is_formula else text


def _printable(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if text.isprintable() else json.dumps(text)[1:-1]
