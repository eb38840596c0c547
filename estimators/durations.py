"""Durations as text: ``250ms``, ``30s``, ``5m``, ``1h``, ``1d``, ``2w``."""

from __future__ import annotations

import re
from fractions import Fraction

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
EXPECTED_DURATION = "a duration such as 30s, 5m, 1h or 1d"
_DURATION_PATTERN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def is_duration(text: object) -> bool:
    """Return whether a value is text in the form of a duration.

    >>> is_duration("7d"), is_duration("2013-01-31"), is_duration(7)
    (True, False, False)
    """
    return isinstance(text, str) and _DURATION_PATTERN.fullmatch(text.strip()) is not None


def milliseconds(duration: str) -> int:
    """Return a duration such as ``"1.5h"`` in whole milliseconds.

    Raises ValueError if the text is not a number followed by one of ms, s, m, h, d, w, or is not a
    whole number of milliseconds below 2^63.

    >>> milliseconds("5m"), milliseconds("0s"), milliseconds("131.069s")
    (300000, 0, 131069)
    """
    match = _DURATION_PATTERN.fullmatch(duration.strip())
    if match is None:
        raise ValueError(f"{EXPECTED_DURATION}, not {duration!r}")
    number = Fraction(match[1]) * UNITS_MS[match[2]]
    if number.denominator != 1 or number >= 2**63:
        raise ValueError(f"a duration of whole milliseconds, not {duration!r}")
    return int(number)


def above_zero(name: str, duration: str) -> int:
    """Return a parameter's duration in whole milliseconds.

    Raises ValueError, with the parameter's name, if it is not a duration above zero.

    >>> above_zero("step", "1m")
    60000
    """
    try:
        length = milliseconds(duration)
    except ValueError as error:
        raise ValueError(f"{name} = {duration!r}: expected {error}") from None
    if not length:
        raise ValueError(f"{name} = {duration!r}: expected a duration above zero")
    return length
