"""Checks the addresses of Kafka's brokers: librdkafka reads wrong ports from invalid addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SERVER_PROPERTIES = ("bootstrap.servers", "metadata.broker.list")
MAX_PORT = 65_535
EXPECTED_SERVERS = (
    f"HOST:PORT, with commas between several, ports from 1 to {MAX_PORT}, an IPv6 address in "
    "brackets, and neither http:// nor a path (a login is sasl.username and sasl.password, a "
    "protocol security.protocol)"
)
_BROKER_ADDRESS = re.compile(  # no port alone
    r"(?!\d+$)((?i:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?"
    r"(\[[0-9A-Fa-f:.]+(%\w+)?\]|[\w.*-]+)(:(?P<port>[0-9]+))?"
)


def check_servers(properties: Mapping[str, Any]) -> None:
    """Raise ValueError if an address of a broker is invalid.

    Raises
    ------
    ValueError
        The message says what was expected, without the address, which may contain a password.

    Examples
    --------
    >>> check_servers({"bootstrap.servers": "one:9092,[::1]:9092,SSL://two"})
    >>> check_servers({"bootstrap.servers": 9092})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: HOST:PORT, with commas between several, ports from 1 to 65535, ...
    """
    for name in SERVER_PROPERTIES:
        for text in str(properties.get(name, "localhost")).split(","):
            address = _BROKER_ADDRESS.fullmatch(text.strip())
            if address is None or not 0 < int((address["port"] or "1")[:9]) <= MAX_PORT:
                raise ValueError(EXPECTED_SERVERS)
