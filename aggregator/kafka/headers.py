"""Reads the headers of a message; anybody may have written any name."""

from __future__ import annotations

import operator
from typing import Any

Header = tuple[str, str | bytes | None]

_ask = operator.methodcaller("headers")
"""Not `message.headers()`: confluent-kafka returns a broken list and sets an exception, which
CPython checks here, but not in a call that it has specialized. Then the exception would come up in
whatever is called next, and the list would end the process."""
_UNREADABLE_HEADERS: list[Header] = []
"""Stands for headers that the client cannot read."""


def read(message: Any) -> list[Header] | None:
    """Return the headers of a message; None if the client cannot say what they are.

    Kafka takes any bytes as a header's name. confluent-kafka wants UTF-8: it raises
    UnicodeDecodeError or SystemError, and a second call would return a list that ends the process
    when it is looked at, were it not replaced here. Ask for headers nowhere else.
    """
    try:
        headers = _ask(message)
    except (UnicodeError, SystemError):
        headers = _UNREADABLE_HEADERS
        message.set_headers(headers)
    return None if headers is _UNREADABLE_HEADERS else list(headers or [])


def message_bytes(message: Any) -> int:
    """Return the size of a message: its value, its key and its headers."""
    parts = [message.value(), message.key()]
    parts += [part for header in read(message) or [] for part in header]
    return sum(len(part or b"") for part in parts)
