"""Reads event times from the cells of a table: their format or unit, and their time zone."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import email.utils
import re
import time
import zoneinfo
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from estimators.errors import shortened
from producers.device.times import END_OF_TIME, UNIX_EPOCH, event_times
from producers.populations.far_values import is_far

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
TICKS = "ticks"
"""Of .NET: 100 ns since the year 1."""
MAIL = "RFC 2822, as in Thu, 31 Jan 2013 10:00:00 +0100"
_MAIL = re.compile(
    r"([A-Za-z]{3},\s*)?\d{1,2}\s+[A-Za-z]{3}\s+\d{4}\s+\d{1,2}:\d{2}(:\d{2})?"
    r"(\s+([+-]\d{4}|UTC?|GMT|[ECMP][SD]T))?(\s*\(.*\))?"
)
"""With the zones that it knows: any other name would be taken for none."""
_ISO = re.compile(r"[\dW-]+($|[T ]\d)")
_US_NAMES = re.compile(r"(?<=[0-9M] )[ECMP][SD]T\b")
"""Names of zones, after a time, that other countries have, too."""
_WEEKDAYS = re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)")
_NAMED_ZONES = (UTC, "GMT", "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT")
_DATES = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y-%m-%d")
_HOURS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_CLOCKS = (*_HOURS, " %H:%M:%S %z", " %H:%M:%S %Z", " %H:%M:%S.%f %Z")
FORMATS = tuple(d + mark + clock for d in _DATES for mark in ("", ",") for clock in _CLOCKS)
"""Of times that are neither in ISO 8601 nor in RFC 2822, as `strptime` writes formats."""
_DIGITS = {"%Y": 4, "%Y%m": 6, "%y%m%d": 6, "%Y%j": 7, "%Y%m%d": 8, "%d%m%Y": 8, "%m%d%Y": 8}
_DIGITS |= {"%Y%m%d%H": 10, "%Y%m%d%H%M": 12, "%Y%m%d%H%M%S": 14, "%Y%m%d%H%M%S%f": 17, TICKS: 18}
_LENGTHS = {"Y": 4, "j": 3}
_SHORT_YEARS = {"%y%m%d%H%M": 10, "%y%m%d%H%M%S": 12}
"""Formats of digits alone, and how many there are; units have times like those of short years."""
_NUMBER = re.compile(r"\d+(\.\d*)?")
_NEEDS = {"U": ("Yy", "aAwu"), "W": ("Yy", "aAwu"), "d": ("mbB",), "p": ("I",), "I": ("p",)}
_NEEDS |= {"H": ("djcxaAwu",), "M": ("HI",)}
"""Directives that `strptime` ignores or misreads without one of each of these others."""
SKIPPED = "were skipped when clocks were set: read as if clocks were set after them"
REPEATED = "came twice when clocks were set: read as the first"
_SAMPLE = 50
"""So many different cells choose the format to blame a cell by that has another one."""


@dataclasses.dataclass(frozen=True)
class TimeFormat:
    """The format of event times.

    Attributes
    ----------
    form : str
        `ISO`, `MAIL`, one of `UNITS` since the epoch, `EXCEL` for a spreadsheet's day numbers,
        `TICKS`, or a format of `strptime`.
    zone : str
        The IANA name of the time zone for times without one.

    Raises
    ------
    ValueError
        If there is no such zone, or `strptime` would ignore a part of the format.
    """

    form: str = ISO
    zone: str = UTC

    def __post_init__(self) -> None:
        """Check that the zone is known, and that the format says which day it is."""
        directives = {*re.findall(r"%(.)", self.form.replace("%%", ""))}
        for directive, needed in _NEEDS.items():
            for others in needed if directive in directives else ():
                if directives.isdisjoint(others):
                    raise ValueError(
                        f"time format {self.form!r}: %{directive} says nothing without "
                        f"{' or '.join('%' + other for other in others)}: expected one of them, too"
                    )
        if self.zone != UTC and re.search(r"(?<!%)(Z|UTC|GMT)$", self.form):
            raise ValueError(
                f"time format {self.form!r}: its end says UTC: expected %z in place of Z, or no "
                f"other time zone, and not {self.zone}"
            )
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
        return self.parse_local(cell)[0]

    def parse_local(self, cell: str) -> tuple[int, str]:
        """Return a cell's time as `parse` does, and `SKIPPED`, `REPEATED` or an empty text.

        Raises
        ------
        ValueError
            As for `parse`.
        """
        try:
            moment = self._moment(cell)
            return int(event_times(moment, 1, 0.0)[0]), _clock_change(moment)
        except (OverflowError, re.error) as error:
            raise ValueError(str(error)) from None

    def _moment(self, cell: str) -> float | datetime.datetime:
        if self.form in UNITS:
            return float(cell) / UNITS[self.form]
        if self.form == EXCEL:
            moment = EXCEL_START + datetime.timedelta(milliseconds=round(float(cell) * 86_400_000))
        elif self.form == TICKS:
            moment = datetime.datetime.min + datetime.timedelta(microseconds=float(cell) / 10)
        elif self.form == MAIL:
            moment = self._of_mail(cell)
        elif self.form == ISO:
            if cell.endswith(" UTC"):  # as BigQuery writes it
                cell = cell[:-4] + "Z"
            if not _ISO.match(cell):  # Python takes any character between date and time
                raise ValueError("neither T nor a space between date and time")
            moment = datetime.datetime.fromisoformat(cell)
        elif "%Z" in self.form:
            return self._with_named_zone(cell)
        else:
            moment = _checked(cell, datetime.datetime.strptime(cell, self.form))
            _check_digits(cell, self.form)
        return moment if moment.tzinfo else moment.replace(tzinfo=zoneinfo.ZoneInfo(self.zone))

    def _of_mail(self, cell: str) -> datetime.datetime:
        if not _MAIL.fullmatch(cell):
            raise ValueError("neither the format nor a time zone")
        moment = _checked(cell, email.utils.parsedate_to_datetime(cell))
        if " -0000" in cell:
            return moment.replace(tzinfo=datetime.UTC)
        name = _US_NAMES.search(cell)
        local = name and _named(moment, self.zone, name[0])
        return local or moment

    def _with_named_zone(self, cell: str) -> datetime.datetime:
        """Return a time whose cell names a zone: `strptime` itself would ignore the name."""
        form, fault = self.form.replace("%Z", "%z"), "neither the format nor a time zone"
        for name in re.findall(r"\b[A-Z]+\b", cell):
            with contextlib.suppress(ValueError):
                moment = datetime.datetime.strptime(cell.replace(name, "+0000", 1), form)
                fault = f"no zone of {self.zone}, UTC or RFC 2822: --time-zone names another"
                for zone in (self.zone, *_NAMED_ZONES):
                    if local := _named(moment, zone, name):
                        return local
        raise ValueError(fault)

    def fits(self, cell: str, end: int = END_OF_TIME) -> bool:
        """Return whether a cell is a time of this format, before an end in seconds."""
        try:
            return self.parse(cell) < 1000 * end
        except ValueError:
            return False


def _check_digits(cell: str, form: str) -> None:
    """Refuse a time with too few digits for the directives that follow each other in a format.

    Python would split them as it likes: 115 is 11:05 for ``%H%M``.

    >>> _check_digits("2026-1-5 0115", "%Y-%m-%d %H%M")
    >>> _check_digits("115", "%H%M")
    Traceback (most recent call last):
    ValueError: 3 digits in '115': expected 4 for '%H%M'
    """
    groups = re.findall(r"(?:%[YymdHMSjI])+", form)
    for group, digits in zip(groups, re.findall(r"\d+", cell), strict=False):
        length = sum(_LENGTHS.get(directive, 2) for directive in group[1::2])
        if len(group) > 2 and "%f" not in form and len(digits) != length:
            raise ValueError(f"{len(digits)} digits in {digits!r}: expected {length} for {group!r}")


def _checked(cell: str, moment: datetime.datetime) -> datetime.datetime:
    """Return a cell's time, unless the cell has another day of the week."""
    if (day := _WEEKDAYS.search(cell)) and f"{moment:%a}" != day[0]:
        raise ValueError(f"{moment:%Y-%m-%d} is a {moment:%A}")
    return moment


def _named(moment: datetime.datetime, zone: str, name: str) -> datetime.datetime | None:
    """Return a local time of a zone in UTC, if the zone has this name then."""
    both = (moment.replace(tzinfo=zoneinfo.ZoneInfo(zone), fold=fold) for fold in (0, 1))
    return next((local.astimezone(datetime.UTC) for local in both if local.tzname() == name), None)


def _clock_change(moment: float | datetime.datetime) -> str:
    if not isinstance(moment, datetime.datetime):
        return ""
    first, second = (moment.replace(fold=fold).astimezone(datetime.UTC) for fold in (0, 1))
    return "" if first == second else REPEATED if first < second else SKIPPED


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
            f"{place}: {shortened(first)} and all other cells fit {listed}: choose one, with "
            f"--time-format {fitting[0].form!r} for instance"
        )
    return fitting[0] if fitting else max(forms, key=lambda form: sum(map(form.fits, sample)))


def _kind(cell: str) -> str:
    """Return the unit in which a number is a time between `FIRST` and `LAST`, or what it is."""
    if not _NUMBER.fullmatch(cell):
        return NO_NUMBER
    if re.match(r"0\d", cell):
        return NO_UNIT
    units = (unit for unit, parts in UNITS.items() if FIRST <= float(cell) / parts < LAST)
    return next(units, NO_UNIT)


def _one_unit(kinds: dict[str, str], rows: dict[str, int], place: str, zone: str) -> TimeFormat:
    """Return the format of numbers, from each kind's first cell and each cell's first row."""
    if len(kinds) > 1:
        firsts = sorted((rows[cell], cell, kind) for kind, cell in kinds.items())
        listed = " and ".join(
            f"{shortened(cell)} (row {row}: {kind})" for row, cell, kind in firsts
        )
        raise ValueError(
            f"{place} has {listed}: expected times of one kind. Write them alike; --missing TEXT "
            "marks a cell without a time, --time-format says what all of them are"
        )
    [(unit, first)] = kinds.items()
    sample, ending = [*rows][:_SAMPLE], ".0" * first.endswith(".0")
    length = len(first.removesuffix(ending))
    digits = _DIGITS | _SHORT_YEARS
    length = 17 if length in {15, 16} else length  # fractions of a second may be short
    texts = [form + ending * (form != TICKS) for form in digits if digits[form] == length]
    forms = [TimeFormat(text, zone) for text in (*texts, EXCEL)]
    likely = [f for f in forms if 2 * sum(f.fits(cell, LAST) for cell in sample) >= len(sample)]
    if unit != NO_UNIT:  # a number of seconds seldom reads as a short year: all of them do not
        short = {form + ending for form in _SHORT_YEARS}
        likely = [f for f in likely if f.form not in short or all(f.fits(c, LAST) for c in rows)]
    if unit != NO_UNIT and not likely:
        return TimeFormat(unit, zone)
    likely += [TimeFormat("seconds" if unit == NO_UNIT else unit)]
    readings = ((f.form, _shown(f.parse(first))) for f in likely if f.fits(first))
    reads = ", ".join(f"--time-format {form} reads {time}" for form, time in readings)
    raise ValueError(
        f"{place}: {shortened(first)} (row {rows[first]}) is a number that may mean several times, "
        f"or none. Say which: {reads or '--time-format FORMAT'}; --missing TEXT marks a cell "
        "without a time"
    )


def _shown(time_ms: int) -> str:
    moment = UNIX_EPOCH + datetime.timedelta(milliseconds=time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def read_time_columns(
    path: str | Path,
    cells: Mapping[str, Sequence[str]],
    columns: Sequence[str],
    time_format: str | None = None,
    zone: str = UTC,
    missing: frozenset[str] = MISSING,
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the event times of a table's columns, joined by spaces, and notes on them.

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
    list of str
        The format, the zone, and the first and the last time; then what is odd about some.

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
    place = f"{path}: column {shortened(' '.join(columns))}"
    form = TimeFormat(time_format, zone) if time_format else detect_time_format(texts, place, zone)
    moments = {"": (-1, "")}
    for number, text in enumerate(texts, 1):
        try:
            moments[text] = moments[text] if text in moments else form.parse_local(text)
        except ValueError as error:
            raise ValueError(
                f"{place}, row {number}: {shortened(text)} is no event time: expected {form.form} "
                f"({shortened(str(error))[1:-1]}); --missing TEXT marks a cell without a time, "
                "--time-format ('%d/%m/%Y %H:%M', seconds or excel for instance) says how all are "
                "written"
            ) from None
    times = np.array([moments[text][0] for text in texts], dtype=np.int64)
    known = times[times >= 0]
    span = f"; {_shown(int(known.min()))} to {_shown(int(known.max()))}" if known.size else ""
    return times, [f"times: {form}{span}", *_oddities(times, texts, moments, form)]


def _oddities(
    times: NDArray[np.int64],
    texts: Sequence[str],
    moments: Mapping[str, tuple[int, str]],
    form: TimeFormat,
) -> list[str]:
    """Return notes on times that may mean something else."""
    is_known = times >= 0
    seconds = np.where(is_known, times / 1000, np.nan)
    far = is_far(seconds) | (seconds < FIRST) | (seconds >= LAST)
    odd = {
        "are far from all others, or not of 1980 to 2099 (--missing TEXT leaves one out)": far,
        "are later than now": (seconds > time.time()) & ~far,
    }
    for change in sorted({change for _, change in moments.values()} - {""}):
        odd[change] = np.array([moments[text][1] == change for text in texts])
    notes = []
    for what, rows in odd.items():
        if rows.any():
            first = int(np.argmax(rows))
            notes.append(
                f"times: {np.count_nonzero(rows):,} of {np.count_nonzero(is_known):,} {what}; the "
                f"first is {shortened(texts[first])} (row {first + 1:,})"
            )
    if form.form == MAIL or "%Z" in form.form:
        months = (datetime.datetime(2020, month, 1) for month in (1, 7))
        own = {moment.replace(tzinfo=zoneinfo.ZoneInfo(form.zone)).tzname() for moment in months}
        names = {name for text in moments for name in _US_NAMES.findall(text)}
        notes += [f"times: {name} is read as in {form.zone}" for name in sorted(names & own)]
        notes += [
            f"times: {name} is read as in the United States; if --time-zone names a zone that has "
            f"{name}, as in that one"
            for name in sorted(names - own)
        ]
    return notes
