"""Suggests a metric's definition, with axes and attributes, for columns of a CSV file.

A definition is public, so it reveals no value of the file unless the user asks for it: ranges are
rounded quantiles, and categories are listed only on demand.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from estimators.errors import DefinitionError, shortened
from estimators.metrics.attributes import NO_VALUE, OTHER_VALUE
from estimators.metrics.axes import Axes
from estimators.metrics.categories import ANSWERING_MECHANISM, OPEN_VOCABULARY
from estimators.metrics.loading import define
from estimators.metrics.local import LocalMetric
from producers.populations import tables
from producers.populations.csv_files import Table, plain_text, positions, read_table
from producers.populations.far_values import far_numbers, is_far
from producers.populations.population import Column
from producers.populations.suggestions import suggested_keys
from producers.populations.suggestions.expected_widths import Part, describe_widths, slice_parts
from producers.populations.text_files import escaped
from producers.populations.time_columns import MISSING_TEXTS, UTC, read_time_columns

MAX_DESCRIPTION_CHARACTERS = 100
"""The most characters of the column's name in the description."""
MAX_LISTED_CATEGORIES = 1_000
"""The most categories that are listed; with more strings, only an open vocabulary is possible."""
MAX_NAME_CHARACTERS = 50
SUGGESTED_LEVELS = (0.5, 1.0, 2.0, 4.0)
MAX_MAGNITUDE = 1e150
"""Numbers are clipped to it, so that no sum or square overflows."""
NO_TIMES_NOTE = (
    "pane: 1m, the narrowest. A step of the history needs 100 reports (`minimum_reports`): with "
    "--users-per-day N the panes are wide enough for what N users report"
)
OPEN_VOCABULARY_NOTE = (
    f"mechanism: {ANSWERING_MECHANISM}, because no list of strings is published: you can ask for "
    "any string, with nearly the least variance that is possible. count_sketch has smaller "
    "tables. To find the frequent strings without asking: discover = true (docs/discovery.md, "
    "--examples)"
)
CLOSED_MECHANISM = "auto"
"""The mechanism for means and for listed categories."""
SUGGESTED_KINDS = ("mean", "distribution", "frequency")
MAX_NUMBER_SHARE = 0.1
"""If a larger share of the strings are numbers, the user must ask for an open vocabulary."""
CODE_PATTERN = re.compile(r"0\d+")
VERSION_PATTERN = re.compile(r"(?!\d{1,3}(\.\d{3})+$)v?\d+(\.\d+){2,}([-+.]?\w+)*", re.IGNORECASE)
"""A version such as 1.2.3, which is not a number; 1.234.567 may be a number."""
MAX_ATTRIBUTE_VALUES, MIN_ATTRIBUTE_ROWS = 50, 5
"""The most values of an attribute in a definition, and the least rows of each value."""
SHARE_RANGE = (0.0, 1.0)
"""If all numbers are one of these two, their mean is a share."""


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A suggested table of ``metrics.toml``, and notes for the user, which may quote the file.

    Attributes
    ----------
    name, text : str
        The metric's name, and the table as TOML text.
    attributes : mapping of str to str
        The column of each attribute.
    columns : sequence of str
        The columns of the values; empty if reports are read from these columns by default.
    """

    name: str
    text: str
    notes: list[str]
    attributes: Mapping[str, str]
    columns: Sequence[str]


def suggest(
    path: str | Path,
    column: str | Sequence[str],
    *,
    name: str | None = None,
    unit: str = "",
    kind: str | None = None,
    time: Sequence[str] = (),
    time_format: str | None = None,
    time_zone: str = UTC,
    value_range: tuple[float, float] | None = None,
    categories: Sequence[str] = (),
    list_categories: bool = False,
    is_open: bool = False,
    missing: Sequence[str] = (),
    decimal: str | None = None,
    levels: Sequence[float] = SUGGESTED_LEVELS,
    users_per_day: float | None = None,
    by: Sequence[str] = (),
    above: float | None = None,
) -> Suggestion:
    """Suggest a metric that fits a column of a CSV file.

    Numbers become a mean, or a distribution if tails make up most of their range. Strings become a
    frequency: of named or listed categories, or with an open vocabulary. Several columns become the
    axes of a frequency.

    Parameters
    ----------
    path : path
        As for :func:`producers.populations.csv_files.read_table`.
    column : str or sequence of str
        The column with the values; for a frequency with axes, the column of each axis.
    name : str, optional
        The metric's name; by default derived from the names of the columns.
    unit : str
        The unit of the values, for display.
    kind : str, optional
        ``mean``, ``distribution`` or ``frequency``; by default the cells determine it.
    time : sequence of str, optional
        The columns of event times. Panes are then so wide that there are at most 400, that all of
        them fit into 64 MB, and that most of them have the reports that an estimate needs.
    time_format, time_zone, decimal : str, optional
        As for :func:`producers.populations.tables.read_population`.
    value_range : (float, float), optional
        The range of the values; by default rounded quantiles of the file.
    categories : sequence of str
        The categories of a frequency.
    list_categories : bool
        Whether to write the file's distinct strings into the definition.
    is_open : bool
        Whether the vocabulary is open.
    missing : sequence of str
        Further texts that mark a missing value or time.
    levels : sequence of float
        The epsilons that owners may choose.
    users_per_day : float, optional
        The expected users per day, from which the width of panes follows; by default it follows
        from the file's times.
    by : sequence of str
        Columns of attributes of the devices, whose values are written into the definition.
    above : float, optional
        A limit: the metric asks for the share of the numbers above it.

    Raises
    ------
    ValueError
        If there is no such column, or it has no value; if some of its cells are numbers and others
        are not; if no option says what to do with strings; or as for :class:`estimators.Metric`.
    DefinitionError
        If the metric cannot be defined this way.
    """
    by = [*dict.fromkeys(by)]
    titles = [column] if isinstance(column, str) else [*dict.fromkeys(column)]
    table = read_table(path, [*titles, *time, *by])
    missing_texts = frozenset(map(str.strip, missing))
    location = f"{table.path}: column{'s' * (len(titles) > 1)} {', '.join(map(shortened, titles))}"
    notes, cells, axes = table.notes, table.columns[titles[0]], None
    if len(titles) > 1:
        if kind in ("mean", "distribution") or any((categories, is_open, unit, value_range, above)):
            raise ValueError(
                f"{location}: several columns are the axes of a frequency: expected no other kind, "
                "and no range, unit or categories. A vector_mean is written by hand "
                "(docs/questions.md)"
            )
        axes, cells = _axes(table, titles, missing_texts | {""}, location, list_all=list_categories)
    timed = np.ones(table.rows, dtype=bool)
    if time:
        marks = MISSING_TEXTS | missing_texts
        time_ms, added_notes = read_time_columns(table, time, time_format, time_zone, marks)
        timed = time_ms > 0
        notes += added_notes
    if above is not None and (kind or value_range):
        raise ValueError(
            f"above {above:g}: a share of kind mean in [0, 1]: leave kind and range out"
        )
    listing = bool(categories) + list_categories + is_open
    numbers = None
    if kind != "frequency" and not listing and axes is None:
        numbers = tables.read_numbers(cells, location, missing_texts, decimal or table.decimal)
        wants_numbers = (kind, value_range, above) != (None, None, None)
        codes = [*filter(CODE_PATTERN.fullmatch, map(str.strip, cells))]
        if codes and not wants_numbers:
            raise ValueError(
                f"{location}: {len(codes):,} cells begin with 0, such as {shortened(codes[0])}: "
                "are they numbers or codes? --kind mean reads numbers; --list-categories or --open "
                "counts codes"
            )
        if np.isinf(numbers).any():
            written = [cells[row] for row in np.flatnonzero(~np.isnan(numbers)).tolist()]
            distinct = set(written)
            number_share_limit = MAX_NUMBER_SHARE if len(distinct) > MAX_LISTED_CATEGORIES else 0.5
            share = max(tables.count_numeric(texts) / len(texts) for texts in (written, distinct))
            unread = [cells[row] for row in np.flatnonzero(np.isinf(numbers)).tolist()]
            if all(map(VERSION_PATTERN.fullmatch, unread)):
                share = 0.0
            if wants_numbers or share >= number_share_limit:
                raise tables.number_error(cells, numbers, location)
            numbers = None
    text = np.array([cell not in {"", *missing_texts} for cell in cells])
    present = text if numbers is None else ~np.isnan(numbers)
    notes.append(tables.summarize_rows(table, time, timed, titles, present))
    used = timed & present
    if not used.any():
        raise ValueError(f"{location} has no value: expected at least one. {notes[-1]}")
    title = " and ".join(titles)[:MAX_DESCRIPTION_CHARACTERS]
    title += f" above {above:g}" if above is not None else ""
    suffix = "" if above is None else f"_{_plain(f'above {above:g}')}"
    names = [_name(text, table.header) for text in titles]
    metric_name = name or "_".join(names)[:MAX_NAME_CHARACTERS] + suffix
    keys: dict[str, object] = {"title": title} if title != metric_name else {}
    keys["description"] = f"{title} of {table.path.name}"
    if unit and above is None:
        keys["unit"] = unit
    values: Column
    if numbers is not None:
        is_outlier, added_notes = far_numbers(numbers[used])
        values = numbers = np.clip(numbers[used], -MAX_MAGNITUDE, MAX_MAGNITUDE)
        numbers = numbers[~is_outlier]
        notes += added_notes
        if above is not None:
            values = numbers = (values > above).astype(np.float64)
            notes.append(f"share: devices report 1 if the value is above {above:g}, else 0")
        elif is_outlier.any():
            notes.append("range: without the far values; reports of them are clipped")
        if value_range is None and kind != "distribution" and np.isin(values, SHARE_RANGE).all():
            value_range = SHARE_RANGE
        if value_range is None and np.unique(numbers).size < suggested_keys.MIN_DISTINCT_VALUES:
            raise ValueError(
                f"{location} has fewer than {suggested_keys.MIN_DISTINCT_VALUES} different "
                "numbers: a range around them would reveal some of them. Give the range of "
                "possible values with --range LOW HIGH, or count each number as a category with "
                "--list-categories. " + ". ".join(added_notes)
            )
        kind_keys, decisions = _of_numbers(numbers, metric_name, kind, value_range, levels, unit)
    elif value_range is not None:
        raise ValueError(
            f"{location}: a range is of numbers, but strings are to be counted: leave it out"
        )
    else:
        strings = [cells[row] for row in np.flatnonzero(used).tolist()]
        values = np.array(strings, dtype=object)
        if axes is None:
            kind_keys, decisions = _of_strings(
                strings, location, categories, list_all=list_categories, is_open=is_open
            )
        else:
            first, *_, last = axes.values
            example = f'shares = ["{last}={axes.values[last][-1]} / {first}"]'
            kind_keys = _frequency(dict(axes.values))
            decisions = [
                f"categories: {len(axes.labels)}, all combinations. {example} adds a share",
                *_missing_words(itertools.chain(*axes.values.values())),
            ]
    keys |= kind_keys
    notes += decisions
    keys["levels"] = list(levels)
    pane_parts: list[Part] = []
    if time or users_per_day is not None:
        times = time_ms[used] if time else np.empty(0, np.int64)
        times = times[~is_far(times.astype(np.float64))]
        keys, pane_reports, added_notes = suggested_keys.choose_pane(
            keys, metric_name, times, users_per_day
        )
        notes += added_notes
        pane_parts = [Part(f"a pane of {keys['pane']}", round(pane_reports), values)]
    else:
        keys["pane"] = suggested_keys.SUGGESTED_PANES[0]
        notes.append(NO_TIMES_NOTE)
    attributes, declared, added_notes = _attributes(table, by, used, missing_texts)
    notes += added_notes
    if by:
        keys["by"] = [*attributes]
    metric = LocalMetric.require(define(name=metric_name, **keys, attributes=declared))
    if keys.get("mechanism") == ANSWERING_MECHANISM:
        notes.append(OPEN_VOCABULARY_NOTE)
    slices = slice_parts(metric, values, attributes) if by else []
    if slices and pane_parts and metric.slicing:  # the largest slice, as often as slices are kept
        largest, width_ms = slices[0], metric.slicing.pane_ms
        reports = pane_parts[0].reports * width_ms / metric.pane_ms * largest.reports / values.size
        name = f"{keys['pane'] if width_ms == metric.pane_ms else '1h'} of {largest.name}"
        pane_parts.append(dataclasses.replace(largest, name=name, reports=round(reports)))
    parts = [Part("all rows", values.size, values), *pane_parts, *slices]
    notes += describe_widths(metric, parts)
    lines = [
        f"[metrics.{metric_name}]",
        *(f"{key} = {_toml(value)}" for key, value in keys.items()),
    ]
    if by:
        declarations = (f"{name} = {_toml(words)}" for name, words in declared.items())
        lines = ["[attributes]", *declarations, "", *lines]
    is_default = titles == ([metric_name] if axes is None else names)
    columns_by_attribute = dict(zip(attributes, by, strict=True))
    return Suggestion(
        metric_name, "\n".join(lines), notes, columns_by_attribute, [] if is_default else titles
    )


def _axes(
    table: Table, columns: Sequence[str], missing: frozenset[str], location: str, *, list_all: bool
) -> tuple[Axes, list[str]]:
    """Return the axes that columns form, and each row's category ("" without a value)."""
    cells = [table.columns[column] for column in columns]
    values = {}
    for column, texts in zip(columns, cells, strict=True):
        words = {*texts} - missing
        if _truth_pair(words - MISSING_TEXTS):  # beside yes and no, NA is no value
            words -= MISSING_TEXTS
        values[_name(column, table.header)] = _in_order(words)
    unasked = [x for x in values.values() if not (list_all or _truth_pair(x))]
    if unasked:
        raise ValueError(
            f"{location}: {shortened(unasked[0][0])} and others are not yes and no. Everybody can "
            "read a definition, so other values are written into it only with --list-categories"
        )
    if (count := math.prod(map(len, values.values()))) > MAX_LISTED_CATEGORIES:
        raise ValueError(
            f"{location} have {count:,} combinations of values: expected at most "
            f"{MAX_LISTED_CATEGORIES:,}"
        )
    try:
        axes = Axes(values)
    except ValueError as error:
        raise ValueError(f"{location}: expected {error}") from None
    rows = [*zip(*cells, strict=True)]
    label = dict.fromkeys(rows, "")
    for row in label:
        if all(map(operator.contains, values.values(), row)):
            label[row] = axes.labelled(dict(zip(values, row, strict=True)), location)
    return axes, [label[row] for row in rows]


def _truth_pair(values: Collection[str]) -> tuple[str, str] | None:
    """Return the words for true and false, if all values are among them, whatever their case."""
    words = {value.casefold() for value in values}
    return next((pair for pair in (*tables.TRUTH_PAIRS, ("1", "0")) if words.issubset(pair)), None)


def _in_order(values: set[str]) -> list[str]:
    """Return an axis's values in order: no before yes, numbers by size, other strings last.

    >>> _in_order({"Yes", "No"}), _in_order({"10", "9", "b", "a"})
    (['No', 'Yes'], ['9', '10', 'a', 'b'])
    """
    if pair := _truth_pair(values):
        return sorted(values, key=lambda value: -pair.index(value.casefold()))
    return sorted(values, key=lambda value: (tables.parse_number(value), value))


def _attributes(
    table: Table, columns: Sequence[str], used: NDArray[np.bool_], missing: frozenset[str]
) -> tuple[dict[str, Column], dict[str, list[str]], list[str]]:
    """Return the attributes of the used rows, the values to declare, and notes."""
    cells, declared, notes = {}, {}, []
    for column in columns:
        name = _name(column, table.header)
        texts = ["" if cell in missing else cell for cell in table.columns[column]]
        cells[name] = np.array(texts, dtype=object)[used]
        counts = Counter(cells[name].tolist())
        for undeclared in ("", OTHER_VALUE, NO_VALUE):
            counts.pop(undeclared, None)
        frequent = [
            (value, rows)
            for value, rows in counts.most_common(MAX_ATTRIBUTE_VALUES)
            if rows >= MIN_ATTRIBUTE_ROWS
        ]
        declared[name] = sorted(value for value, _ in frequent)
        note = (
            f"attribute: {name!r}, with {len(frequent)} values of column {shortened(column)}, "
            "which everybody can read in the definition; a device sends its own without noise"
        )
        hidden = len(counts) - len(frequent)
        rarer = f". {hidden:,} rarer values count as 'other': they could name a person"
        notes += [note + rarer * (hidden > 0), *_missing_words(declared[name])]
    return cells, declared, notes


def _of_numbers(
    numbers: NDArray[np.float64],
    metric_name: str,
    kind: str | None,
    value_range: tuple[float, float] | None,
    levels: Sequence[float],
    unit: str,
) -> tuple[dict[str, object], list[str]]:
    """Return the keys of a metric for numbers, and notes on the decisions."""
    if kind == "distribution" or (kind is None and suggested_keys.is_wide(numbers, value_range)):
        bins, bins_note = suggested_keys.suggest_bins(numbers, value_range)
        why = (
            "kind: distribution, because the range of the values is "
            f"{suggested_keys.WIDE_RANGE_RATIO:g} or more times as wide as that of the middle "
            f"{1 - 2 * suggested_keys.MIDDLE_QUANTILE:.0%}, so a mean would follow a few large "
            "values, or clip them; quantiles do not. --kind mean asks for a mean"
        )
        return {"kind": "distribution", **bins}, [why] * (kind is None) + [bins_note]
    keys: dict[str, object] = {"kind": "mean", "mechanism": CLOSED_MECHANISM}
    if value_range is not None and np.isin(numbers, value_range).all():
        low, high = value_range
        note = f"kind: mean of two values, {low:g} and {high:g} (options: values = two)"
        if value_range == SHARE_RANGE:
            note += ": the share of those with 1, or yes, or true"
        return keys | {"range": list(value_range), "options": {"values": "two"}}, [note]
    try:
        ranges = suggested_keys.rank_ranges(numbers, levels)
        chosen = suggested_keys.assess(numbers, *value_range, levels) if value_range else ranges[0]
    except DefinitionError as error:  # the error names the metric with which they are tried
        key = f"{metric_name}.{error.key.partition('.')[2]}"
        raise DefinitionError(key, error.value, error.expected) from None
    why = "kind: mean; --kind distribution asks for percentiles and shares below a limit"
    range_notes = suggested_keys.describe(ranges, chosen, numbers.size, unit)
    return keys | {"range": [chosen.low, chosen.high]}, [why] * (kind is None) + range_notes


def _toml(value: object) -> str:
    r"""Return a value in TOML, with unprintable characters escaped.

    >>> _toml([1, "a"]), _toml({"rows": 256})
    ('[1, "a"]', '{ rows = 256 }')
    >>> print(_toml("a\x7f\u200b"))
    "a\U0000007f\U0000200b"
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(member)}" for key, member in value.items()) + " }"
    return escaped(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode())


def _name(column: str, header: Sequence[str]) -> str:
    r"""Return a metric's name for a column, different from the names of other columns.

    >>> _name("Départ (\xb5s)", ["Départ (\xb5s)"]), _name("2nd", ["2nd"]), _name("\u2116", ["x"])
    ('depart_us', 'm_2nd', 'no')
    >>> _name("气温", ["day", "气温"]), _name("a+", ["a-", "a+"])
    ('column_2', 'a_2')
    >>> _name("b" * 98, ["b" * 99, "b" * 98]).replace("b" * 44, "b")
    'b_2'
    """
    plain = _plain(column)
    if not plain or sum(_plain(title) == plain for title in header) > 1:
        position = positions(header, column)[0] + 1
        plain = f"{(plain or 'column')[: MAX_NAME_CHARACTERS - 6]}_{position}"
        while plain in map(_plain, header):
            plain += "_2"
    return plain


def _plain(column: str) -> str:
    """Return a metric's name made of a column's ASCII letters and digits, without accents."""
    parts = unicodedata.normalize("NFKD", re.sub("[\xb5\u03bc]", "u", column)).casefold()
    plain = re.sub(r"[^a-z0-9]+", "_", parts.encode("ascii", "ignore").decode()).strip("_")
    plain = plain[:MAX_NAME_CHARACTERS]
    return f"m_{plain}" if plain[:1].isdigit() else plain


def _missing_words(texts: Iterable[str]) -> list[str]:
    """Return a note on texts that count, although they may mean that there is no value."""
    words = sorted({*MISSING_TEXTS, "-", "?", "n/a", "none"}.intersection(texts))
    return [f"strings: {words} count like any others; --missing TEXT leaves one out"] * bool(words)


def _of_strings(
    strings: Sequence[str],
    location: str,
    categories: Sequence[str],
    *,
    list_all: bool,
    is_open: bool,
) -> tuple[dict[str, object], list[str]]:
    """Return the keys of a frequency, and notes; raise ValueError if the options do not fit."""
    distinct = [*dict.fromkeys(strings)]
    count = len(distinct)
    notes = _missing_words(distinct)
    if variants := count - len({*map(plain_text, distinct)}):
        notes.append(
            f"strings: {variants:,} differ from others in case, spaces, their Unicode form or "
            "invisible characters alone"
        )
    if categories:
        if strange := sorted(set(distinct).difference(categories)):
            raise ValueError(
                f"{location}: {len(strange)} strings are none of the {len(categories)} categories, "
                f"{shortened(strange[0])} for one. Add them with --category, or mark them as "
                "missing with --missing TEXT"
            )
        return _frequency(list(categories)), notes
    if list_all:
        if count > MAX_LISTED_CATEGORIES:
            raise ValueError(
                f"{location} has {count:,} different strings: expected at most "
                f"{MAX_LISTED_CATEGORIES:,} to list them; --open accepts any string"
            )
        return _frequency(sorted(distinct)), notes
    if not is_open:
        if count <= MAX_LISTED_CATEGORIES:
            share = ". Or write 1 for yes and 0 for no: the metric is a share" * (count == 2)
            raise ValueError(
                f"{location} has {count:,} different strings. Everybody can read a definition, so "
                "the strings are written into it only if you say so: --list-categories lists all "
                "of them, --category NAME lists one (repeat it), --open accepts any string" + share
            )
        notes.append(
            f"categories: open, because there are {count:,} different strings, such as "
            f"{', '.join(map(shortened, distinct[:3]))}"
        )
    return _frequency(OPEN_VOCABULARY) | {"mechanism": ANSWERING_MECHANISM}, notes


def _frequency(categories: object) -> dict[str, object]:
    """Return the keys of a frequency."""
    return {"kind": "frequency", "mechanism": CLOSED_MECHANISM, "categories": categories}
