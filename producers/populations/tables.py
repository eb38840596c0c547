"""Reads a population from the columns of CSV files, with its attributes and event times."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from estimators.errors import meant, shortened
from estimators.metrics.attributes import check_declared
from estimators.metrics.categories import OPEN_VOCABULARY
from estimators.metrics.metric import Metric
from producers.populations.csv_files import Table, label_rows_remedy, read_table, visible
from producers.populations.far_values import far_numbers
from producers.populations.population import Arrivals, Column, Population, has_value
from producers.populations.text_files import shell_word
from producers.populations.time_columns import MISSING_TEXTS, UTC, read_time_columns

_AMBIGUOUS_THOUSANDS = re.compile(r"[-+\u2212]?[1-9]\d{0,2}\.\d{3}")
"""Matches numbers whose point may separate thousands or decimals."""
_SIGN_PATTERN = r"[\"'(]*[-+\u2010-\u2013\u2212\ufe63\uff0d<>=≤≥~≈±]*\s?"
NUMBER_LIKE = re.compile(
    rf"{_SIGN_PATTERN}(\w{{0,2}}[$€£¥₹₩₪₫₱₺₽₿]|[^\W\d_]{{1,7}}\.?\s|Rs\.?|USD|EUR|GBP)?"
    rf"{_SIGN_PATTERN}\d"
    r"(?!([\W\d_]*[^\W\d_]){13})(?!.*[^\W\d_eEdDhmsx]\d).*"
    r"|\D{0,16}\d+[.,\u066b]\d+(\D.{0,24})?|P[\dT][\dTYMWDHS.,]+"
)
"""Text that people read as numbers: with separators, a currency, a unit (12 letters), < or ()."""
MAX_NUMBER_CHARACTERS = 64
"""The most characters of a number; the time of a match grows with their square."""
MAX_UNITS = 30
"""If more different words than this follow numbers, these words are not units."""
MAX_SHOWN_CELLS = 5
TRUTH_PAIRS = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
"""Words for 1 and 0, if a column has no other words."""
MINUS_SIGN = "\u2212"
"""The mathematical sign, which Python cannot parse."""
_OTHER_SIGNS = dict.fromkeys([0x2010, 0x2011, 0x2012, 0x2013, 0xFE63, 0xFF0D], "-") | {0x66B: "."}
"""Dashes that people write in place of a minus, and the Arabic decimal separator."""


def read_population(
    path: str | Path,
    metrics: Mapping[str, Metric],
    columns: Mapping[str, Sequence[str]],
    *,
    time: Sequence[str] = (),
    time_format: str | None = None,
    time_zone: str = UTC,
    arrivals: Arrivals | None = None,
    missing: Iterable[str] = (),
    decimal: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Population:
    """Read a population from a CSV file with one device per row.

    Parameters
    ----------
    path : path
        As for :func:`producers.populations.csv_files.read_table`.
    metrics : mapping of str to Metric
        The metrics, by name.
    columns : mapping of str to sequence of str
        The CSV column of each metric; for a vector mean, a column for each coordinate; for a
        frequency with axes, a column for each axis, or one with categories. If no column has
        exactly this name, case and surplus spaces are ignored. Empty cells have no value, nor do
        NA, NaN, null and None, unless the vocabulary is open or they are listed as categories.
    time : sequence of str
        The column of event times, or several columns to join by spaces, such as date and time. Rows
        without a time are left out and counted in `Population.skipped`.
    time_format : str, optional
        As for :class:`producers.populations.time_columns.TimeFormat`; by default it is detected
        from all cells.
    time_zone : str
        The IANA name of the time zone of times that do not state one.
    arrivals : Arrivals, optional
        The event times, if no column contains them.
    missing : iterable of str
        Further marks of a missing value, time or attribute. A number matches all ways to write it.
    decimal : str, optional
        The decimal separator, "." or ","; the other may separate thousands. By default ".", and
        nothing separates thousands.
    attributes : mapping of str to str, optional
        The column of each attribute that slices the metrics; by default the column with the
        attribute's name, if there is one. For an empty cell, a device does not send the attribute.

    Raises
    ------
    ValueError
        If the file cannot be read; it names the file, the line or column, and what was expected.
    FileNotFoundError
        If there is no such file.
    """
    declared, attribute_columns = _declared(metrics.values()), attributes or {}
    check_declared(attribute_columns, [*declared])
    names = [*itertools.chain(*columns.values()), *time, *attribute_columns.values()]
    table = read_table(path, names, [name for name in declared if name not in attribute_columns])
    cells, missing_texts = table.columns, frozenset(map(str.strip, missing))
    attribute_cells = {name: cells.get(attribute_columns.get(name, name)) for name in declared}
    attribute_values = {
        name: _texts(column, (MISSING_TEXTS - declared[name]) | missing_texts)
        for name, column in attribute_cells.items()
        if column is not None
    }
    notes = [
        _note(name, attribute_cells[name], attribute_values.get(name), words)
        for name, words in declared.items()
    ]
    values = {
        name: _read(metrics[name], names, table, missing_texts, decimal or table.decimal)
        for name, names in columns.items()
    }
    if arrivals is not None:
        time_ms = arrivals.times(table.rows)
    else:
        time_ms, time_notes = read_time_columns(
            table, time, time_format, time_zone, MISSING_TEXTS | missing_texts
        )
        notes += time_notes
    timed = time_ms > 0
    for name, column in values.items():
        if metrics[name].kind != "frequency":
            notes += far_numbers(column)[1]
        notes.append(summarize_rows(table, time, timed, columns[name], has_value(column)))
    if not any((timed & has_value(column)).any() for column in values.values()):
        raise ValueError(f"{table.path}: no row has something to report: {notes[-1]}")
    population = Population.by_time(
        time_ms[timed],
        {name: column[timed] for name, column in values.items()},
        skipped=int((~timed).sum()),
        attributes={name: column[timed] for name, column in attribute_values.items()},
    )
    return dataclasses.replace(population, notes=(*table.notes, *notes))


def summarize_rows(
    table: Table,
    time: Sequence[str],
    timed: NDArray[np.bool_],
    columns: Sequence[str],
    present: NDArray[np.bool_],
) -> str:
    """Return a note on how many rows have a time and a value.

    `table`: the table; `time`, `columns`: the columns of times and of values; `timed`, `present`,
    shape (rows,): which rows have a time, and which have a value.
    """
    parts = [f"{np.count_nonzero(timed & present):,} read"]
    for names, left_out, noun in ((time, ~timed, "time"), (columns, timed & ~present, "value")):
        cells = zip(*(table.columns[name] for name in names), left_out.tolist(), strict=True)
        texts = Counter(" ".join(row) for *row, is_out in cells if is_out)
        if texts:
            parts.append(f"{texts.total():,} without a {noun} ({_listed(texts)})")
    return f"rows: {table.rows:,}; {', '.join(parts)}"


def _declared(metrics: Iterable[Metric]) -> dict[str, set[str]]:
    """Return the attributes that slice the metrics, with their declared values."""
    declared: dict[str, set[str]] = {}
    for metric in metrics:
        for name, values in (metric.slicing.attributes if metric.slicing else {}).items():
            declared.setdefault(name, set()).update(values)
    return declared


def _texts(cells: Sequence[str], missing: frozenset[str]) -> Column:
    return np.array(["" if cell in missing else cell for cell in cells], dtype=object)


def _listed(texts: Counter[str]) -> str:
    """Return the most frequent texts, with their counts, as text."""
    shown = texts.most_common(MAX_SHOWN_CELLS)
    listed = [f"{shortened(text)} {count:,}" for text, count in shown]
    remaining = texts.total() - sum(count for _, count in shown)
    return ", ".join(listed + [f"others {remaining:,}"] * (remaining > 0))


def _note(name: str, cells: Sequence[str] | None, values: Column | None, declared: set[str]) -> str:
    """Return a note on how an attribute was read."""
    if cells is None or values is None:
        return f"attribute: {name!r} is not sent: there is no column of this name"
    absent = Counter(cell for cell, value in zip(cells, values, strict=True) if not value)
    undeclared = Counter(value for value in values if value and value not in declared)
    note = (
        f"attribute: {name!r}; {undeclared.total():,} of {len(cells) - absent.total():,} values "
        "are not declared"
    )
    if undeclared:
        note += f", and sent as 'other' ({_listed(undeclared)})"
    return note + f"; rows without a value: {absent.total():,} ({_listed(absent)})" * bool(absent)


def _read(
    metric: Metric, names: Sequence[str], table: Table, missing: frozenset[str], decimal: str
) -> Column:
    """Convert a metric's columns; for axes to indices of categories, -1 if an axis has no value."""
    cells = [(table.columns[name], f"{table.path}: column {shortened(name)}") for name in names]
    if metric.axes is not None and len(names) == len(metric.axes.shape):
        axes = metric.axes.values.items()
        indices = np.array(
            [
                _indices(texts, words, location, f"axis {axis} of {metric.name!r}", missing)
                for (texts, location), (axis, words) in zip(cells, axes, strict=True)
            ]
        )
        categories = np.ravel_multi_index(np.maximum(indices, 0), metric.axes.shape)
        return np.where((indices < 0).any(axis=0), -1, categories)
    expected = metric.dimension or 1
    if len(names) != expected:
        each = ", one for each coordinate" if expected > 1 else ""
        if metric.axes is not None:
            each = f", with categories, or one for each of {', '.join(metric.axes.values)}"
        raise ValueError(
            f"{table.path}: {len(names)} columns for {metric.name!r}: expected {expected}{each}"
        )
    columns = [read_values(metric, texts, location, missing, decimal) for texts, location in cells]
    return columns[0] if metric.dimension is None else np.stack(columns, axis=1)


def _indices(
    cells: Sequence[str], words: Sequence[str], location: str, group: str, missing: frozenset[str]
) -> NDArray[np.int64]:
    """Return the index of each cell among some words; -1 for a missing cell."""
    indices = {word: index for index, word in enumerate(words)}
    indices = dict.fromkeys(MISSING_TEXTS, -1) | indices | dict.fromkeys(missing, -1)
    try:
        return np.array([indices[cell] for cell in cells], dtype=np.int64)
    except KeyError as error:
        word = error.args[0]
        raise ValueError(
            f"{location}, row {cells.index(word) + 1}: category {shortened(word)} is not one of "
            f"{group}: {meant(word, words)}. --missing TEXT marks cells without a value"
        ) from None


def read_values(
    metric: Metric,
    cells: Sequence[str],
    location: str,
    missing: frozenset[str] = frozenset(),
    decimal: str = "",
) -> Column:
    """Convert cells to a metric's column of a population, or to a coordinate of its vectors.

    `metric`: the metric; `cells`: the cell of each row, without spaces at its ends; `location`: the
    file and the column, for errors; `missing`: further marks of a missing value; `decimal`: as for
    :func:`parse_number`. Raises ValueError if a cell is not a number or a listed category; it names
    the location and the cell.

    >>> from estimators import define
    >>> metric = define(name="m", kind="mean", mechanism="auto", range=(0, 9), levels=[1])
    >>> read_values(metric, ["1.5", "NA", "-3"], "x.csv")
    array([ 1.5,  nan, -3. ])
    """
    if metric.kind != "frequency":
        numbers = read_numbers(cells, location, missing, decimal)
        if np.isinf(numbers).any():
            raise number_error(cells, numbers, location)
        return numbers
    if metric.categories == OPEN_VOCABULARY:
        return _texts(cells, missing)
    return _indices(cells, metric.category_names, location, repr(metric.name), missing)


def read_numbers(
    cells: Sequence[str], location: str, missing: frozenset[str], decimal: str
) -> NDArray[np.float64]:
    """Return cells as numbers: NaN if missing, infinity if not a finite number.

    `cells`, `location`, `missing`: as for :func:`read_values`; `decimal`: as there; also "?" for an
    unknown separator, and "" for a likely point. Raises ValueError if the point may separate
    thousands in all numbers that have it, and `decimal` is "?", or "" with a whole number present.
    """
    texts = MISSING_TEXTS | missing
    words = {cell.casefold() for cell in cells if cell not in texts}
    for pair in TRUTH_PAIRS if words else ():
        if words.issubset(pair):
            truths = {pair[0]: 1.0, pair[1]: 0.0}
            return np.array([truths.get(cell.casefold(), math.nan) for cell in cells])
    pointed = [cell for cell in cells if "." in cell]
    if decimal == "" and any(cell.isdecimal() for cell in cells):  # then points are decimal
        decimal = "?"
    if decimal == "?" and pointed and all(map(_AMBIGUOUS_THOUSANDS.fullmatch, pointed)):
        text = pointed[0]
        raise ValueError(
            f"{location}, row {cells.index(text) + 1}: {text!r} may have a decimal point or "
            f"separate thousands. Say which: --decimal . reads {parse_number(text):g}, --decimal , "
            f"reads {parse_number(text, ','):g}"
        )
    marks = set[float]()
    for text in missing:
        number = parse_number(text, decimal)
        marks.add(parse_number(text) if math.isinf(number) else number)
    numbers = np.array(
        [math.nan if cell in texts else parse_number(cell, decimal) for cell in cells]
    )
    numbers[np.isin(numbers, [*marks - {math.inf}])] = math.nan
    return numbers


def number_error(cells: Sequence[str], numbers: NDArray[np.float64], location: str) -> ValueError:
    """Return the error for cells that are not numbers.

    `cells`: the cells; `numbers`: their numbers, infinite if a cell is not a number; `location`:
    the file and the column.
    """
    wrong = np.flatnonzero(np.isinf(numbers)).tolist()
    rows: dict[str, list[int]] = {}
    for row in wrong:
        rows.setdefault(cells[row], []).append(row + 1)
    texts = [*rows][:MAX_SHOWN_CELLS]
    shown = ", ".join(
        f"{shortened(text)} (row {rows[text][0]:,}"
        + f", and {len(rows[text]) - 1:,} more" * (len(rows[text]) > 1)
        + ")"
        for text in texts
    )
    others = len(wrong) - sum(len(rows[text]) for text in texts)
    total = np.count_nonzero(~np.isnan(numbers))
    labels = next((i for i, cells in enumerate(rows.values()) if cells != [i + 1]), len(rows))
    readings = [
        f"--decimal {mark} reads {shortened(texts[0])} as {parse_number(texts[0], mark):.15g}"
        for mark in ",."
        if not any(math.isinf(parse_number(text, mark)) for text in rows)
    ] or ["--decimal , reads 1.234,5", "--decimal . reads 1,234.5"]
    return ValueError(
        f"{location}: {len(wrong):,} of {total:,} cells are no numbers: {shown}"
        + f" and {others:,} more" * (others > 0)
        + f". Write numbers as -1234.5, without a unit, < or brackets; {' and '.join(readings)}. "
        "Or mark such cells as missing with --missing "
        f"{shell_word(texts[0][:MAX_NUMBER_CHARACTERS])}, and so on, for dither define and dither "
        "produce. Or count strings: --kind frequency, --open for any strings"
        + label_rows_remedy(labels if 2 * len(wrong) < total else 0, texts[0])
    )


def parse_number(text: str, decimal: str = "") -> float:
    r"""Return the number that a text states; infinity if it states none.

    `text`: the text; `decimal`: "." or ","; the other may separate thousands. "" means "." without
    such separators.

    >>> parse_number("1.5"), parse_number("1.250,5", ","), parse_number("1,250.5", ".")
    (1.5, 1250.5, 1250.5)
    >>> parse_number("1,5"), parse_number("1.234'567", ","), parse_number("\u22121'234'567,8", ",")
    (inf, inf, -1234567.8)
    >>> parse_number("12,34,567.5", "."), parse_number("\u200e\u20135\u066b5")
    (1234567.5, -5.5)
    """
    given, text = text, text.replace(MINUS_SIGN, "-", 1)
    if decimal in {".", ","}:
        thousands = "," if decimal == "." else "."
        mark = rf"[\{thousands}'\u2019 \u2009\xa0\u202f]"
        lakhs = r"(?:(?:\d{3}\1)*|(?:\d\d\1)*)\d{3}"  # 12,34,567 in India
        form = rf"[-+]?[1-9]\d{{0,2}}({mark}){lakhs}(\{decimal}\d*)?"
        if separated := re.fullmatch(form, text):
            text = text.replace(separated[1], "")
        if thousands in text:
            return math.inf
        text = text.replace(decimal, ".")
    try:
        value = float(text)
    except ValueError:
        plain = visible(given.translate(_OTHER_SIGNS))
        return math.inf if plain == given else parse_number(plain, decimal)
    return value if math.isfinite(value) and "_" not in text else math.inf


def count_numeric(values: Collection[str]) -> int:
    """Return how many texts people would read as numbers, despite wide or hidden characters.

    >>> roads = [f"1 {first}{second} Road" for first in "abcdef" for second in "abcdef"]
    >>> count_numeric(["12 ms", "3 s"]), count_numeric(roads)
    (2, 0)
    """
    short = (value for value in values if len(value) <= MAX_NUMBER_CHARACTERS)
    texts = (unicodedata.normalize("NFKC", visible(value)) for value in short)
    words = Counter(
        " ".join(re.findall(r"[^\W\d_]+", text)) for text in texts if NUMBER_LIKE.fullmatch(text)
    )
    without_words = words.pop("", 0)
    return without_words + (words.total() if len(words) <= MAX_UNITS else 0)
