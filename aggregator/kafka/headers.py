"""Reads the headers of a message; anybody may have written any name."""

from __future__ import annotations

import operator
from typing import Any

Header = tuple[str, str | bytes | None]

_ask = operator.methodcaller("headers")
"""Not `message.headers()`: confluent-kafka returns a broken list and sets an exception, which
CPython checks here, but not in a call that it has specialized. Then the exception would come up in
whatever is called next, and the list would end the process."""


def read(message: Any) -> list[Header] | None:
    """Return the headers of a message; None if the client cannot say what they are.

    Kafka takes any bytes as a header's name. confluent-kafka wants UTF-8: it raises
    UnicodeDecodeError or SystemError, and a second call returns a list that ends the process when
    it is looked at. Call this once for each message, and ask for headers nowhere else.
    """
    try:
        return list(_ask(message) or [])
    except (UnicodeError, SystemError):
        return None
