"""Timestamps of event time, and their text: ISO 8601 in UTC."""

from __future__ import annotations

import datetime
import functools
import math
import numbers
import re
from typing import overload

UNIX_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last time of ISO 8601's years 1 to 9999."""
YEAR_OR_DATE = re.compile(r"\d{4,8}|\d{12}")
DIGITS_HINT = (
    "not milliseconds; 4 to 8 or 12 digits alone could be a year or a date: write 2013-01-01, or "
    "2013.0 if they are seconds"
)


def utc(ms: int) -> datetime.datetime:
    """Return a datetime in UTC, clipped to the years 1 to 9999."""
    return UNIX_EPOCH + datetime.timedelta(milliseconds=max(FIRST_MS, min(ms, LAST_MS)))


@overload
def iso(ms: int) -> str: ...
@overload
def iso(ms: None) -> None: ...
@functools.lru_cache(maxsize=4_096)
def iso(ms: int | None) -> str | None:
    """Return a time as ISO 8601 in UTC, clipped to the years 1 to 9999.

    Examples
    --------
    >>> iso(1_357_000_000_000), iso(1_500)
    ('2013-01-01T00:26:40Z', '1970-01-01T00:00:01.500Z')
    """
    if ms is None:
        return None
    precision = "milliseconds" if ms % 1000 else "seconds"
    return utc(ms).isoformat(timespec=precision).replace("+00:00", "Z")


def format_time(ms: int) -> str:
    """Return a time as text for a message; it may be beyond the calendar.

    Examples
    --------
    >>> format_time(0), format_time(2**62)
    ('1970-01-01T00:00:00Z', '4611686018427387904 ms')
    """
    return iso(ms) if FIRST_MS <= ms <= LAST_MS else f"{ms} ms"


OTHER_FRACTION = re.compile(r"[Tt ]\d\d(:?\d\d)?[.,]")
"""The fraction of an hour or a minute, which Python would read as the fraction of a second."""


def from_iso(text: str) -> float:
    """Return a time in ISO 8601 as seconds since the epoch; without a time zone it is in UTC.

    Raises ValueError if the text is no such time, or has a fraction of an hour or a minute.

    Examples
    --------
    >>> from_iso("1970-01-02"), from_iso("1970-01-02T00:00:00.5+01:00")
    (86400.0, 82800.5)
    """
    if OTHER_FRACTION.search(text):
        raise ValueError(f"{text}: only seconds may have a fraction: expected 10:30:00.5 or 10:30")
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def parse_time(text: str) -> float:
    """Return a time in ISO 8601, or in seconds, as seconds since the epoch.

    Raises ValueError if the text is no time, is beyond the years 1 to 9999 (as milliseconds would
    be), or consists of four to eight, or of twelve, digits: these could be a year, a month, a
    spreadsheet's day or a date.

    Examples
    --------
    >>> parse_time("1.5"), parse_time("1970-01-01T00:00:01.500Z")
    (1.5, 1.5)
    """
    if YEAR_OR_DATE.fullmatch(text.strip()):
        raise ValueError(f"{text}: {DIGITS_HINT}")
    try:
        seconds = float(text)
    except ValueError:
        seconds = from_iso(text)
    if not FIRST_MS <= 1000 * seconds <= LAST_MS:
        raise ValueError(f"{text}: beyond the years 1 to 9999")
    return seconds


def to_seconds(moment: object) -> float:
    """Return a time as seconds since the epoch.

    Parameters
    ----------
    moment : datetime with a time zone, str, int or float
        A string and an integer are read by :func:`parse_time`. A datetime without a time zone is
        refused, because Python would take it for local time.

    Raises
    ------
    ValueError
        If the value is none of these, or is beyond the years 1 to 9999.

    Examples
    --------
    >>> to_seconds(UNIX_EPOCH), to_seconds("1970-01-02"), to_seconds(1.5)
    (0.0, 86400.0, 1.5)
    """
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is None:
            raise ValueError(
                f"time {moment.isoformat()}: expected one with a time zone, as in +00:00"
            )
        seconds = moment.timestamp()
    elif isinstance(moment, bool) or not isinstance(moment, str | numbers.Real):
        seconds = math.nan
    else:
        is_read = isinstance(moment, str | numbers.Integral)
        try:
            seconds = parse_time(str(moment)) if is_read else float(moment)
        except (ValueError, OverflowError):
            seconds = math.nan
    if not FIRST_MS <= 1000 * seconds <= LAST_MS:
        raise ValueError(
            f"time {moment if isinstance(moment, float) else repr(moment)}: expected seconds since "
            f"the epoch, or a datetime with a time zone, or a string such as 2013-01-31; "
            f"{DIGITS_HINT}"
        )
    return seconds
