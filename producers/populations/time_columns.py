"""Reads event times from the cells of a table; detects their format or unit, and time zones."""

from __future__ import annotations

import calendar
import contextlib
import dataclasses
import datetime
import email.utils
import itertools
import re
import shlex
import time
import unicodedata
import zoneinfo
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.errors import shortened
from producers.device.event_times import END_OF_TIME, UNIX_EPOCH, event_times
from producers.populations.csv_files import Table, label_rows_remedy, positions, visible
from producers.populations.far_values import is_far

MISSING_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "NAN", "NULL", "null", "None"})
"""Texts of cells that have no number and no time."""
UTC = "UTC"
ISO_FORMAT = "ISO 8601"
UNITS_PER_SECOND = {
    "seconds": 1,
    "milliseconds": 10**3,
    "microseconds": 10**6,
    "nanoseconds": 10**9,
}
EARLIEST_SECONDS, LATEST_SECONDS = 315_532_800, 4_102_444_800
"""The years 1980 to 2099, in seconds since the epoch; other numbers are not taken for times."""
NO_NUMBER, NO_UNIT = "no number", "no time of 1980 to 2099 in any unit"
EXCEL_FORMAT = "excel"
DAY_NUMBER_STARTS = {
    EXCEL_FORMAT: datetime.datetime(1899, 12, 30),
    "days": datetime.datetime(1970, 1, 1),
}
"""The date of day 0, for each format of day numbers."""
DAY_MS = 86_400_000
TICKS_FORMAT = "ticks"
"""The format of .NET's ticks: units of 100 ns since the year 1."""
MAIL_FORMAT = "RFC 2822, as in Thu, 31 Jan 2013 10:00:00 +0100"
_MAIL_PATTERN = re.compile(
    r"([A-Za-z]{3},\s*)?\d{1,2}\s+[A-Za-z]{3}\s+\d{4}\s+\d{1,2}:\d{2}(:\d{2})?"
    r"(\s+([+-]\d{4}|(?P<name>[A-Z]{2,5}))(\s*\(.*\))?)?"
)
_ISO_PATTERN = re.compile(r"[\dW-]+($|[T ]\d)(?!(\d:?\d)?\d[.,]|\d[-+])")
"""ISO 8601 without fractions of hours and minutes, which Python would read as fractions of
seconds, and without hours from 10-11, which it would read with a time zone."""
_STRETCH = re.compile(r"(?<=[T ])(\d\d?(?::?\d\d)?)[-\u2013](\d\d?(?::?\d\d)?)$")
"""A stretch of time, or a time and the offset of its time zone."""
_ZONE_NAME = re.compile(r"(?<=[0-9M] )(?!AM$|PM$|BC$)([A-Z]{2,5}|\w+/\w+)(?=$| \d{4}$)")
_UNKNOWN_ZONE = "no zone of {}, UTC or RFC 2822: --time-zone names another"
_US_NAMES = re.compile(r"(?<=[0-9M] )[ECMP][SD]T\b")
"""Names of time zones after a time that are not used in the United States alone."""
_WEEKDAY_PATTERN = re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)")
_NAMED_ZONES = (UTC, "GMT", "EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT")
_DATE_ORDERS = ("dmy", "mdy", "ymd")
_DATE_FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y-%m-%d")
_OTHER_DATES: tuple[str, ...] = ("%Y%m%d", "%Y.%m.%d", "%Y:%m:%d", "%Y %m %d")
_OTHER_DATES += ("%d %b %Y", "%b %d %Y", "%Y %b %d", "%d %b %y")
_MONTH_FORMATS = ("%Y-%m", "%m/%Y", "%b %Y")
_SHORT_DATES = tuple(
    f"%{mark.join(order)}".replace(mark, f"{mark}%") for mark in "/.-" for order in _DATE_ORDERS
)
"""Formats of dates with years of two digits, in each order in use. Most such dates fit several of
these formats, and the user must choose one."""
_CLOCK_TIMES = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M:%S %p", "%I:%M:%S.%f %p")
_ZONED_CLOCKS = (f" {clock}{zone}" for clock in _CLOCK_TIMES for zone in ("", " %z", " %Z"))
_CLOCK_FORMATS = ("", " %H", " %H %M", " %I %p", " %I:%M %p", *_ZONED_CLOCKS)
STRPTIME_FORMATS = (
    *(
        tuple(date + clock for clock in _CLOCK_FORMATS)
        for date in (*_DATE_FORMATS, *_OTHER_DATES, *_SHORT_DATES)
    ),
    *((month,) for month in _MONTH_FORMATS),
    tuple(f"%b %d %H:%M:%S {year}" for year in ("%Y", "%z %Y", "%Z %Y", "%Y %z")),
)
"""The formats that are tried after ISO 8601 and before RFC 2822; a column may mix formats that have
the same date format."""
_YEAR_DIRECTIVE = re.compile(r"%[YyGcx]")
EITHER = " or "  # between several formats of one column
WRITE_ISO = "write times as 2026-01-31 10:00:00"
DATE_FIRST = "a time of day needs its date: --time-column DATE --time-column TIME"
_CLOCK_TITLE = re.compile(r"time|hour|clock|zeit|heure|hora|[時时]", re.IGNORECASE)
_MIDNIGHT = re.compile(
    r"[T ](0?0:00(:00([.,]0+)?)?|12:00:00 AM)$"
)  # which databases write after a date
_TIME_OF_DAY = re.compile(r"\d{1,2}[:h]\d\d\b")
_END_OF_DAY = re.compile(r"(?<=[T ])24(?=([:h]00){1,2}([.,]0+)?(?![\d:.,]))")
"""The hour 24 of a midnight that belongs to the day before, as ISO 8601 allows."""
_NAMED_MONTH = re.compile(r"\d\.?[ -](?:de )?([^\W\d_]{3,}\.?)[ -](?:de )?\d{2,4}\b(?!:)")
_LONG_MONTHS = "|".join([*calendar.month_name[1:], *calendar.month_abbr[1:], "Sept"])
_SPELLING_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"[\u2010-\u2015\u2212]", "-"),
        (r"^[\[('\"“]+|(?<=\d)[\])'\"”]+$", ""),
        (r"(?![0-9])\d", lambda digit: str(int(digit[0]))),  # of other scripts
        (r"\(?\b(gmt|utc) ?(?=[+-]\d)", ""),  # of JavaScript
        (r"(?<= )([+-])(\d)(?=(:\d\d)?$)", r"\g<1>0\2"),
        (r"(?<=[\dm] [+-]\d\d)$", ":00"),
        (  # also of Java, Go
            r"(:\d\d([.,]\d+)? ?(z|[+-]\d\d:?\d\d)) ?(\(.*\)|\[.*\]|[a-z]{2,5})( m=.*)?$",
            r"\1",
        ),
        (r"(?<=:\d\d)([+-]\d\d:?\d\d|z)$", lambda zone: f" {zone[0].upper()}"),
        (r"^(mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? ", ""),
        (rf"[-./ ]*(?<![a-z])({_LONG_MONTHS})(?![a-z])[-./ ]*", lambda month: f" {month[1][:3]} "),
        (r"(?<=\d)(st|nd|rd|th)\b", ""),
        (r"(?<=\d)( ?[;|_@] ?| - | ,| ?t ?(?=\d\d:?\d\d))(?=\d)|,? (at|um|às?|klo?\.?|@) |, ", " "),
        (r"(?<=\d{4}):(?=\d\d:\d\d:\d\d)|(?<=[-/]\d\d)-(?=\d\d([.:])\d\d\1)", " "),  # Apache, DB2
        (r"^(\d{4})\. ?(\d\d?)\. ?(\d\d?)\.?", r"\1-\2-\3"),  # of Korea, Hungary
        (r"^(\d\d?)\. ?(\d\d?)\. ?(\d{4})\.?(?= |$)", r"\1.\2.\3"),  # of Finland
        (r" ?\([^\x00-\x7f]\)(?= |$)", ""),  # weekdays of East Asia
        (r"(\d{4})[年년] ?(\d\d?)[月월] ?(\d\d?)[日일]", r"\1-\2-\3"),
        (r"(?<=\d)[時时시分분] ?(?=\d)", ":"),
        (r"(?<=\d) ?([時时시分분초秒]|uhr|uur|h)$", ""),
        (r"(?<=\d )(\d\d?)([.-])(\d\d)\2(\d\d)(?!\d)", r"\1:\3:\4"),
        (r"(?<=\d )(\d\d?)[.h](\d\d)(?![\d.])", r"\1:\2"),
        (r"(?<=:\d\d)[.,](\d{1,6})\d*", r".\1"),
        (r"(上午|午前|오전) ?(\S+)", r"\2 AM"),
        (r"(下午|午後|오후) ?(\S+)", r"\2 PM"),
        (r"(?<=\d) ?([ap])\.? ?m?\b\.?", r" \1m"),
        (r"(?<= )00?(?=:\d\d\S* [ap]m)", "12"),  # of Japan
        (r"^(\d\d?:\d\d\S*( [ap]m)?) ((\d|[a-z]{3} \d).*)", r"\3 \1"),  # of Vietnam
    )
)
"""Patterns of spellings that people use, and the spelling that the detected formats have."""
_ENGLISH_MONTHS = {*calendar.month_name, *calendar.month_abbr}
_DIGIT_FORMATS = {"%Y": 4, "days": 5} | dict.fromkeys(("%Y%m", "%y%m%d", "%d%m%y", "%m%d%y"), 6)
_DIGIT_FORMATS |= {"%Y%j": 7} | dict.fromkeys(("%Y%m%d", "%d%m%Y", "%m%d%Y"), 8) | {"%Y%m%d%H": 10}
_DIGIT_FORMATS |= {"%Y%m%d%H%M": 12, "%Y%m%d%H%M%S": 14, "%Y%m%d%H%M%S%f": 17, TICKS_FORMAT: 18}
_STRPTIME_DIRECTIVES = "aAbBcdfGHIjmMpSuUVwWxXyYzZ"
_WHOLE_FORMATS = (*UNITS_PER_SECOND, *DAY_NUMBER_STARTS, TICKS_FORMAT, ISO_FORMAT, MAIL_FORMAT)
_DIRECTIVE_DIGITS = {"Y": 4, "j": 3}
_SHORT_YEARS = {"%y%m%d%H%M": 10, "%y%m%d%H%M%S": 12}
"""Digits of all-digit formats; numbers with short years may instead be times in a unit."""
_NUMBER_PATTERN = re.compile(r"\d+([.,]\d*)?")
_SIGNED_NUMBER = re.compile(rf"-?{_NUMBER_PATTERN.pattern}")
_NEEDED_DIRECTIVES = {
    "U": ("Yy", "aAwu"),
    "W": ("Yy", "aAwu"),
    "d": ("mbB",),
    "p": ("I",),
    "I": ("p",),
}
_NEEDED_DIRECTIVES |= {"H": ("djcxaAwu",), "M": ("HI",)}
"""Directives that `strptime` ignores or misreads unless the format has one of each of these
groups."""
SKIPPED_NOTE = "were skipped when clocks were set: read as if clocks were set after them"
REPEATED_NOTE = "came twice when clocks were set: read as the first"
_SAMPLE_CELLS = 50
"""The number of distinct cells from which the expected format in an error is chosen."""


@dataclasses.dataclass(frozen=True)
class TimeFormat:
    """The format of event times.

    Attributes
    ----------
    form : str
        `ISO_FORMAT`, `MAIL_FORMAT`, `TICKS_FORMAT`, a key of `DAY_NUMBER_STARTS`, a key of
        `UNITS_PER_SECOND` for units since the epoch, or formats of `strptime`, joined by `EITHER`.
    zone : str
        The IANA name of the time zone of times that do not state one.

    Raises
    ------
    ValueError
        If there is no such zone or format, or `strptime` would ignore a part of the format.
    """

    form: str = ISO_FORMAT
    zone: str = UTC

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown zone or format, or one that `strptime` misreads."""
        directives = {*re.findall(r"%(.?)", self.form.replace("%%", ""))}
        if not (
            directives <= {*_STRPTIME_DIRECTIVES} if directives else self.form in _WHOLE_FORMATS
        ):
            raise ValueError(
                f"time format {self.form!r}: expected {', '.join(_WHOLE_FORMATS[:-1])}, or "
                "directives of strptime such as %Y-%m-%d %H:%M:%S (%b: Jan, %y: 26, %I %p: 9 PM)"
            )
        for directive, needed in _NEEDED_DIRECTIVES.items():
            for companions in needed if directive in directives else ():
                if directives.isdisjoint(companions):
                    raise ValueError(
                        f"time format {self.form!r}: %{directive} says nothing without "
                        f"{' or '.join('%' + letter for letter in companions)}: expected one of "
                        "them, too"
                    )
        if self.zone != UTC and re.search(r"(?<!%)([Zz]|UTC|GMT)$", self.form):
            raise ValueError(
                f"time format {self.form!r}: its end says UTC: expected %z in place of Z, or no "
                f"other time zone, and not {self.zone}"
            )
        try:
            zoneinfo.ZoneInfo(self.zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            raise ValueError(
                f"time zone {self.zone!r}: expected an IANA name such as Europe/Berlin, UTC, or "
                "Etc/GMT-2 for UTC+02:00"
            ) from None

    def __str__(self) -> str:
        """Return a human-readable description of the format."""
        if self.form in UNITS_PER_SECOND:
            return f"{self.form} since the epoch"
        return f"{self.form}; times without a zone are in {self.zone}"

    def parse(self, cell: str) -> tuple[int, str]:
        """Return a cell's time in ms since the epoch, and a note.

        The note is `SKIPPED_NOTE` or `REPEATED_NOTE` if clocks changed, else "". Raises ValueError
        if the cell has another format.
        """
        fault = ""
        cell, days = _END_OF_DAY.subn("00", cell)
        for text, form in itertools.product(
            dict.fromkeys((cell, _plain(cell))), self.form.split(EITHER)
        ):
            try:
                moment = self._moment(text, form, cell)
                if isinstance(moment, datetime.datetime):
                    moment += datetime.timedelta(days)
                return int(event_times(moment, 1)[0]), _clock_change(moment)
            except (ValueError, OverflowError, re.error) as error:
                fault = fault or str(error)
        raise ValueError(fault)

    def _moment(self, cell: str, form: str, as_written: str) -> float | datetime.datetime:
        if form in UNITS_PER_SECOND:
            return _number(cell) / UNITS_PER_SECOND[form]
        if form in DAY_NUMBER_STARTS:
            since_start = datetime.timedelta(milliseconds=round(_number(cell) * DAY_MS))
            moment = DAY_NUMBER_STARTS[form] + since_start
        elif form == TICKS_FORMAT:
            moment = datetime.datetime.min + datetime.timedelta(microseconds=_number(cell) / 10)
        elif form == MAIL_FORMAT:
            moment = self._of_mail(cell, as_written)
        elif form == ISO_FORMAT:
            if cell.endswith(" UTC"):  # as BigQuery writes it
                cell = cell[:-4] + "Z"
            if not _ISO_PATTERN.match(cell):  # Python takes any character between date and time
                raise ValueError("neither a date, nor T or a space between it and a time")
            moment = datetime.datetime.fromisoformat(cell)
        elif "%Z" in form:
            return self._with_named_zone(cell, form.replace("%Z", "%z"), as_written)
        else:
            moment = _checked(as_written, datetime.datetime.strptime(cell, form))
            _check_digits(cell, form)
        return moment if moment.tzinfo else moment.replace(tzinfo=zoneinfo.ZoneInfo(self.zone))

    def _of_mail(self, cell: str, as_written: str) -> datetime.datetime:
        mail = _MAIL_PATTERN.fullmatch(cell)
        if mail is None:
            raise ValueError("neither the format nor a time zone")
        moment = _checked(as_written, email.utils.parsedate_to_datetime(cell))
        if " -0000" in cell:
            return moment.replace(tzinfo=datetime.UTC)
        local = mail["name"] and _named(moment, self.zone, mail["name"])
        if mail["name"] and not local and not moment.tzinfo:  # Python ignores unknown names
            raise ValueError(f"{mail['name']} is {_UNKNOWN_ZONE.format(self.zone)}")
        return local or moment

    def _with_named_zone(self, cell: str, form: str, as_written: str) -> datetime.datetime:
        """Return the time of a cell with a zone name, which `strptime` would ignore."""
        fault = "neither the format nor a time zone"
        for name in re.findall(r"\b[A-Z]+\b", cell):
            with contextlib.suppress(ValueError):
                utc = cell.replace(name, "+0000", 1)
                moment = _checked(as_written, datetime.datetime.strptime(utc, form))
                fault = f"{name} is {_UNKNOWN_ZONE.format(self.zone)}"
                for zone in (self.zone, *_NAMED_ZONES):
                    if local := _named(moment, zone, name):
                        return local
        raise ValueError(fault)

    def fits(self, cell: str, end: int = END_OF_TIME) -> bool:
        """Return whether a cell has this format, and its time is before `end` (Unix seconds)."""
        try:
            return self.parse(cell)[0] < 1000 * end
        except ValueError:
            return False


def _plain(cell: str) -> str:
    """Return a time in the spelling of the detected formats.

    >>> _plain("Sat Jan 03 2026 09:05:07 GMT+0100 (CET)"), _plain("January 3rd, 2026 at 9:05AM")
    ('Jan 03 2026 09:05:07 +0100', 'Jan 3 2026 9:05 Am')
    """
    cell = unicodedata.normalize("NFKC", visible(cell))
    for pattern, replacement in _SPELLING_RULES:
        cell = pattern.sub(replacement, cell)
    return cell.strip()


def _number(cell: str) -> float:
    return float(cell.replace(",", "."))


def _check_digits(cell: str, form: str) -> None:
    """Raise ValueError if digits are missing where directives follow each other without a mark.

    Python would divide them anyhow: 115 is 11:05 for ``%H%M``.

    >>> _check_digits("2026-1-5 0115", "%Y-%m-%d %H%M")
    >>> _check_digits("115", "%H%M")
    Traceback (most recent call last):
    ValueError: 3 digits in '115': expected 4 for '%H%M'
    """
    groups = re.findall(r"(?:%[YymdHMSjI])+", form)
    for group, digits in zip(groups, re.findall(r"\d+", cell), strict=False):
        length = sum(_DIRECTIVE_DIGITS.get(directive, 2) for directive in group[1::2])
        if len(group) > 2 and "%f" not in form and len(digits) != length:
            raise ValueError(f"{len(digits)} digits in {digits!r}: expected {length} for {group!r}")


def _translation(cell: str) -> str:
    """Return what to do about a cell's zone name, or name of a month that is not English."""
    if zone := _ZONE_NAME.search(cell):
        place = zone[0] if "/" in zone[0] else "REGION/CITY"
        return f". If {zone[0]} is a time zone, --time-zone {place} names it" + (
            f", and times are {'without it' if '/' in zone[0] else 'with its English name or none'}"
        )
    month = _NAMED_MONTH.search(cell)
    if month is None or _ENGLISH_MONTHS.intersection(re.findall(r"\w+", cell.title())):
        return ""
    expression = shlex.quote(f"s/{re.escape(month[1])}/Jan/")
    return f". Months are read in English: `sed {expression} FILE` renames one to Jan"


def _checked(cell: str, moment: datetime.datetime) -> datetime.datetime:
    """Return a time; raise ValueError if the cell names another day of the week."""
    if (day := _WEEKDAY_PATTERN.search(cell)) and f"{moment:%a}" != day[0]:
        raise ValueError(f"{moment:%Y-%m-%d} is a {moment:%A}")
    return moment


def _named(moment: datetime.datetime, zone: str, name: str) -> datetime.datetime | None:
    """Return a local time in UTC; None if the zone does not have this name then."""
    moments = (moment.replace(tzinfo=zoneinfo.ZoneInfo(zone), fold=fold) for fold in (0, 1))
    return next(
        (local.astimezone(datetime.UTC) for local in moments if local.tzname() == name), None
    )


def _clock_change(moment: float | datetime.datetime) -> str:
    if not isinstance(moment, datetime.datetime):
        return ""
    first, second = (moment.replace(fold=fold).astimezone(datetime.UTC) for fold in (0, 1))
    return "" if first == second else REPEATED_NOTE if first < second else SKIPPED_NOTE


def detect_time_format(cells: Sequence[str], location: str, zone: str = UTC) -> TimeFormat:
    """Return the format of all cells that are not empty, or else of most of the first cells.

    Parameters
    ----------
    cells : sequence of str
        The cell of each row.
    location : str
        The file and the column, for errors.
    zone : str
        The time zone of times that do not state one.

    Raises
    ------
    ValueError
        If the user has to choose, because the cells fit two formats, as 01/02/2013 does, are
        ambiguous numbers, or have several units.
    """
    rows: dict[str, int] = {}
    for row, cell in enumerate(cells, 1):
        rows.setdefault(cell, row)
    rows.pop("", None)
    if _are_stretches(rows):
        raise ValueError(
            f"{location}: {shortened(next(iter(rows)))} and all other cells are stretches of time: "
            f"expected one time in each, such as the start; {WRITE_ISO}"
        )
    kinds = {_kind(cell): cell for cell in reversed(rows)}
    if kinds.keys() - {NO_NUMBER}:
        return _one_unit(kinds, rows, location, zone)
    if all(map(TimeFormat(zone=zone).fits, rows)):
        return TimeFormat(zone=zone)
    first, *_ = sample = [*rows][:_SAMPLE_CELLS]
    families = [
        [TimeFormat(form, zone) for form in forms]
        for forms in ((ISO_FORMAT,), *STRPTIME_FORMATS, (MAIL_FORMAT,))
    ]
    fitting = [form for forms in families if (form := _joined(forms, rows)) is not None]
    if len({tuple(form.parse(cell)[0] for cell in rows) for form in fitting}) > 1:
        listed = " and ".join(repr(form.form) for form in fitting)
        raise ValueError(
            f"{location}: {shortened(first)} and all other cells fit {listed}: choose one, with "
            f"--time-format {fitting[0].form!r} for instance"
        )
    if fitting:
        return fitting[-1]
    likely = max(families, key=lambda forms: sum(any(f.fits(c) for f in forms) for c in sample))
    return TimeFormat(EITHER.join(form.form for form in likely), zone)


def _joined(forms: Sequence[TimeFormat], cells: Iterable[str]) -> TimeFormat | None:
    """Return the format, joined from `forms`, that all cells fit; None if a cell fits no form."""
    used: dict[TimeFormat, None] = {}
    for cell in cells:
        form = next((form for form in (*used, *forms) if form.fits(cell)), None)
        if form is None:
            return None
        used[form] = None
    return TimeFormat(EITHER.join(form.form for form in used), forms[0].zone)


def _kind(cell: str) -> str:
    """Return the unit in which a number is a time from 1980 to 2099, `NO_NUMBER` or `NO_UNIT`."""
    if not _SIGNED_NUMBER.fullmatch(cell):
        return NO_NUMBER
    if re.match(r"0\d", cell):
        return NO_UNIT
    for unit, parts in UNITS_PER_SECOND.items():
        if EARLIEST_SECONDS <= _number(cell) / parts < LATEST_SECONDS:
            return unit
    return NO_UNIT


def _one_unit(kinds: dict[str, str], rows: dict[str, int], location: str, zone: str) -> TimeFormat:
    """Return the format of numbers, given the first cell of each kind and the row of each cell."""
    if len(kinds) > 1:
        firsts = sorted((rows[cell], cell, kind) for kind, cell in kinds.items())
        listed = " and ".join(
            f"{shortened(cell)} (row {row}: {kind})" for row, cell, kind in firsts
        )
        raise ValueError(
            f"{location} has {listed}: expected times of one kind. Write them alike; --missing "
            "TEXT marks a cell without a time, --time-format says what all of them are"
        )
    [(unit, first)] = kinds.items()
    sample, ending = [*rows][:_SAMPLE_CELLS], ".0" * first.endswith(".0")
    length = len(first.removesuffix(ending))
    digits = _DIGIT_FORMATS | _SHORT_YEARS
    length = 17 if length in {15, 16} else length  # fractions of a second may be short
    texts = [form + ending * form.startswith("%") for form in digits if digits[form] == length]
    forms = [TimeFormat(text, zone) for text in (*texts, EXCEL_FORMAT)]
    likely = [
        f for f in forms if 2 * sum(f.fits(cell, LATEST_SECONDS) for cell in sample) >= len(sample)
    ]
    if unit != NO_UNIT:  # a number of seconds seldom reads as a short year: all of them do not
        short = {form + ending for form in _SHORT_YEARS}
        likely = [
            f for f in likely if f.form not in short or all(f.fits(c, LATEST_SECONDS) for c in rows)
        ]
    if unit != NO_UNIT and not likely:
        return TimeFormat(unit, zone)
    likely += [TimeFormat("seconds" if unit == NO_UNIT else unit)]
    readings = ((f.form, _shown(f.parse(first)[0])) for f in likely if f.fits(first))
    reads = ", ".join(f"--time-format {form} reads {time}" for form, time in readings)
    raise ValueError(
        f"{location}: {shortened(first)} (row {rows[first]}) is a number that may mean several "
        f"times, or none. Say which{f': {reads}' * bool(reads)}, or {WRITE_ISO}; --missing TEXT "
        "marks a cell without a time"
    )


def _shown(time_ms: int) -> str:
    moment = UNIX_EPOCH + datetime.timedelta(milliseconds=time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _are_stretches(cells: Collection[str]) -> bool:
    """Return whether all cells end with a start and an end, which are not times with offsets."""
    matches = [*filter(None, itertools.takewhile(bool, map(_STRETCH.search, cells)))]
    ends = [match[2] for match in matches if match[1].zfill(5) < match[2].zfill(5)]
    return len(matches) == len(cells) and 2 * len(ends) > len(cells) and len({*ends}) > 2


def read_time_columns(
    table: Table,
    columns: Sequence[str],
    time_format: str | None = None,
    zone: str = UTC,
    missing: frozenset[str] = MISSING_TEXTS,
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the event times in some columns, whose cells are joined by spaces, and notes.

    The times are in ms since the epoch, -1 for a row without a time. The notes are the format, the
    zone, the first and the last time; then notes on doubtful times.

    `table`: the table; `columns`: the columns of times; `time_format`, `zone`:
    as for :class:`TimeFormat`; by default they are detected; `missing`: the texts of cells without
    a time. Raises ValueError like :func:`detect_time_format`; or if a cell is not a time: the error
    names the row and the cell.
    """
    texts, marks = [], {_number(text) for text in missing if _SIGNED_NUMBER.fullmatch(text)}
    for row in zip(*(table.columns[name] for name in columns), strict=True):
        parts = [" ".join(cell.split()) for cell in row]
        text = " ".join([_MIDNIGHT.sub("", parts[0]), *parts[1:]] if parts[1:] else parts)
        is_mark = marks and _SIGNED_NUMBER.fullmatch(text) and _number(text) in marks
        texts.append("" if is_mark or not missing.isdisjoint([text, *parts]) else text)
    location = f"{table.path}: column {shortened(' '.join(columns))}"
    form = (
        TimeFormat(time_format, zone) if time_format else detect_time_format(texts, location, zone)
    )
    moments = {"": (-1, "")}
    for number, text in enumerate(texts, 1):
        try:
            moments[text] = moments[text] if text in moments else form.parse(text)
        except ValueError as error:
            fits = (row for row, cell in enumerate(texts[:9]) if cell and form.fits(cell))
            why = DATE_FIRST if _TIME_OF_DAY.match(text) else shortened(str(error))[1:-1]
            if why != DATE_FIRST and "%" in form.form and not _YEAR_DIRECTIVE.search(form.form):
                why = "the format has no year: write the year into each cell, and %Y into it"
            raise ValueError(
                f"{location}, row {number}: {shortened(text)} is no event time: expected "
                f"{form.form.split(EITHER)[0]} ({why}); --missing TEXT marks a cell without a "
                "time, --time-format ('%d/%m/%Y %H:%M', seconds or excel for instance) says how "
                f"all are written; or {WRITE_ISO}{_translation(text)}"
                + label_rows_remedy(next(fits, 0), text)
            ) from None
    times = np.array([moments[text][0] for text in texts], dtype=np.int64)
    known_times = times[times >= 0]
    span = ""
    if known_times.size:
        span = f"; {_shown(int(known_times.min()))} to {_shown(int(known_times.max()))}"
    notes = [f"times: {form}{span}", *_oddities(times, texts, moments, form)]
    clocks = [
        title
        for title in table.header
        if _CLOCK_TITLE.search(title) and not positions([title], columns[0])
    ]
    if clocks and len(columns) == 1 and not (known_times % 3_600_000).any():
        pair = f"--time-column {columns[0]!r} --time-column {clocks[0]!r}"
        notes.append(f"times: without minutes; {pair} reads both if it has the time of day")
    return times, notes


def _oddities(
    times: NDArray[np.int64],
    texts: Sequence[str],
    moments: Mapping[str, tuple[int, str]],
    form: TimeFormat,
) -> list[str]:
    """Return notes on doubtful times."""
    is_known = times >= 0
    seconds = np.where(is_known, times / 1000, np.nan)
    is_outlier = is_far(seconds) | (seconds <= EARLIEST_SECONDS) | (seconds >= LATEST_SECONDS)
    odd = {
        "are far from all others, or not of 1980 to 2099 (--missing TEXT leaves one out)": (
            is_outlier
        ),
        "are later than now": (seconds > time.time()) & ~is_outlier,
    }
    for change in sorted({change for _, change in moments.values()} - {""}):
        odd[change] = np.array([moments[text][1] == change for text in texts])
    notes = []
    for oddity, rows in odd.items():
        if rows.any():
            first = int(np.argmax(rows))
            notes.append(
                f"times: {np.count_nonzero(rows):,} of {np.count_nonzero(is_known):,} {oddity}; "
                f"the first is {shortened(texts[first])} (row {first + 1:,})"
            )
    if form.form == MAIL_FORMAT or "%Z" in form.form:
        months = (datetime.datetime(2020, month, 1) for month in (1, 7))
        zone_names = {
            moment.replace(tzinfo=zoneinfo.ZoneInfo(form.zone)).tzname() for moment in months
        }
        names = {name for text in moments for name in _US_NAMES.findall(text)}
        notes += [f"times: {name} is read as in {form.zone}" for name in sorted(names & zone_names)]
        notes += [
            f"times: {name} is read as in the United States; if --time-zone names a zone that has "
            f"{name}, as in that one"
            for name in sorted(names - zone_names)
        ]
    return notes
