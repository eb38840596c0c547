"""Reads populations from CSV files, plain or in a zip."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from estimators.errors import meant
from estimators.metrics.attributes import check_known
from estimators.metrics.categories import OPEN
from estimators.metrics.metric import Metric
from producers.populations.csv_files import read_table
from producers.populations.population import Arrivals, Column, Population
from producers.populations.time_columns import MISSING, UTC, read_time_columns


def read_population(
    path: str | Path,
    metrics: Mapping[str, Metric],
    columns: Mapping[str, str | Sequence[str]],
    *,
    time: str | Sequence[str] = (),
    time_format: str | None = None,
    time_zone: str = UTC,
    arrivals: Arrivals | None = None,
    missing: Iterable[str] = (),
    attributes: Mapping[str, str] | None = None,
) -> Population:
    """Read a population from columns of a CSV file, one device a row.

    Parameters
    ----------
    path : path
        A CSV file with a header, or a zip with exactly one such file.
    metrics : mapping of str to Metric
        By name.
    columns : mapping of str to str or sequence of str
        The CSV column of each metric; for a vector mean, one for each coordinate. If no column has
        this name, a column that differs in case alone is used. Empty cells, NA, NaN and null mean
        "nothing to report".
    time : str or sequence of str
        The column of event times. Several columns, a date and a time for instance, are joined with
        a space. Rows without a time are left out and counted in `Population.skipped`.
    time_format : str, optional
        As for `strptime`; by default the format of all cells: ISO 8601, seconds or milliseconds
        since the epoch, or a common way to write a date.
    time_zone : str
        The IANA name of the zone for times without one.
    arrivals : Arrivals, optional
        The event times, if no column contains them.
    missing : iterable of str
        Further cells that mean "nothing to report".
    attributes : mapping of str to str, optional
        The column of each attribute by which the metrics are summed; by default the column of that
        name, if there is one. An empty cell: the device does not send the attribute.

    Raises
    ------
    ValueError
        With the file, the line or column, what was found and what was expected.
    FileNotFoundError
        If there is no such file.
    """
    time_columns = [time] if isinstance(time, str) else list(time)
    if bool(time_columns) == (arrivals is not None):
        raise ValueError(
            f"time columns {time_columns} and arrivals {arrivals}: expected one of the two"
        )
    named = {name: [given] if isinstance(given, str) else given for name, given in columns.items()}
    declared, given = _declared(metrics.values()), attributes or {}
    check_known(given, [*declared])
    names = [*itertools.chain(*named.values()), *time_columns, *given.values()]
    cells, notes = read_table(path, names, [name for name in declared if name not in given])
    nothing = MISSING.union(missing)
    read = {name: cells.get(given.get(name, name)) for name in declared}
    found = {
        name: _texts(column, nothing - declared[name])
        for name, column in read.items()
        if column is not None
    }
    sent = [_note(name, found.get(name), words) for name, words in declared.items()]
    values = {
        name: _read(metrics[name], given, cells, path, nothing) for name, given in named.items()
    }
    if arrivals is not None:
        count = len(next(iter(cells.values())))
        return Population(arrivals.times(count), values, notes=(*notes, *sent), attributes=found)
    time_ms, note = read_time_columns(path, cells, time_columns, time_format, time_zone)
    known = time_ms > 0
    population = Population.by_time(
        time_ms[known],
        {name: column[known] for name, column in values.items()},
        skipped=int((~known).sum()),
        attributes={name: column[known] for name, column in found.items()},
    )
    return dataclasses.replace(population, notes=(*notes, note, *sent))


def _declared(metrics: Iterable[Metric]) -> dict[str, set[str]]:
    """Return the attributes by which metrics are summed, with their declared values."""
    declared: dict[str, set[str]] = {}
    for metric in metrics:
        for name, values in (metric.slicing.attributes if metric.slicing else {}).items():
            declared.setdefault(name, set()).update(values)
    return declared


def _texts(cells: Sequence[str], missing: frozenset[str]) -> Column:
    stripped = [cell.strip() for cell in cells]
    return np.array(["" if cell in missing else cell for cell in stripped], dtype=object)


def _note(name: str, column: Column | None, declared: set[str]) -> str:
    """Return how an attribute was read, for people."""
    if column is None:
        return f"attribute: {name!r} is not sent: there is no column of this name"
    other = sum(word not in declared for word in column.tolist() if word)
    return f"attribute: {name!r}; {other:,} of {column.size:,} values are not declared"


def _read(
    metric: Metric,
    names: Sequence[str],
    cells: Mapping[str, list[str]],
    path: str | Path,
    missing: frozenset[str],
) -> Column:
    expected = metric.dimension or 1
    if len(names) != expected:
        raise ValueError(
            f"{path}: {len(names)} columns for {metric.name!r}: expected {expected}"
            + (", one for each coordinate" if expected > 1 else "")
        )
    columns = [
        read_values(metric, cells[name], f"{path}: column {name!r}", missing) for name in names
    ]
    return columns[0] if metric.dimension is None else np.stack(columns, axis=1)


def read_values(
    metric: Metric, cells: Sequence[str], place: str, missing: frozenset[str] = MISSING
) -> Column:
    """Convert cells to a metric's column of a population, or to a coordinate of its vectors.

    Parameters
    ----------
    metric : Metric
        Or one with the same domain.
    cells : sequence of str
        One a row.
    place : str
        File and column, for errors.
    missing : frozenset of str
        Cells that mean "no value".

    Raises
    ------
    ValueError
        With the place, and the cell that is not a number or not a category of the metric.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="m", kind="mean", mechanism="auto", range=(0, 9), levels=[1])
    >>> read_values(metric, ["1.5", "NA", "-3"], "x.csv")
    array([ 1.5,  nan, -3. ])
    """
    if metric.kind != "frequency":
        return _numbers(cells, place, missing)
    if metric.categories == OPEN:
        return _texts(cells, missing - set(metric.labels))
    indices = {name: index for index, name in enumerate(metric.category_names)}
    indices.update(dict.fromkeys(missing - indices.keys(), -1))
    try:
        return np.array([indices[cell.strip()] for cell in cells], dtype=np.int64)
    except KeyError as error:
        name = error.args[0]
        row = [cell.strip() for cell in cells].index(name) + 1
        raise ValueError(
            f"{place}, row {row}: category {name!r} is not one of {metric.name!r}: "
            f"{meant(name, metric.category_names)}"
        ) from None


def _numbers(cells: Sequence[str], place: str, missing: frozenset[str]) -> NDArray[np.float64]:
    try:  # most tables need no more than this
        numbers = np.array([math.nan if cell in missing else float(cell) for cell in cells])
    except ValueError:
        stripped = (cell.strip() for cell in cells)
        numbers = np.array([math.nan if cell in missing else number(cell) for cell in stripped])
    if (wrong := np.flatnonzero(np.isinf(numbers))).size:
        row = int(wrong[0])
        raise ValueError(
            f"{place}, row {row + 1}: {cells[row].strip()!r}: expected a finite number, or NA"
        )
    return numbers


def number(text: str) -> float:
    """Return a number; infinity for a text that is none.

    Examples
    --------
    >>> number("1.5"), number("1,5")
    (1.5, inf)
    """
    try:
        return float(text)
    except ValueError:
        return math.inf
