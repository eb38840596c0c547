"""Reads the headers of a message, whose names may be arbitrary bytes from anybody."""

from __future__ import annotations

import operator
from typing import Any

Header = tuple[str, str | bytes | None]

_ask = operator.methodcaller("headers")
"""Used in place of `message.headers()`: confluent-kafka may return a broken list and set an
exception. CPython detects this here, but not in a specialized call: there the exception would
surface in the next call, and the list would crash the process."""
_UNREADABLE_HEADERS: list[Header] = []
"""Stands for headers that the client cannot read."""


def read(message: Any) -> list[Header] | None:
    """Return the headers of a message; None if the client cannot read them.

    Kafka takes any bytes as a name, but confluent-kafka only UTF-8: otherwise it raises
    UnicodeDecodeError or SystemError, and a second call returns a list that crashes the process,
    unless this function replaces the list. Read headers nowhere else.
    """
    try:
        headers = _ask(message)
    except (UnicodeError, SystemError):
        headers = _UNREADABLE_HEADERS
        message.set_headers(headers)
    return None if headers is _UNREADABLE_HEADERS else list(headers or [])


def message_bytes(message: Any) -> int:
    """Return the size of a message: value, key and headers."""
    parts = [message.value(), message.key()]
    parts += [part for header in read(message) or [] for part in header]
    return sum(len(part or b"") for part in parts)
