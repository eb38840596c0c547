"""Populations read from CSV files, plain or inside a zip."""

from __future__ import annotations

import csv
import datetime
import io
import itertools
import operator
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from estimators.domains import OPEN
from estimators.errors import meant
from estimators.metric import Metric
from producers.population import Arrivals, Column, Population
from producers.times import event_times

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"})
_BLOCK = 500  # rows turned into columns at once: measured, twice as fast as 20,000


def read_population(
    path: str | Path,
    metrics: Mapping[str, Metric],
    columns: Mapping[str, str | Sequence[str]],
    *,
    time: str | Sequence[str] = (),
    arrivals: Arrivals | None = None,
) -> Population:
    """Read a population from columns of a CSV file, one device a row.

    Parameters
    ----------
    path : path
        A CSV file with a header, or a zip with exactly one CSV file in it.
    metrics : mapping of str to Metric
        By name.
    columns : mapping of str to str or sequence of str
        The CSV column of each metric; of a vector mean, one for each coordinate. Empty cells, NA,
        NaN and null mean: nothing to report.
    time : str or sequence of str
        The column of event times: ISO 8601 (UTC where it names no zone) or seconds since the epoch.
        Several columns, a date and a time for instance, are joined with a space. Rows without one
        are left out and counted in `Population.skipped`.
    arrivals : Arrivals, optional
        The event times, where no column holds them.

    Raises
    ------
    ValueError
        Naming the file, the line or column, what was found and what was expected.
    FileNotFoundError
        If there is no such file.
    """
    time_columns = [time] if isinstance(time, str) else list(time)
    if bool(time_columns) == (arrivals is not None):
        raise ValueError(
            f"time columns {time_columns} and arrivals {arrivals}: expected one of the two"
        )
    named = {name: [given] if isinstance(given, str) else given for name, given in columns.items()}
    cells = read_columns(path, [*itertools.chain(*named.values()), *time_columns])
    values = {name: _read(metrics[name], given, cells, path) for name, given in named.items()}
    if arrivals is not None:
        return Population(arrivals.times(len(next(iter(cells.values())))), values)
    texts = [" ".join(row) for row in zip(*(cells[c] for c in time_columns), strict=True)]
    time_ms = read_times(texts, f"{path}: column {' '.join(time_columns)!r}")
    known = time_ms > 0
    return Population.by_time(
        time_ms[known],
        {name: column[known] for name, column in values.items()},
        skipped=int((~known).sum()),
    )


def _read(
    metric: Metric, names: Sequence[str], cells: Mapping[str, list[str]], path: str | Path
) -> Column:
    expected = metric.dimension or 1
    if len(names) != expected:
        raise ValueError(
            f"{path}: {len(names)} columns for {metric.name!r}: expected {expected}"
            + (", one for each coordinate" if expected > 1 else "")
        )
    columns = [read_values(metric, cells[name], f"{path}: column {name!r}") for name in names]
    return columns[0] if metric.dimension is None else np.stack(columns, axis=1)


def read_columns(
    path: str | Path, names: Sequence[str], delimiter: str = ","
) -> dict[str, list[str]]:
    """Return columns of a CSV file as text, in the file's order of rows.

    Raises
    ------
    ValueError
        If a column is missing, a row has another length than the header, or the text is not UTF-8.
    """
    with open_table(Path(path)) as text:
        rows = csv.reader(text, delimiter=delimiter)
        try:
            header = next(rows, [])
            for name in names:
                if name not in header:
                    raise ValueError(f"{path}: no column {name!r}: {meant(name, header)}")
            return _columns(rows, header, names)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text: {error}") from None
        except csv.Error as error:
            raise ValueError(f"{path}, line {rows.line_num}: {error}") from None
        except _RowError as error:
            raise ValueError(f"{path}, {error}") from None


class _RowError(Exception):
    pass


def _columns(
    rows: Iterator[list[str]], header: list[str], names: Sequence[str]
) -> dict[str, list[str]]:
    width, done = len(header), 0
    picked = [operator.itemgetter(header.index(name)) for name in names]
    columns: dict[str, list[str]] = {name: [] for name in names}
    while block := list(itertools.islice(rows, _BLOCK)):
        if set(map(len, block)) != {width}:
            for row_number, row in enumerate(block, done + 1):
                if row and len(row) != width:
                    raise _RowError(
                        f"row {row_number}: {len(row)} cells, expected {width} as the header has"
                    )
            block = [row for row in block if row]
        for name, pick in zip(names, picked, strict=True):
            columns[name].extend(map(pick, block))
        done += len(block)
    return columns


@contextmanager
def open_table(path: Path) -> Iterator[TextIO]:
    """Open a CSV file, or the one in a zip.

    Raises
    ------
    ValueError
        If a zip does not hold exactly one.
    """
    if not zipfile.is_zipfile(path):
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield text
        return
    with zipfile.ZipFile(path) as archive:
        inside = [name for name in archive.namelist() if name.lower().endswith(".csv")]
        if len(inside) != 1:
            raise ValueError(f"{path}: expected one CSV file in the zip, found {inside}")
        with archive.open(inside[0]) as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


def read_values(metric: Metric, cells: Sequence[str], place: str) -> Column:
    """Return cells as a metric's column of a population, or as a coordinate of its vectors.

    Raises
    ------
    ValueError
        Naming the place, the cell that is not a number, or the category that the metric lacks.

    Examples
    --------
    >>> metric = Metric(name="m", kind="mean", mechanism="laplace", range=(0, 9), levels=[1])
    >>> read_values(metric, ["1.5", "NA", "-3"], "x.csv")
    array([ 1.5,  nan, -3. ])
    """
    if metric.kind != "frequency":
        return _numbers(cells, place)
    if metric.categories == OPEN:
        missing = MISSING - set(metric.labels)
        stripped = [cell.strip() for cell in cells]
        return np.array(["" if cell in missing else cell for cell in stripped], dtype=object)
    indices = {name: index for index, name in enumerate(metric.category_names)}
    indices.update(dict.fromkeys(MISSING - indices.keys(), -1))
    try:
        return np.array([indices[cell.strip()] for cell in cells], dtype=np.int64)
    except KeyError as error:
        name = error.args[0]
        raise ValueError(
            f"{place}: category {name!r} is not one of {metric.name!r}: "
            f"{meant(name, metric.category_names)}"
        ) from None


def _numbers(cells: Sequence[str], place: str) -> NDArray[np.float64]:
    nan = float("nan")
    try:
        numbers = np.array([nan if cell in MISSING else float(cell) for cell in cells])
    except ValueError:
        return np.array([_number(cell.strip(), row, place) for row, cell in enumerate(cells, 1)])
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        _number(cells[row], row + 1, place)
    return numbers


def _number(cell: str, row: int, place: str) -> float:
    if cell in MISSING:
        return float("nan")
    try:
        number = float(cell)
    except ValueError:
        number = float("inf")
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{place}, row {row}: {cell!r}: expected a finite number, or NA")
    return number


def read_times(cells: Sequence[str], place: str) -> NDArray[np.int64]:
    """Return event times in ms since the epoch; -1 where a cell is missing.

    Raises
    ------
    ValueError
        Naming the place and the cell that is not a time.

    Examples
    --------
    >>> read_times(["1970-01-01T00:00:02Z", "NA", "1970-01-01 00:00:03", "4"], "x.csv")
    array([2000,   -1, 3000, 4000])
    """
    known = {cell: _time(cell.strip(), place) for cell in set(cells)}
    return np.array([known[cell] for cell in cells], dtype=np.int64)


def _time(cell: str, place: str) -> int:
    if any(part in MISSING for part in cell.split(" ")):
        return -1
    try:
        return int(event_times(_seconds_or_datetime(cell), 1, 0.0)[0])
    except ValueError as error:
        raise ValueError(
            f"{place}: {cell!r} is no event time: expected ISO 8601 or seconds since the epoch "
            f"({error})"
        ) from None


def _seconds_or_datetime(cell: str) -> float | datetime.datetime:
    try:
        return float(cell)
    except ValueError:
        time = datetime.datetime.fromisoformat(cell)
        return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
