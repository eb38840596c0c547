"""Converts event times to milliseconds since the epoch."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from estimators.errors import shortened
from estimators.metrics.domains import as_given, conversion, refuse_misread

Time: TypeAlias = float | datetime.datetime | np.datetime64 | Sequence[Any] | NDArray[Any]
Times: TypeAlias = Time | None

UNIX_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
END_OF_TIME = 253_402_300_800  # the year 10000 in seconds; larger numbers are milliseconds
DATE_RANGES = (10**3, 10**8), (10**11, END_OF_TIME)
"""Integers that could be a year, a month, a day number or a date, maybe with a time of day."""
_ONE_MILLISECOND = datetime.timedelta(milliseconds=1)
_EXPECTED_TIME = (
    "expected a datetime with a time zone, a datetime64 in UTC, or seconds since the epoch"
)


def event_times(time: Time, count: int) -> NDArray[np.int64]:
    """Return the event times of `count` reports in milliseconds since the epoch.

    Parameters
    ----------
    time : number, datetime, datetime64, or an array or sequence of these
        Numbers are seconds since the epoch; datetime64 is read as UTC. One time applies to all
        reports. Arrays of numbers and of datetime64 are converted without a loop.
    count : int
        The number of reports.

    Returns
    -------
    ndarray of int64, shape (count,)

    Raises
    ------
    ValueError
        If a time is naive, missing, before the epoch or after the year 9999, or an integer that
        could be a year or a date, or if the numbers of times and reports differ.

    Examples
    --------
    >>> event_times(1.5, 2)
    array([1500, 1500])
    >>> event_times(np.array(["2013-01-01T10:00"], dtype="M8[s]"), 1)
    array([1357034400000])
    """
    refuse_misread(time, "times", truths=False)
    try:
        times_array = as_given(time)
    except ValueError:
        raise ValueError(f"times {shortened(time)}: expected one time or a flat array") from None
    if times_array.dtype.kind == "f" and times_array.dtype.itemsize < 8:
        raise ValueError(
            f"times of {times_array.dtype}, in which they are rounded to minutes or hours: "
            "expected float64"
        )
    if times_array.dtype.kind == "M":
        if np.isnat(times_array).any():
            raise ValueError(f"time NaT: {_EXPECTED_TIME}")
        times = times_array.astype("datetime64[ms]").astype(np.int64)
    elif times_array.dtype.kind in "iuf":
        times = _from_seconds(times_array)
    elif times_array.dtype.kind == "O":
        times = np.array([_from_object(time) for time in times_array.ravel()], dtype=np.int64)
        times = times.reshape(times_array.shape)
    else:
        raise ValueError(f"time {times_array.ravel()[:1].tolist()}: {_EXPECTED_TIME}")
    if times.size and (times.min() <= 0 or times.max() >= END_OF_TIME * 1000):
        wrong = times_array[(times <= 0) | (times >= END_OF_TIME * 1000)].ravel()[0]
        raise ValueError(
            f"time {wrong!s:.100}: expected a time after 1970 and before the year 10000"
            + ", in seconds since the epoch (not milliseconds)" * (times_array.dtype.kind in "iuf")
        )
    if times.ndim == 0:
        return np.full(count, times, dtype=np.int64)
    if times.shape != (count,):
        raise ValueError(f"times of shape {times.shape} for {count} reports: expected ({count},)")
    return times


def _from_seconds(seconds: NDArray[Any]) -> NDArray[np.int64]:
    if seconds.dtype.kind in "iu":
        is_date = np.any([(seconds >= low) & (seconds < high) for low, high in DATE_RANGES], axis=0)
        if is_date.any():
            raise ValueError(
                f"time {seconds[is_date].ravel()[0]}: an integer of 4 to 8 or 12 digits could be a "
                f"year or a date; {_EXPECTED_TIME}, as a float if it is in seconds"
            )
    if not np.isfinite(seconds).all():
        wrong = seconds[~np.isfinite(seconds)].ravel()[0]
        raise ValueError(f"time {wrong}: {_EXPECTED_TIME}")
    clipped = np.clip(seconds.astype(np.float64), -1, END_OF_TIME)
    return np.rint(clipped * 1000).astype(np.int64)


def _from_object(time: Any) -> int:
    if isinstance(time, int | float) and not isinstance(time, bool):
        return int(_from_seconds(np.array(min(max(time, -1), END_OF_TIME))))
    if isinstance(time, np.datetime64):
        return int(event_times(time, 1)[0])
    if not isinstance(time, datetime.datetime) or str(time) == "NaT":  # pandas' NaT is a datetime
        reader = "; datetime.fromisoformat() reads texts" * isinstance(time, str)
        raise ValueError(f"time {shortened(time)}: {_EXPECTED_TIME}{conversion(time)}{reader}")
    if time.tzinfo is None:
        raise ValueError(
            f"time {time!r} has no time zone: {_EXPECTED_TIME}; "
            "datetime.now(datetime.UTC) makes one, .replace(tzinfo=...) adds one"
        )
    return (time - UNIX_EPOCH) // _ONE_MILLISECOND
