"""Reads event times from the cells of a table, in their format and time zone."""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from producers.device.times import END, event_times

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"})
"""Texts of cells without a value."""
STANDARD = "ISO 8601 or seconds since the epoch"
MILLISECONDS = "milliseconds since the epoch"
MAIL = "RFC 2822, as in Thu, 31 Jan 2013 10:00:00 +0100"
_MAIL = re.compile(
    r"([A-Za-z]{3},\s*)?\d{1,2}\s+[A-Za-z]{3}\s+\d{4}\s+\d{1,2}:\d{2}(:\d{2})?"
    r"(\s+([+-]\d{4}|UTC?|GMT|[ECMP][SD]T))?(\s*\(.*\))?"
)
"""With the zones that it knows: any other name would be taken for none."""
_DATES = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
FORMATS = tuple(date + clock for date in _DATES for clock in _CLOCKS)
"""Of times that are neither in ISO 8601 nor in RFC 2822, as `strptime` writes formats."""
UTC = "UTC"


@dataclasses.dataclass(frozen=True)
class TimeFormat:
    """The format of event times.

    Attributes
    ----------
    form : str
        `STANDARD`, `MILLISECONDS`, `MAIL`, or a format of `strptime`.
    zone : str
        The IANA name of the time zone for times without one.
    """

    form: str = STANDARD
    zone: str = UTC

    def __post_init__(self) -> None:
        """Check that the zone is known."""
        try:
            zoneinfo.ZoneInfo(self.zone)
        except (ValueError, zoneinfo.ZoneInfoNotFoundError):
            raise ValueError(
                f"time zone {self.zone!r}: expected an IANA name such as Europe/Berlin, or UTC"
            ) from None

    def __str__(self) -> str:
        """Return a description."""
        if self.form == MILLISECONDS:
            return self.form
        return f"{self.form}; times without a zone are in {self.zone}"

    def parse(self, cell: str) -> int:
        """Return a cell's time in ms since the epoch; -1 if it is missing.

        Raises
        ------
        ValueError
            If it does not have this format.
        """
        if any(part in MISSING for part in cell.split(" ")):
            return -1
        return int(event_times(self._moment(cell), 1, 0.0)[0])

    def _moment(self, cell: str) -> float | datetime.datetime:
        if self.form == MILLISECONDS:
            return float(cell) / 1000
        if self.form == MAIL:
            if not _MAIL.fullmatch(cell):
                raise ValueError("neither the format nor a time zone")
            moment = email.utils.parsedate_to_datetime(cell)
        elif self.form != STANDARD:
            moment = datetime.datetime.strptime(cell, self.form)
        else:
            try:
                return float(cell)
            except ValueError:
                moment = datetime.datetime.fromisoformat(cell)
        return moment if moment.tzinfo else moment.replace(tzinfo=zoneinfo.ZoneInfo(self.zone))

    def fits(self, cell: str) -> bool:
        """Return whether a cell is a time of this format, or missing."""
        try:
            self.parse(cell)
        except ValueError:
            return False
        return True


def detect_time_format(cells: Sequence[str], place: str, zone: str = UTC) -> TimeFormat:
    """Return the format of all cells; the standard one if all are empty.

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
        If they fit two formats that differ, as 01/02/2013 does, so that the user has to choose.
    """
    distinct = {cell.strip() for cell in cells}
    standard = TimeFormat(zone=zone)
    wrong = next((cell for cell in distinct if not standard.fits(cell)), None)
    if wrong is None:
        return standard
    if _is_milliseconds(wrong) and all(map(TimeFormat(MILLISECONDS).fits, distinct)):
        return TimeFormat(MILLISECONDS)
    likely = [form for text in (*FORMATS, MAIL) if (form := TimeFormat(text, zone)).fits(wrong)]
    fitting = [form for form in likely if all(map(form.fits, distinct))]
    if len(fitting) > 1:
        forms = " and ".join(repr(form.form) for form in fitting)
        raise ValueError(
            f"{place}: {wrong!r} and all other cells fit {forms}: choose one, with --time-format "
            f"{fitting[0].form!r} for instance"
        )
    return fitting[0] if fitting else standard


def _is_milliseconds(cell: str) -> bool:
    try:
        return float(cell) >= END
    except ValueError:
        return False


def read_times(
    cells: Sequence[str], place: str, form: TimeFormat | None = None
) -> NDArray[np.int64]:
    """Return event times in ms since the epoch; -1 for a missing cell.

    Parameters
    ----------
    cells : sequence of str
    place : str
        The place of the cells, for errors.
    form : TimeFormat, optional
        By default the result of :func:`detect_time_format`.

    Raises
    ------
    ValueError
        With the place, the row and the cell that is not a time.

    Examples
    --------
    >>> read_times(["1970-01-01T00:00:02Z", "NA", "1970-01-01 00:00:03", "4"], "x.csv")
    array([2000,   -1, 3000, 4000])
    >>> read_times(["31/12/2013 11:30 PM"], "x.csv", TimeFormat("%d/%m/%Y %I:%M %p", "Asia/Tokyo"))
    array([1388500200000])
    """
    form = form or detect_time_format(cells, place)
    known: dict[str, int] = {}
    for row, cell in enumerate(cells, 1):
        if cell not in known:
            try:
                known[cell] = form.parse(cell.strip())
            except ValueError as error:
                raise ValueError(
                    f"{place}, row {row}: {cell.strip()!r} is no event time: expected {form.form} "
                    f"({error})"
                ) from None
    return np.array([known[cell] for cell in cells], dtype=np.int64)


def read_time_columns(
    path: str | Path,
    cells: Mapping[str, Sequence[str]],
    columns: Sequence[str],
    time_format: str | None = None,
    zone: str = UTC,
) -> tuple[NDArray[np.int64], str]:
    """Return the event times of a table's columns, joined by spaces, and a note on their format.

    Parameters
    ----------
    path : path
        Of the table, for errors.
    cells : mapping of str to sequence of str
        The table's columns.
    columns : sequence of str
        Those of the times.
    time_format : str, optional
        As for `strptime`; by default the result of :func:`detect_time_format`.
    zone : str
        Of times without one.

    Raises
    ------
    ValueError
        As for :func:`detect_time_format` and :func:`read_times`.
    """
    texts = [" ".join(row) for row in zip(*(cells[name] for name in columns), strict=True)]
    place = f"{path}: column {' '.join(columns)!r}"
    form = TimeFormat(time_format, zone) if time_format else detect_time_format(texts, place, zone)
    return read_times(texts, place, form), f"times: {form}"
