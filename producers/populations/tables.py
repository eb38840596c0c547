"""Reads populations from CSV files, packed or not."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from estimators.errors import meant, shortened
from estimators.metrics.attributes import check_declared
from estimators.metrics.categories import OPEN_VOCABULARY
from estimators.metrics.metric import Metric
from producers.populations.csv_files import Table, read_table
from producers.populations.far_values import far_numbers
from producers.populations.population import Arrivals, Column, Population, has_value
from producers.populations.text_files import table_path
from producers.populations.time_columns import MISSING, UTC, read_time_columns

_THOUSANDS = re.compile(r"[-+\u2212]?[1-9]\d{0,2}\.\d{3}")
"""Numbers that may have thousands or three decimals."""
_SIGN = r"[\"'(]*[-+\u2010-\u2013\u2212\ufe63\uff0d<>=≤≥~≈±]*\s?"
NUMERIC = re.compile(
    rf"{_SIGN}([$€£¥₹]|[A-Z]{{3}}\s|Rs\.?)?{_SIGN}[0-9][-0-9.,:/'\u2013\u2019\s]*"
    r"([eEdD*x\xd7]?(10\^)?[-+]?[0-9]+)?\s*[^\s0-9]{0,12}"
)
"""Text that people read as a number or as several: with separators, a currency, a unit, < or ()."""
LONGEST_NUMBER = 64
"""Characters of what people read as a number: matching takes time that grows with the square."""
SHOWN = 5
"""Cells that a message lists."""
MINUS = "\u2212"
"""The mathematical sign, which Python does not read."""


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
    decimal: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Population:
    """Read a population from columns of a CSV file, one device a row.

    Parameters
    ----------
    path : path
        As for :func:`producers.populations.csv_files.read_table`.
    metrics : mapping of str to Metric
        By name.
    columns : mapping of str to str or sequence of str
        The CSV column of each metric; for a vector mean, one for each coordinate. If no column has
        this name, a column that differs in case alone is used. Empty cells mean "nothing to
        report", and so do NA, NaN, null and None, unless strings are read: there they are strings
        of an open vocabulary, or categories if the metric lists them.
    time : str or sequence of str
        The column of event times. Several columns, a date and a time for instance, are joined with
        a space. Rows without a time are left out and counted in `Population.skipped`.
    time_format : str, optional
        As for :class:`producers.populations.time_columns.TimeFormat`; by default the format of
        all cells.
    time_zone : str
        The IANA name of the zone for times without one.
    arrivals : Arrivals, optional
        The event times, if no column contains them.
    missing : iterable of str
        Further cells without a value, a time or an attribute. A number stands for all ways to write
        it.
    decimal : str, optional
        The decimal separator, "." or ",": the other one may separate thousands. By default "."
        without separators of thousands.
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
    check_declared(given, [*declared])
    names = [*itertools.chain(*named.values()), *time_columns, *given.values()]
    path = table_path(path)
    table = read_table(path, names, [name for name in declared if name not in given])
    cells, gone = table.columns, frozenset(map(str.strip, missing))
    read = {name: cells.get(given.get(name, name)) for name in declared}
    found = {
        name: _texts(column, (MISSING | gone) - declared[name])
        for name, column in read.items()
        if column is not None
    }
    notes = [_note(name, found.get(name), words) for name, words in declared.items()]
    values = {
        name: _read(metrics[name], columns, table, path, gone, decimal)
        for name, columns in named.items()
    }
    if arrivals is not None:
        time_ms = arrivals.times(table.rows)
    else:
        time_ms, said = read_time_columns(
            path, cells, time_columns, time_format, time_zone, MISSING | gone
        )
        notes += said
    timed = time_ms > 0
    for name, column in values.items():
        if metrics[name].kind != "frequency":
            notes += far_numbers(column)[1]
        notes.append(account(table, time_columns, timed, named[name], has_value(column)))
    if not any((timed & has_value(column)).any() for column in values.values()):
        raise ValueError(f"{path}: no row has something to report: {notes[-1]}")
    population = Population.by_time(
        time_ms[timed],
        {name: column[timed] for name, column in values.items()},
        skipped=int((~timed).sum()),
        attributes={name: column[timed] for name, column in found.items()},
    )
    return dataclasses.replace(population, notes=(*table.notes, *notes))


def account(
    table: Table,
    time: Sequence[str],
    timed: NDArray[np.bool_],
    columns: Sequence[str],
    present: NDArray[np.bool_],
) -> str:
    """Return how many rows a table has, and how many are left out for which reason.

    Parameters
    ----------
    table : Table
    time, columns : sequence of str
        The columns of the times and of the values.
    timed, present : ndarray of bool, shape (rows,)
        Which rows have a time, and a value.
    """
    parts = [f"{np.count_nonzero(timed & present):,} read"]
    for names, left_out, what in ((time, ~timed, "time"), (columns, timed & ~present, "value")):
        cells = zip(*(table.columns[name] for name in names), left_out.tolist(), strict=True)
        texts = Counter(" ".join(row) for *row, is_out in cells if is_out)
        if texts:
            shown = texts.most_common(SHOWN)
            listed = [f"{shortened(text)} {count:,}" for text, count in shown]
            others = texts.total() - sum(count for _, count in shown)
            listed += [f"others {others:,}"] * (others > 0)
            parts.append(f"{texts.total():,} without a {what} ({', '.join(listed)})")
    return f"rows: {table.rows:,}; {', '.join(parts)}"


def _declared(metrics: Iterable[Metric]) -> dict[str, set[str]]:
    """Return the attributes by which metrics are summed, with their declared values."""
    declared: dict[str, set[str]] = {}
    for metric in metrics:
        for name, values in (metric.slicing.attributes if metric.slicing else {}).items():
            declared.setdefault(name, set()).update(values)
    return declared


def _texts(cells: Sequence[str], missing: frozenset[str]) -> Column:
    return np.array(["" if cell in missing else cell for cell in cells], dtype=object)


def _note(name: str, column: Column | None, declared: set[str]) -> str:
    """Return how an attribute was read, for people."""
    if column is None:
        return f"attribute: {name!r} is not sent: there is no column of this name"
    words = [word for word in column.tolist() if word]
    other, none = sum(word not in declared for word in words), column.size - len(words)
    note = f"attribute: {name!r}; {other:,} of {len(words):,} values are not declared"
    return note + f"; rows without a value: {none:,}" * (none > 0)


def _read(
    metric: Metric,
    names: Sequence[str],
    table: Table,
    path: str | Path,
    missing: frozenset[str],
    decimal: str | None,
) -> Column:
    expected = metric.dimension or 1
    if len(names) != expected:
        raise ValueError(
            f"{path}: {len(names)} columns for {metric.name!r}: expected {expected}"
            + (", one for each coordinate" if expected > 1 else "")
        )
    decimal = decimal or ("" if table.delimiter == "," else "?")
    columns = [
        read_values(
            metric, table.columns[name], f"{path}: column {shortened(name)}", missing, decimal
        )
        for name in names
    ]
    return columns[0] if metric.dimension is None else np.stack(columns, axis=1)


def read_values(
    metric: Metric,
    cells: Sequence[str],
    place: str,
    missing: frozenset[str] = frozenset(),
    decimal: str = "",
) -> Column:
    """Convert cells to a metric's column of a population, or to a coordinate of its vectors.

    Parameters
    ----------
    metric : Metric
        Or one with the same domain.
    cells : sequence of str
        One a row, without spaces at the ends.
    place : str
        File and column, for errors.
    missing : frozenset of str
        Cells that mean "no value", besides the usual ones.
    decimal : str
        As for :func:`number`.

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
        numbers = read_numbers(cells, place, missing, decimal)
        if np.isinf(numbers).any():
            raise not_numbers(cells, numbers, place)
        return numbers
    if metric.categories == OPEN_VOCABULARY:
        return _texts(cells, missing)
    indices = {name: index for index, name in enumerate(metric.category_names)}
    indices = dict.fromkeys(MISSING, -1) | indices | dict.fromkeys(missing, -1)
    try:
        return np.array([indices[cell] for cell in cells], dtype=np.int64)
    except KeyError as error:
        name = error.args[0]
        raise ValueError(
            f"{place}, row {cells.index(name) + 1}: category {shortened(name)} is not one of "
            f"{metric.name!r}: {meant(name, metric.category_names)}. --missing TEXT marks cells "
            "without a value"
        ) from None


def read_numbers(
    cells: Sequence[str], place: str, missing: frozenset[str], decimal: str
) -> NDArray[np.float64]:
    """Return cells as numbers: NaN for a missing one, infinity for one that is no finite number.

    Parameters
    ----------
    cells : sequence of str
    place : str
        The file and the column, for messages.
    missing : frozenset of str
        What marks a cell without a value, besides what always does.
    decimal : str
        "." or ",", or "?" if it is not known, or "" if a point is likely.

    Raises
    ------
    ValueError
        If all numbers with a point may have it between thousands, and `decimal` is "?".
    """
    pointed = [cell for cell in cells if "." in cell]
    if decimal == "" and any(cell.isdecimal() for cell in cells):  # three decimals have no integers
        decimal = "?"
    if decimal == "?" and pointed and all(map(_THOUSANDS.fullmatch, pointed)):
        text = pointed[0]
        raise ValueError(
            f"{place}, row {cells.index(text) + 1}: {text!r} may have a decimal point or separate "
            f"thousands. Say which: --decimal . reads {number(text):g}, --decimal , reads "
            f"{number(text, ','):g}"
        )
    texts, alike = MISSING | missing, [number(text, decimal) for text in missing]
    alike += [number(text) for text in missing if math.isinf(number(text, decimal))]
    numbers = np.array([math.nan if cell in texts else number(cell, decimal) for cell in cells])
    numbers[np.isin(numbers, [value for value in alike if math.isfinite(value)])] = math.nan
    return numbers


def not_numbers(cells: Sequence[str], numbers: NDArray[np.float64], place: str) -> ValueError:
    """Return the error for cells that are no numbers.

    Parameters
    ----------
    cells : sequence of str
    numbers : ndarray of float64, shape (n,)
        Of the cells: infinite where one is no number.
    place : str
        The file and the column.
    """
    wrong = np.flatnonzero(np.isinf(numbers))
    shown = ", ".join(f"{shortened(cells[row])} (row {row + 1})" for row in wrong[:SHOWN].tolist())
    more = f" and {wrong.size - SHOWN:,} more" if wrong.size > SHOWN else ""
    total = np.count_nonzero(~np.isnan(numbers))
    return ValueError(
        f"{place}: {wrong.size:,} of {total:,} cells are no numbers: {shown}{more}. Write numbers "
        "as -1234.5, without a unit, < or brackets; --decimal , reads 1.234,5 and --decimal . "
        "reads 1,234.5. Or mark such cells as missing with --missing TEXT for each, for dither "
        "define and dither produce. Or count strings: --kind frequency, --open for any strings"
    )


def number(text: str, decimal: str = "") -> float:
    r"""Return a number; infinity for a text that is none.

    Parameters
    ----------
    text : str
    decimal : str
        "." or ",": the other one may separate thousands. Otherwise "." without such separators.

    Examples
    --------
    >>> number("1.5"), number("1,5"), number("1.250,5", ","), number("1,250.5", ".")
    (1.5, inf, 1250.5, 1250.5)
    >>> number("1.234'567", ","), number("\u22121'234'567,8", ",")
    (inf, -1234567.8)
    """
    text = text.replace(MINUS, "-", 1)
    if decimal in {".", ","}:
        thousands = "," if decimal == "." else "."
        mark = rf"[\{thousands}'\u2019 \u2009\xa0\u202f]"
        form = rf"[-+]?[1-9]\d{{0,2}}(?:({mark})\d{{3}}(?:\1\d{{3}})*)(\{decimal}\d*)?"
        if separated := re.fullmatch(form, text):
            text = text.replace(separated[1], "")
        if thousands in text:
            return math.inf
        text = text.replace(decimal, ".")
    try:
        value = float(text)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) and "_" not in text else math.inf


def count_numeric(values: Collection[str]) -> int:
    """Return how many values are numbers or look like some."""
    short = (value for value in values if len(value) <= LONGEST_NUMBER)
    return sum(NUMERIC.fullmatch(value) is not None for value in short)
