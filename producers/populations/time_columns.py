"""Reads event times from the cells of a table: their format or unit, and their time zone."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import email.utils
import itertools
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from producers.device.times import END, EPOCH, event_times

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"})
"""Texts of cells without a number or a time."""
UTC = "UTC"
ISO = "ISO 8601"
UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
"""Of numbers since the epoch; in a second."""
FIRST, LAST = 315_532_800, 4_102_444_800
"""The years 1980 to 2099, in seconds: numbers are taken for such times only."""
NO_NUMBER, NO_UNIT = "no number", "no time of 1980 to 2099 in any unit"
EXCEL = "excel"
EXCEL_START = datetime.datetime(1899, 12, 30)
MAIL = "RFC 2822, as in Thu, 31 Jan 2013 10:00:00 +0100"
_MAIL = re.compile(
    r"([A-Za-z]{3},\s*)?\d{1,2}\s+[A-Za-z]{3}\s+\d{4}\s+\d{1,2}:\d{2}(:\d{2})?"
    r"(\s+([+-]\d{4}|UTC?|GMT|[ECMP][SD]T))?(\s*\(.*\))?"
)
"""With the zones that it knows: any other name would be taken for none."""
_ISO = re.compile(r"[\dW-]+($|[T ]\d)")
_NAMED_ZONES = (UTC, "GMT", "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT")
_DATES = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y-%m-%d")
_HOURS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_CLOCKS = (*_HOURS, " %H:%M:%S %z", " %H:%M:%S %Z", " %H:%M:%S.%f %Z")
FORMATS = tuple(d + mark + clock for d in _DATES for mark in ("", ",") for clock in _CLOCKS)
"""Of times that are neither in ISO 8601 nor in RFC 2822, as `strptime` writes formats."""
_DIGITS = {"%Y": 4, "%Y%m": 6, "%y%m%d": 6, "%Y%j": 7, "%Y%m%d": 8, "%d%m%Y": 8, "%m%d%Y": 8}
_DIGITS |= {"%Y%m%d%H": 10, "%Y%m%d%H%M": 12, "%Y%m%d%H%M%S": 14}
"""Formats of digits alone, and how many there are."""
_NUMBER = re.compile(r"\d+(\.\d*)?")
_SAMPLE = 50
"""So many different cells choose the format to blame a cell by that has another one."""


@dataclasses.dataclass(frozen=True)
class TimeFormat:
    """The format of event times.

    Attributes
    ----------
    form : str
        `ISO`, `MAIL`, one of `UNITS` since the epoch, `EXCEL` for a spreadsheet's day numbers, or a
        format of `strptime`.
    zone : str
        The IANA name of the time zone for times without one.

    Raises
    ------
    ValueError
        If there is no such zone.
    """

    form: str = ISO
    zone: str = UTC

    def __post_init__(self) -> None:
        """Check that the zone is known."""
        try:
            zoneinfo.ZoneInfo(self.zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            raise ValueError(
                f"time zone {self.zone!r}: expected an IANA name such as Europe/Berlin, or UTC"
            ) from None

    def __str__(self) -> str:
        """Return a description."""
        if self.form in UNITS:
            return f"{self.form} since the epoch"
        return f"{self.form}; times without a zone are in {self.zone}"

    def parse(self, cell: str) -> int:
        """Return a cell's time in ms since the epoch.

        Raises
        ------
        ValueError
            If it does not have this format.
        """
        try:
            return int(event_times(self._moment(cell), 1, 0.0)[0])
        except (OverflowError, re.error) as error:
            raise ValueError(str(error)) from None

    def _moment(self, cell: str) -> float | datetime.datetime:
        if self.form in UNITS:
            return float(cell) / UNITS[self.form]
        if self.form == EXCEL:
            moment = EXCEL_START + datetime.timedelta(milliseconds=round(float(cell) * 86_400_000))
        elif self.form == MAIL:
            if not _MAIL.fullmatch(cell):
                raise ValueError("neither the format nor a time zone")
            moment = email.utils.parsedate_to_datetime(cell)
        elif self.form == ISO:
            if not _ISO.match(cell):  # Python takes any character between date and time
                raise ValueError("neither T nor a space between date and time")
            moment = datetime.datetime.fromisoformat(cell)
        elif "%Z" in self.form:
            moment = self._with_named_zone(cell)
        else:
            moment = datetime.datetime.strptime(cell, self.form)
        return moment if moment.tzinfo else moment.replace(tzinfo=zoneinfo.ZoneInfo(self.zone))

    def _with_named_zone(self, cell: str) -> datetime.datetime:
        """Return a time whose cell names a zone: `strptime` itself would ignore the name."""
        form = self.form.replace("%Z", "%z")
        for name in re.findall(r"\b[A-Z]+\b", cell):
            with contextlib.suppress(ValueError):
                moment = datetime.datetime.strptime(cell.replace(name, "+0000", 1), form)
                for zone, fold in itertools.product((self.zone, *_NAMED_ZONES), (0, 1)):
                    local = moment.replace(tzinfo=zoneinfo.ZoneInfo(zone), fold=fold)
                    if local.tzname() == name:
                        return local
        raise ValueError(f"no zone of {self.zone}, UTC or RFC 2822: --time-zone names another")

    def fits(self, cell: str, end: int = END) -> bool:
        """Return whether a cell is a time of this format, before an end in seconds."""
        try:
            return self.parse(cell) < 1000 * end
        except ValueError:
            return False


def detect_time_format(cells: Sequence[str], place: str, zone: str = UTC) -> TimeFormat:
    """Return the format of all cells that are not empty, or else of most of the first ones.

    Parameters
    ----------
    cells : sequence of str
        One a row.
    place : str
        File and column, for errors.
    zone : str
        The zone of times without one.

    Raises
    ------
    ValueError
        If the user has to choose: the cells fit two formats that differ, as 01/02/2013 does; they
        are numbers that may be something else than seconds; or they have several units.
    """
    rows: dict[str, int] = {}
    for row, cell in enumerate(cells, 1):
        rows.setdefault(cell, row)
    rows.pop("", None)
    kinds = {_kind(cell): cell for cell in reversed(rows)}
    if kinds.keys() - {NO_NUMBER}:
        return _one_unit(kinds, rows, place, zone)
    if all(map(TimeFormat(zone=zone).fits, rows)):
        return TimeFormat(zone=zone)
    first, *_ = sample = [*rows][:_SAMPLE]
    forms = [TimeFormat(text, zone) for text in (ISO, *FORMATS, MAIL)]
    fitting = [form for form in forms if form.fits(first) and all(map(form.fits, rows))]
    if len(fitting) > 1:
        listed = " and ".join(repr(form.form) for form in fitting)
        raise ValueError(
            f"{place}: {first!r} and all other cells fit {listed}: choose one, with --time-format "
            f"{fitting[0].form!r} for instance"
        )
    return fitting[0] if fitting else max(forms, key=lambda form: sum(map(form.fits, sample)))


def _kind(cell: str) -> str:
    """Return the unit in which a number is a time between `FIRST` and `LAST`, or what it is."""
    if not _NUMBER.fullmatch(cell):
        return NO_NUMBER
    units = (unit for unit, parts in UNITS.items() if FIRST <= float(cell) / parts < LAST)
    return next(units, NO_UNIT)


def _one_unit(kinds: dict[str, str], rows: dict[str, int], place: str, zone: str) -> TimeFormat:
    """Return the format of numbers, from each kind's first cell and each cell's first row."""
    if len(kinds) > 1:
        firsts = sorted((rows[cell], cell, kind) for kind, cell in kinds.items())
        listed = " and ".join(f"{cell!r} (row {row}: {kind})" for row, cell, kind in firsts)
        raise ValueError(
            f"{place} has {listed}: expected times of one kind. Write them alike; --missing TEXT "
            "marks a cell without a time, --time-format says what all of them are"
        )
    [(unit, first)] = kinds.items()
    sample, ending = [*rows][:_SAMPLE], ".0" * first.endswith(".0")
    length = len(first.removesuffix(ending))
    texts = [form + ending for form, digits in _DIGITS.items() if digits == length]
    forms = [TimeFormat(text, zone) for text in (*texts, EXCEL)]
    likely = [f for f in forms if 2 * sum(f.fits(cell, LAST) for cell in sample) >= len(sample)]
    if unit != NO_UNIT and not likely:
        return TimeFormat(unit, zone)
    likely += [TimeFormat("seconds" if unit == NO_UNIT else unit)]
    readings = ((f.form, _shown(f.parse(first))) for f in likely if f.fits(first))
    reads = ", ".join(f"--time-format {form} reads {time}" for form, time in readings)
    raise ValueError(
        f"{place}: {first!r} (row {rows[first]}) is a number that may mean several times, or none. "
        f"Say which: {reads or '--time-format FORMAT'}; --missing TEXT marks a cell "
        "without a time"
    )


def _shown(time_ms: int) -> str:
    moment = EPOCH + datetime.timedelta(milliseconds=time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def read_time_columns(
    path: str | Path,
    cells: Mapping[str, Sequence[str]],
    columns: Sequence[str],
    time_format: str | None = None,
    zone: str = UTC,
    missing: frozenset[str] = MISSING,
) -> tuple[NDArray[np.int64], str]:
    """Return the event times of a table's columns, joined by spaces, and a note on them.

    Parameters
    ----------
    path : path
        Of the table, for errors.
    cells : mapping of str to sequence of str
        The table's columns.
    columns : sequence of str
        Those of the times.
    time_format : str, optional
        As for :class:`TimeFormat`; by default the result of :func:`detect_time_format`.
    zone : str
        Of times without one.
    missing : frozenset of str
        Cells without a time.

    Returns
    -------
    ndarray of int64
        In ms since the epoch; -1 for a row without a time.
    str
        The format, the zone, and the first and the last time.

    Raises
    ------
    ValueError
        As for :func:`detect_time_format`, or with the row and the cell that is not a time.
    """
    texts = []
    for row in zip(*(cells[name] for name in columns), strict=True):
        parts = [" ".join(cell.split()) for cell in row]
        text = " ".join(parts)
        texts.append("" if text in missing or not missing.isdisjoint(parts) else text)
    place = f"{path}: column {' '.join(columns)!r}"
    form = TimeFormat(time_format, zone) if time_format else detect_time_format(texts, place, zone)
    moments = {"": -1}
    for number, text in enumerate(texts, 1):
        try:
            moments[text] = moments[text] if text in moments else form.parse(text)
        except ValueError as error:
            raise ValueError(
                f"{place}, row {number}: {text!r} is no event time: expected {form.form} "
                f"({error}); --missing TEXT marks a cell without a time, --time-format (such as "
                "'%d/%m/%Y %H:%M', seconds or excel) says how all are written"
            ) from None
    times = np.array([moments[text] for text in texts], dtype=np.int64)
    known = times[times >= 0]
    span = f"; {_shown(int(known.min()))} to {_shown(int(known.max()))}" if known.size else ""
    return times, f"times: {form}{span}"
