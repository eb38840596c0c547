"""Suggests a metric's definition for a column of a CSV file.

A definition is public, so it reveals no value of the file unless the user asks for it: ranges are
rounded quantiles, and categories are listed only on demand.
"""

from __future__ import annotations

import dataclasses
import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from estimators.durations import milliseconds
from estimators.errors import DefinitionError, shortened
from estimators.metrics.categories import ANSWERING_MECHANISM, OPEN_VOCABULARY
from estimators.metrics.loading import define
from estimators.metrics.metric import Metric
from producers.populations.csv_files import positions, read_table, visible
from producers.populations.far_values import far_numbers, is_far
from producers.populations.suggested_ranges import (
    MIDDLE_QUANTILE,
    MIN_DISTINCT_VALUES,
    WIDE_RANGE_RATIO,
    assess,
    describe,
    is_identifying,
    is_wide,
    rank_ranges,
    suggest_bins,
)
from producers.populations.tables import count_numeric, number_error, read_numbers, summarize_rows
from producers.populations.text_files import table_path
from producers.populations.time_columns import DAY_MS, MISSING_TEXTS, UTC, read_time_columns

MAX_DESCRIPTION_CHARACTERS = 100
"""Characters of the column's name."""
MAX_LISTED_CATEGORIES = 1_000
"""More distinct strings can only be an open vocabulary."""
SUGGESTED_LEVELS = (0.5, 1.0, 2.0, 4.0)
SUGGESTED_PANES = ("1m", "5m", "15m", "1h", "6h", "1d", "1w", "4w")
MAX_SUGGESTED_PANES = 400
MAX_PANE_BYTES = 64_000_000
"""The size in Redis of all panes in the file's times, with a topic's default partitions."""
DEFAULT_PARTITIONS = 6
MAX_MAGNITUDE = 1e150
"""Numbers are clipped to it, so that no sum or square overflows."""
NO_TIMES_NOTE = (
    "pane: 1m, the narrowest. A step of the history needs 100 reports (`minimum_reports`): with "
    "--users-per-day N the panes are wide enough for what N users report"
)
TABLE_ROWS = (1024, 512, 256)
"""Rows of an open vocabulary's table: the first number that fits into `MAX_PANE_BYTES`."""
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
"""More numbers among the strings need the user's consent to an open vocabulary."""


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A suggested table of ``metrics.toml``, and notes for the user, which may quote the file."""

    text: str
    notes: list[str]


def suggest(
    path: str | Path,
    column: str,
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
) -> Suggestion:
    """Suggest a metric that fits a column of a CSV file.

    Numbers become a mean, or a distribution if tails make up most of their range. Strings become a
    frequency, of named or listed categories or of an open vocabulary.

    Parameters
    ----------
    path : path
        As for :func:`producers.populations.csv_files.read_table`.
    column : str
        The column of the values.
    name : str, optional
        The metric's name; by default it is derived from the column's.
    unit : str
        For display.
    kind : str, optional
        ``mean``, ``distribution`` or ``frequency``; by default it follows from the cells.
    time : sequence of str, optional
        The columns of event times. Panes are then wide enough that there are at most 400, that all
        of them fit into 64 MB, and that most of them have the reports that an estimate needs.
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
        Further marks of a missing value or time.
    levels : sequence of float
        The epsilons on offer.
    users_per_day : float, optional
        The expected users per day, which determine the width of panes; by default the file's
        times do.

    Raises
    ------
    ValueError
        If there is no such column, or no value in it; if some of its cells are numbers and others
        are not; if no option says what to do with strings; or as for :class:`estimators.Metric`.
    DefinitionError
        If the metric cannot be defined this way.
    """
    if kind not in (None, *SUGGESTED_KINDS):
        raise ValueError(f"kind {kind!r}: expected mean, distribution or frequency")
    path = table_path(path)
    table = read_table(path, [column, *time])
    notes, cells = table.notes, table.columns[column]
    missing_texts = frozenset(map(str.strip, missing))
    location = f"{path}: column {shortened(column)}"
    timed = np.ones(table.rows, dtype=bool)
    if time:
        read = read_time_columns(
            path, table, time, time_format, time_zone, MISSING_TEXTS | missing_texts
        )
        time_ms, timed = read[0], read[0] > 0
        notes += read[1]
    listing = bool(categories) + list_categories + is_open
    numbers = None
    if kind != "frequency" and not listing:
        decimal = decimal or ("" if table.delimiter == "," else "?")
        numbers = read_numbers(cells, location, missing_texts, decimal)
        if np.isinf(numbers).any():
            values = [cells[row] for row in np.flatnonzero(~np.isnan(numbers)).tolist()]
            distinct = set(values)
            number_share_limit = MAX_NUMBER_SHARE if len(distinct) > MAX_LISTED_CATEGORIES else 0.5
            share = max(count_numeric(texts) / len(texts) for texts in (values, distinct))
            if kind is not None or value_range is not None or share >= number_share_limit:
                raise number_error(cells, numbers, location)
            numbers = None
    text = np.array([cell not in {"", *missing_texts} for cell in cells])
    present = text if numbers is None else ~np.isnan(numbers)
    notes.append(summarize_rows(table, time, timed, [column], present))
    used = timed & present
    if not used.any():
        raise ValueError(f"{location} has no value: expected at least one. {notes[-1]}")
    metric_name = name or _name(column, table.header)
    keys: dict[str, object] = {
        "description": f"{column[:MAX_DESCRIPTION_CHARACTERS]} of {path.name}"
    }
    if unit:
        keys["unit"] = unit
    if numbers is not None:
        numbers = numbers[used]
        is_outlier, added_notes = far_numbers(numbers)
        numbers = np.clip(numbers[~is_outlier], -MAX_MAGNITUDE, MAX_MAGNITUDE)
        if added_notes:
            notes += [*added_notes, "range: without the far values; reports of them are clipped"]
        if value_range is None and is_identifying(numbers):
            raise ValueError(
                f"{location} has fewer than {MIN_DISTINCT_VALUES} different numbers: a range "
                "around them would reveal some of them. Give the range of possible values with "
                "--range LOW HIGH"
            )
        number_keys, decisions = _of_numbers(numbers, metric_name, kind, value_range, levels, unit)
        keys |= number_keys
        notes += decisions
    elif value_range is not None:
        raise ValueError(
            f"{location}: a range is of numbers, but strings are to be counted: leave it out"
        )
    else:
        values = [cells[row] for row in np.flatnonzero(used).tolist()]
        if words := sorted({*MISSING_TEXTS, "-", "?", "n/a", "none"}.intersection(values)):
            notes.append(f"strings: {words} count like any others; --missing TEXT leaves one out")
        forms = {unicodedata.normalize("NFC", visible(value)) for value in values}
        if variants := len({*values}) - len(forms):
            notes.append(
                f"strings: {variants:,} differ from others in their Unicode form or invisible "
                "characters alone"
            )
        keys |= _vocabulary(values, location, categories, list_all=list_categories, is_open=is_open)
        if keys["categories"] == OPEN_VOCABULARY and not is_open:
            shown = [*dict.fromkeys(values)]
            notes.append(
                f"categories: open, because there are {len(shown):,} different strings, such as "
                f"{', '.join(map(shortened, shown[:3]))}"
            )
    keys["levels"] = list(levels)
    if time or users_per_day is not None:
        times = time_ms[used] if time else np.empty(0, np.int64)
        times = times[~is_far(times.astype(np.float64))]
        keys, added_notes = _with_pane(keys, metric_name, times, users_per_day)
        notes += added_notes
    else:
        keys["pane"] = SUGGESTED_PANES[0]
        notes.append(NO_TIMES_NOTE)
    define(name=metric_name, **keys)  # raises the same errors as loading
    if keys.get("mechanism") == ANSWERING_MECHANISM:
        notes.append(OPEN_VOCABULARY_NOTE)
    lines = (f"{key} = {_toml(value)}" for key, value in keys.items())
    return Suggestion("\n".join([f"[metrics.{metric_name}]", *lines]), notes)


def _of_numbers(
    numbers: NDArray[np.float64],
    metric_name: str,
    kind: str | None,
    value_range: tuple[float, float] | None,
    levels: Sequence[float],
    unit: str,
) -> tuple[dict[str, object], list[str]]:
    """Return the keys of a metric for numbers, and notes on the decisions."""
    if kind == "distribution" or (kind is None and is_wide(numbers, value_range)):
        bins, bins_note = suggest_bins(numbers, value_range)
        why = (
            f"kind: distribution, because the range of the values is {WIDE_RANGE_RATIO:g} or more "
            f"times as wide as that of the middle {1 - 2 * MIDDLE_QUANTILE:.0%}, so a mean would "
            "follow a few large values, or clip them; quantiles do not. --kind mean asks for a mean"
        )
        return {"kind": "distribution", **bins}, [why] * (kind is None) + [bins_note]
    try:
        ranges = rank_ranges(numbers, levels)
        chosen = assess(numbers, *value_range, levels) if value_range else ranges[0]
    except DefinitionError as error:  # of the metric with which they are tried
        key = f"{metric_name}.{error.key.partition('.')[2]}"
        raise DefinitionError(key, error.value, error.expected) from None
    keys: dict[str, object] = {
        "kind": "mean",
        "mechanism": CLOSED_MECHANISM,
        "range": list(chosen.edges),
    }
    why = "kind: mean; --kind distribution asks for percentiles and shares below a limit"
    range_notes = describe(ranges, chosen, numbers.size, unit)
    if np.isin(numbers, chosen.edges).all():
        keys["options"] = {"values": "two"}
        range_notes.append("options: values = two, because all values are at the ends of the range")
    return keys, [why] * (kind is None) + range_notes


def _toml(value: object) -> str:
    r"""Return a value as TOML, with unprintable characters escaped.

    >>> _toml([1, "a"]), _toml({"rows": 256})
    ('[1, "a"]', '{ rows = 256 }')
    >>> print(_toml("a\x7f\u200b"))
    "a\U0000007f\U0000200b"
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(member)}" for key, member in value.items()) + " }"
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def _name(column: str, header: Sequence[str]) -> str:
    r"""Return a metric's name for a column, distinct from those of other columns.

    >>> _name("Départ (\xb5s)", ["Départ (\xb5s)"]), _name("2nd", ["2nd"])
    ('depart_us', 'm_2nd')
    >>> _name("气温", ["day", "气温"]), _name("a+", ["a-", "a+"])
    ('column_2', 'a_2')
    """
    plain = _plain(column)
    if not plain or sum(_plain(title) == plain for title in header) > 1:
        plain = f"{plain or 'column'}_{positions(header, column)[0] + 1}"
        while plain in map(_plain, header):
            plain += "_2"
    return plain


def _plain(column: str) -> str:
    """Return the column's ASCII letters and digits, without accents, as a metric's name."""
    parts = unicodedata.normalize("NFKD", re.sub("[\xb5\u03bc]", "u", column).casefold())
    plain = re.sub(r"[^a-z0-9]+", "_", parts.encode("ascii", "ignore").decode()).strip("_")[:50]
    return f"m_{plain}" if plain[:1].isdigit() else plain


def _vocabulary(
    values: Sequence[str],
    location: str,
    categories: Sequence[str],
    *,
    list_all: bool,
    is_open: bool,
) -> dict[str, object]:
    """Return the keys of a frequency."""
    distinct = sorted(set(values))
    if categories:
        if strange := sorted(set(distinct).difference(categories)):
            raise ValueError(
                f"{location}: {len(strange)} strings are none of the {len(categories)} categories, "
                f"{shortened(strange[0])} for one. Add them with --category, or mark them as "
                "missing with --missing TEXT"
            )
        return {"kind": "frequency", "mechanism": CLOSED_MECHANISM, "categories": list(categories)}
    if list_all:
        if len(distinct) > MAX_LISTED_CATEGORIES:
            raise ValueError(
                f"{location} has {len(distinct):,} different strings: expected at most "
                f"{MAX_LISTED_CATEGORIES:,} to list them; --open accepts any string"
            )
        return {"kind": "frequency", "mechanism": CLOSED_MECHANISM, "categories": distinct}
    if is_open or len(distinct) > MAX_LISTED_CATEGORIES:
        return {
            "kind": "frequency",
            "mechanism": ANSWERING_MECHANISM,
            "categories": OPEN_VOCABULARY,
        }
    raise ValueError(
        f"{location} has {len(distinct):,} different strings. Everybody can read a definition, so "
        "the strings are written into it only if you say so: --list-categories lists all of them, "
        "--category NAME lists one (repeat it), --open accepts any string"
        + (". Or write 1 for yes and 0 for no: the metric is a share" if len(distinct) == 2 else "")
    )


def _with_pane(
    keys: dict[str, object], metric_name: str, times: NDArray[np.int64], users_per_day: float | None
) -> tuple[dict[str, object], list[str]]:
    """Return the keys with a pane, and with fewer rows if tables are too large; and notes."""
    for rows in TABLE_ROWS if keys.get("mechanism") == ANSWERING_MECHANISM else TABLE_ROWS[:1]:
        fewer = {} if rows == TABLE_ROWS[0] else {"options": {"rows": rows}}
        pane, size, pane_notes = _pane(
            times, define(name=metric_name, **keys, **fewer), users_per_day
        )
        if size <= MAX_PANE_BYTES:
            break
    if fewer:
        pane_notes[0] += f"; {rows} rows make it smaller"
    return keys | {"pane": pane} | fewer, pane_notes


def _pane(
    times: NDArray[np.int64], metric: Metric, users_per_day: float | None
) -> tuple[str, int, list[str]]:
    """Return the narrowest affordable pane with enough reports, the size of all, and notes."""
    valid_times = times[times >= 0]
    for pane in SUGGESTED_PANES:
        width = milliseconds(pane)
        panes, stored = _count_panes(valid_times, width)
        size = stored * metric.zero().nbytes * DEFAULT_PARTITIONS
        reports = _reports(valid_times, width, users_per_day)
        has_enough = reports >= metric.minimum_reports
        if panes <= MAX_SUGGESTED_PANES and size <= MAX_PANE_BYTES and has_enough:
            break
    pane_note = f"pane: {pane}"
    if valid_times.size:
        megabytes = max(1, round(size / 1e6))
        pane_note += (
            f", so that the times span {panes} pane{'s' * (panes != 1)}: at most {megabytes} MB in "
            f"Redis with {DEFAULT_PARTITIONS} partitions (`retention` lets old panes expire)"
        )
    source = "of the file" if users_per_day is None else f"for {users_per_day:,g} users a day"
    pane_note += f"; {reports:,.0f} reports {source} are in one of them, typically"
    too_few_note = (
        f"a step of the history needs {metric.minimum_reports} reports (`minimum_reports`), and "
        f"not even a pane of {pane} has them: the history will show no numbers, but the running "
        "total will. --users-per-day says how many users you expect"
    )
    return pane, size, [pane_note] if has_enough else [pane_note, too_few_note]


def _reports(times: NDArray[np.int64], width_ms: int, users_per_day: float | None) -> float:
    """Return the median number of reports per non-empty pane, or the expected number."""
    if users_per_day is not None:
        return users_per_day * width_ms / DAY_MS
    if not times.size:
        return 0.0
    return float(np.median(np.unique(times // width_ms, return_counts=True)[1]))


def _count_panes(times: NDArray[np.int64], width_ms: int) -> tuple[int, int]:
    """Return how many panes the times span, and how many statistics are stored."""
    if not times.size:
        return 0, 0
    spanned = -(-int(times.max() - times.min()) // width_ms) or 1
    coarser = [grain for grain in (3_600_000, 86_400_000) if width_ms < grain]
    return spanned, 1 + sum(np.unique(times // width).size for width in (width_ms, *coarser))
