"""The headers of a message, whose names are whatever somebody has written."""

from __future__ import annotations

from typing import Any

Header = tuple[str, str | bytes | None]


def read(message: Any) -> list[Header] | None:
    """Return the headers of a message; None if the client cannot say what they are.

    Kafka takes any bytes as a header's name. confluent-kafka wants UTF-8: it raises
    UnicodeDecodeError or SystemError, and a second call returns a list that ends the process when
    it is looked at. Call this once for each message, and :meth:`headers` nowhere else.
    """
    try:
        return list(message.headers() or [])
    except (UnicodeError, SystemError):
        return None
