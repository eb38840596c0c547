"""Suggests a metric's definition for a column of a CSV file.

A definition is public, so it contains no value of the file unless the user says so: a range comes
from rounded quantiles, and categories are listed only on demand.
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
from producers.populations.csv_files import positions, read_table
from producers.populations.far_values import far_numbers, is_far
from producers.populations.suggested_ranges import (
    FEWEST_VALUES,
    MIDDLE,
    WIDE,
    assess,
    describe,
    is_identifying,
    is_wide,
    rank_ranges,
    suggest_bins,
)
from producers.populations.tables import account, count_numeric, not_numbers, read_numbers
from producers.populations.text_files import table_path
from producers.populations.time_columns import MISSING, UTC, read_time_columns

MOST_DESCRIBED = 100
"""Characters of a column's name in a description."""
MOST_CATEGORIES = 1_000
"""Of so many distinct strings a list is offered; more can only be an open vocabulary."""
LEVELS = (0.5, 1.0, 2.0, 4.0)
PANES = ("1m", "5m", "15m", "1h", "6h", "1d", "1w", "4w")
MOST_PANES = 400
MOST_BYTES = 64_000_000
"""Of all panes of the file's times in Redis, in as many partitions as a topic has by default."""
PARTITIONS = 6
MOST = 1e150
"""Greater numbers are clipped, so that no sum or square overflows."""
DAY_MS = 86_400_000
NO_TIMES = (
    "pane: 1m, the narrowest. A step of the history needs 100 reports (`minimum_reports`): with "
    "--users-per-day N the panes are wide enough for what N users report"
)
FEWER_ROWS = (1024, 512, 256)
"""Of an open vocabulary's tables: as many as fit into these bytes, or the fewest."""
WHY_OPEN = (
    f"mechanism: {ANSWERING_MECHANISM}, because no list of strings is published: you can ask for "
    "any string, with nearly the least variance that is possible. count_sketch has smaller "
    "tables. To find the frequent strings without asking: discover = true (docs/discovery.md, "
    "--examples)"
)
CLOSED = "auto"
"""The mechanism for means and for listed categories."""
KINDS = ("mean", "distribution", "frequency")
FEW_NUMBERS = 0.1
"""Strings of which more look like numbers are an open vocabulary only if the user says so."""


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """A suggested definition, and the decisions in it.

    Attributes
    ----------
    text : str
        A table of ``metrics.toml``.
    notes : list of str
        Notes for the user; they may quote the file.
    """

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
    within: tuple[float, float] | None = None,
    categories: Sequence[str] = (),
    list_categories: bool = False,
    is_open: bool = False,
    missing: Sequence[str] = (),
    decimal: str | None = None,
    levels: Sequence[float] = LEVELS,
    users_per_day: float | None = None,
) -> Suggestion:
    """Suggest a metric that fits a column of a CSV file.

    A column of numbers becomes a mean, or a distribution if it is wide: if most of its range is
    that of its tails, where a mean hides what matters. A column of strings becomes a frequency, of
    named or listed categories or of an open vocabulary.

    Parameters
    ----------
    path : path
        As for :func:`producers.populations.csv_files.read_table`.
    column : str
        The column of the values.
    name : str, optional
        The metric's name; by default the column's, without accents and with underscores for invalid
        characters, and with its position if it would be empty or that of two columns.
    unit : str
        Of the values, for people.
    kind : str, optional
        ``mean``, ``distribution`` or ``frequency``; by default it follows from the cells.
    time : sequence of str, optional
        The columns of event times. Panes are then wide enough that there are at most 400, that all
        of them fit into 64 MB, and that most of them have the reports that an estimate needs.
    time_format, time_zone, decimal : str, optional
        As for :func:`producers.populations.tables.read_population`.
    within : (float, float), optional
        The range of the values; by default rounded quantiles of the file.
    categories : sequence of str
        The categories of a frequency.
    list_categories : bool
        Whether to write the file's distinct strings into the definition.
    is_open : bool
        Whether the vocabulary is open.
    missing : sequence of str
        Further cells that mean "no value" or "no time".
    levels : sequence of float
        The epsilons on offer.
    users_per_day : float, optional
        How many users are expected to report on a day: panes are wide enough for their reports,
        whatever the file has. By default the file says it, if it has times.

    Raises
    ------
    ValueError
        If there is no such column, or no value in it; if some of its cells are numbers and others
        are not; if no option says what to do with strings; or as for :class:`estimators.Metric`.
    DefinitionError
        If the metric cannot be defined this way.
    """
    if kind not in (None, *KINDS):
        raise ValueError(f"kind {kind!r}: expected mean, distribution or frequency")
    path = table_path(path)
    table = read_table(path, [column, *time])
    notes, cells, gone = table.notes, table.columns[column], frozenset(map(str.strip, missing))
    place = f"{path}: column {shortened(column)}"
    timed = np.ones(table.rows, dtype=bool)
    if time:
        read = read_time_columns(path, table.columns, time, time_format, time_zone, MISSING | gone)
        time_ms, timed = read[0], read[0] > 0
        notes += read[1]
    listing = bool(categories) + list_categories + is_open
    numbers = None
    if kind != "frequency" and not listing:
        decimal = decimal or ("" if table.delimiter == "," else "?")
        numbers = read_numbers(cells, place, gone, decimal)
        if np.isinf(numbers).any():
            values = [cells[row] for row in np.flatnonzero(~np.isnan(numbers)).tolist()]
            distinct = set(values)
            most = FEW_NUMBERS if len(distinct) > MOST_CATEGORIES else 0.5
            share = max(count_numeric(texts) / len(texts) for texts in (values, distinct))
            if kind is not None or within is not None or share >= most:
                raise not_numbers(cells, numbers, place)
            numbers = None
    text = np.array([cell not in {"", *gone} for cell in cells])
    present = text if numbers is None else ~np.isnan(numbers)
    notes.append(account(table, time, timed, [column], present))
    used = timed & present
    if not used.any():
        raise ValueError(f"{place} has no value: expected at least one. {notes[-1]}")
    named = name or _name(column, table.header)
    keys: dict[str, object] = {"description": f"{column[:MOST_DESCRIBED]} of {path.name}"}
    if unit:
        keys["unit"] = unit
    if numbers is not None:
        numbers = numbers[used]
        far, said = far_numbers(numbers)
        notes, numbers = notes + said, np.clip(numbers[~far], -MOST, MOST)
        notes += ["range: it leaves the far values out; reports of them are clipped"] * bool(said)
        if within is None and is_identifying(numbers):
            raise ValueError(
                f"{place} has fewer than {FEWEST_VALUES} different numbers: a range around them "
                "would reveal some of them. Give the range of possible values with --range LOW "
                "HIGH"
            )
        own, decisions = _of_numbers(numbers, named, kind, within, levels, unit)
        keys |= own
        notes += decisions
    elif within is not None:
        raise ValueError(
            f"{place}: a range is of numbers, but strings are to be counted: leave it out"
        )
    else:
        values = [cells[row] for row in np.flatnonzero(used).tolist()]
        if words := sorted(MISSING.intersection(values)):
            notes.append(f"strings: {words} count like any others; --missing TEXT leaves one out")
        forms = {unicodedata.normalize("NFC", value) for value in values}
        if alike := len({*values}) - len(forms):
            notes.append(f"strings: {alike:,} differ from others in their Unicode form alone")
        keys |= _vocabulary(values, place, categories, list_all=list_categories, is_open=is_open)
        if keys["categories"] == OPEN_VOCABULARY and not is_open:
            shown = [*dict.fromkeys(values)]
            notes.append(
                f"categories: open, because there are {len(shown):,} different strings, such as "
                f"{', '.join(map(shortened, shown[:3]))}"
            )
    keys["levels"] = list(levels)
    if time:
        times = time_ms[used]
        keys, said = _with_pane(
            keys, named, times[~is_far(times.astype(np.float64))], users_per_day
        )
        notes += said
    elif users_per_day is not None:
        keys, said = _with_pane(keys, named, np.empty(0, np.int64), users_per_day)
        notes += said
    else:
        keys["pane"] = PANES[0]
        notes.append(NO_TIMES)
    define(name=named, **keys)  # raises what loading it would
    if keys.get("mechanism") == ANSWERING_MECHANISM:
        notes.append(WHY_OPEN)
    lines = (f"{key} = {_toml(value)}" for key, value in keys.items())
    return Suggestion("\n".join([f"[metrics.{named}]", *lines]), notes)


def _of_numbers(
    numbers: NDArray[np.float64],
    named: str,
    kind: str | None,
    within: tuple[float, float] | None,
    levels: Sequence[float],
    unit: str,
) -> tuple[dict[str, object], list[str]]:
    """Return the keys of a metric for numbers, and the decisions in words.

    Parameters
    ----------
    numbers : ndarray of float64
    named : str
        The metric's name, for errors.
    kind : str or None
    within : (float, float) or None
    levels : sequence of float
    unit : str
    """
    if kind == "distribution" or (kind is None and is_wide(numbers, within)):
        bins, said = suggest_bins(numbers, within)
        why = (
            f"kind: distribution, because the range of the values is {WIDE:g} or more times as "
            f"wide as that of the middle {1 - 2 * MIDDLE:.0%}, so a mean would follow a few large "
            "values, or clip them; quantiles do not. --kind mean asks for a mean"
        )
        return {"kind": "distribution", **bins}, [why] * (kind is None) + [said]
    try:
        ranges = rank_ranges(numbers, levels)
        chosen = assess(numbers, *within, levels) if within else ranges[0]
    except DefinitionError as error:  # of the metric with which they are tried
        key = f"{named}.{error.key.partition('.')[2]}"
        raise DefinitionError(key, error.value, error.expected) from None
    keys: dict[str, object] = {"kind": "mean", "mechanism": CLOSED, "range": list(chosen.edges)}
    why = "kind: mean; --kind distribution asks for percentiles and shares below a limit"
    told = describe(ranges, chosen, numbers.size, unit)
    if np.isin(numbers, chosen.edges).all():
        keys["options"] = {"values": "two"}
        told.append("options: values = two, because all values are at the ends of the range")
    return keys, [why] * (kind is None) + told


def _toml(value: object) -> str:
    r"""Return a value as it is in a file of definitions; what cannot be seen is escaped.

    >>> _toml([1, "a"]), _toml({"rows": 256})
    ('[1, "a"]', '{ rows = 256 }')
    >>> print(_toml("a\x7f\u200b"))
    "a\U0000007f\U0000200b"
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def _name(column: str, header: Sequence[str]) -> str:
    r"""Return a metric's name for a column, which no other column of the header has.

    >>> _name("Départ (\xb5s)", ["Départ (\xb5s)"]), _name("2nd", ["2nd"])
    ('depart_us', 'm_2nd')
    >>> _name("气温", ["day", "气温"]), _name("a+", ["a-", "a+"])
    ('column_2', 'a_2')
    """
    plain = _plain(column)
    if not plain or sum(_plain(other) == plain for other in header) > 1:
        plain = f"{plain or 'column'}_{positions(header, column)[0] + 1}"
        while plain in map(_plain, header):
            plain += "_2"
    return plain


def _plain(column: str) -> str:
    """Return the letters and digits that ASCII has, without accents, as a metric's name."""
    parts = unicodedata.normalize("NFKD", re.sub("[\xb5\u03bc]", "u", column).casefold())
    plain = re.sub(r"[^a-z0-9]+", "_", parts.encode("ascii", "ignore").decode()).strip("_")[:50]
    return f"m_{plain}" if plain[:1].isdigit() else plain


def _vocabulary(
    values: Sequence[str], place: str, categories: Sequence[str], *, list_all: bool, is_open: bool
) -> dict[str, object]:
    """Return the keys of a frequency that say what it counts."""
    distinct = sorted(set(values))
    if categories:
        if strange := sorted(set(distinct).difference(categories)):
            raise ValueError(
                f"{place}: {len(strange)} strings are none of the {len(categories)} categories, "
                f"{shortened(strange[0])} for one. Add them with --category, or mark them as "
                "missing with --missing TEXT"
            )
        return {"kind": "frequency", "mechanism": CLOSED, "categories": list(categories)}
    if list_all:
        if len(distinct) > MOST_CATEGORIES:
            raise ValueError(
                f"{place} has {len(distinct):,} different strings: expected at most "
                f"{MOST_CATEGORIES:,} to list them; --open accepts any string"
            )
        return {"kind": "frequency", "mechanism": CLOSED, "categories": distinct}
    if is_open or len(distinct) > MOST_CATEGORIES:
        return {
            "kind": "frequency",
            "mechanism": ANSWERING_MECHANISM,
            "categories": OPEN_VOCABULARY,
        }
    raise ValueError(
        f"{place} has {len(distinct):,} different strings. Everybody can read a definition, so the "
        "strings are written into it only if you say so: --list-categories lists all of them, "
        "--category NAME lists one (repeat it), --open accepts any string"
        + (". Or write 1 for yes and 0 for no: the metric is a share" if len(distinct) == 2 else "")
    )


def _with_pane(
    keys: dict[str, object], named: str, times: NDArray[np.int64], users_per_day: float | None
) -> tuple[dict[str, object], list[str]]:
    """Return a definition's keys with a pane, and with fewer rows where they are too costly."""
    for rows in FEWER_ROWS if keys.get("mechanism") == ANSWERING_MECHANISM else FEWER_ROWS[:1]:
        fewer = {} if rows == FEWER_ROWS[0] else {"options": {"rows": rows}}
        pane, size, said = _pane(times, define(name=named, **keys, **fewer), users_per_day)
        if size <= MOST_BYTES:
            break
    if fewer:
        said[0] += f"; {rows} rows make it smaller"
    return keys | {"pane": pane} | fewer, said


def _pane(
    times: NDArray[np.int64], metric: Metric, users_per_day: float | None
) -> tuple[str, int, list[str]]:
    """Return the narrowest pane that is not too costly and has enough reports, and why.

    Returns
    -------
    str
        The pane.
    int
        The bytes of all panes.
    list of str
        Its cost and its reports, in words.
    """
    known = times[times >= 0]
    for pane in PANES:
        width = milliseconds(pane)
        panes, stored = _count_panes(known, width)
        size = stored * metric.zero().nbytes * PARTITIONS
        reports = _reports(known, width, users_per_day)
        has_enough = reports >= metric.minimum_reports
        if panes <= MOST_PANES and size <= MOST_BYTES and has_enough:
            break
    said = f"pane: {pane}"
    if known.size:
        megabytes = max(1, round(size / 1e6))
        said += (
            f", so that the times span {panes} pane{'s' * (panes != 1)}: at most {megabytes} MB in "
            f"Redis with {PARTITIONS} partitions (`retention` lets old panes expire)"
        )
    source = "of the file" if users_per_day is None else f"for {users_per_day:,g} users a day"
    said += f"; {reports:,.0f} reports {source} are in one of them, typically"
    few = (
        f"a step of the history needs {metric.minimum_reports} reports (`minimum_reports`), and "
        f"not even a pane of {pane} has them: the history will show no numbers, but the running "
        "total will. --users-per-day says how many users you expect"
    )
    return pane, size, [said] if has_enough else [said, few]


def _reports(times: NDArray[np.int64], width_ms: int, users_per_day: float | None) -> float:
    """Return how many reports a pane has, typically: the median of those that have any."""
    if users_per_day is not None:
        return users_per_day * width_ms / DAY_MS
    if not times.size:
        return 0.0
    return float(np.median(np.unique(times // width_ms, return_counts=True)[1]))


def _count_panes(times: NDArray[np.int64], width_ms: int) -> tuple[int, int]:
    """Return how many panes the times span, and how many statistics they need."""
    if not times.size:
        return 0, 0
    spanned = -(-int(times.max() - times.min()) // width_ms) or 1
    coarser = [grain for grain in (3_600_000, 86_400_000) if width_ms < grain]
    return spanned, 1 + sum(np.unique(times // width).size for width in (width_ms, *coarser))
