"""Moments of event time as people and programs read them: ISO 8601 in UTC."""

from __future__ import annotations

import datetime

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: what ISO 8601 can write."""


def iso(ms: int | None) -> str | None:
    """Return a time in ms since the epoch as ISO 8601 in UTC, within the years 1 to 9999.

    Examples
    --------
    >>> iso(1_357_000_000_000), iso(1_500)
    ('2013-01-01T00:26:40Z', '1970-01-01T00:00:01.500Z')
    """
    if ms is None:
        return None
    moment = EPOCH + datetime.timedelta(milliseconds=max(FIRST_MS, min(ms, LAST_MS)))
    precision = "milliseconds" if ms % 1000 else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def format_time(ms: int) -> str:
    """Return a time for a message: any number of milliseconds, also one that no calendar has.

    Examples
    --------
    >>> format_time(0), format_time(2**62)
    ('1970-01-01T00:00:00Z', '4611686018427387904 ms')
    """
    return str(iso(ms)) if FIRST_MS <= ms <= LAST_MS else f"{ms} ms"
