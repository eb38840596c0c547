"""The types of settings, with checks; their ValueErrors say what was expected."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from aggregator.secrets import HASHED_TOKEN, REGISTRY_URL
from aggregator.timestamps import from_iso
from estimators.durations import milliseconds
from estimators.errors import nearest

MAX_PORT = 65_535
MIN_MEMORY = 33_554_432
ACCESS_SCOPES = ("read", "report", "relay", "admin")
SKIPPED_OFFSETS = re.compile(r"(\d{1,9}):(\d{1,18})(?:-(\d{1,18}))?")
SUBJECT_NAMINGS = ("topic", "record", "topic_record")
GROUPING_SETTINGS = ("publish.slices", "serve.slices")
ORIGIN_PATTERN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+")
HOST_NAME = re.compile(r"\*|(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\]")
ENDPOINT_URL = re.compile(r"(https?://[^/?#@\s]+(/[^?#@\s]*)?(?<!/v1/metrics)(?<!/v1/traces))?")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Check = Callable[[Any], object]
"""Raises a ValueError for an invalid value."""


@dataclasses.dataclass(frozen=True)
class Lasting:
    """A check that refuses durations below `shortest_ms`, and texts that are no durations."""

    shortest_ms: int = 0

    def __call__(self, text: str) -> None:
        """Raise ValueError if a text is refused."""
        if milliseconds(text) < self.shortest_ms:
            raise ValueError(f"a duration of {self.shortest_ms}ms or more")


def satisfying(is_valid: Callable[[Any], object], expected: str) -> Check:
    """Return a check that refuses values for which `is_valid` returns false."""

    def check(value: Any) -> None:
        if not is_valid(value):
            raise ValueError(expected)

    return check


def matching(pattern: re.Pattern[str], expected: str) -> Check:
    """Return a check that refuses a text, or a list with a text, that a pattern does not match."""

    def is_valid(value: str | list[str]) -> bool:
        return all(map(pattern.fullmatch, [value] if isinstance(value, str) else value))

    return satisfying(is_valid, expected)


def at_least(smallest: int) -> Check:
    """Return a check that refuses numbers below `smallest`."""
    return satisfying(lambda number: number >= smallest, f"a number of {smallest} or more")


def one_of(*words: str) -> Check:
    """Return a check that refuses all words but these."""
    return satisfying(words.__contains__, f"one of {', '.join(words)}")


def each(check: Check) -> Check:
    """Return a check of a list, which applies a check to each item."""
    return lambda items: [check(item) for item in items]


def split(key: str, text: str) -> list[str]:
    """Return the items in the text of a list setting, separated by commas or spaces.

    Groupings are separated by semicolons. `key`: the setting's dotted key.

    Examples
    --------
    >>> split("access.anonymous", "read,report"), split("serve.slices", "late: country, version")
    (['read', 'report'], ['late: country, version'])
    """
    if key in GROUPING_SETTINGS:
        return [item for part in text.split(";") if (item := part.strip())]
    return text.replace(",", " ").split()


def check_scope(scope: str) -> None:
    """Raise ValueError, with the nearest scope, if a scope of access is unknown."""
    if scope not in ACCESS_SCOPES:
        raise ValueError(f"scopes: {nearest(scope, ACCESS_SCOPES)}")


def check_rate(rate: str) -> None:
    """Raise ValueError unless a text is a rate or empty."""
    from producers.gateway.rate_limits import rate_limit  # here: other commands need no gateway

    try:
        rate_limit(rate)
    except ValueError:
        raise ValueError("a rate such as 100/second or 5000 per hour, or nothing") from None


def check_token(value: Any) -> str:
    """Return the value of a token's setting, after checking that it has a hash and scopes.

    Raises ValueError if the value is invalid.
    """
    if not isinstance(value, str) or not HASHED_TOKEN.fullmatch(value):
        raise ValueError("sha256:<64 hex digits> and scopes, as `dither tokens new` prints it")
    return value


def publish_since_ms(text: str) -> int:
    """Return `publish.since` in ms since the epoch; 0 if it is empty.

    Raises ValueError if it is not a time.

    Examples
    --------
    >>> publish_since_ms("2013-01-01"), publish_since_ms("")
    (1356998400000, 0)
    """
    if not text:
        return 0
    try:
        return round(from_iso(text) * 1000)
    except ValueError:
        raise ValueError("a time such as 2013-01-31 or 2013-01-31T17:00:00Z") from None


def parse_skipped(text: str) -> tuple[int, range]:
    """Return the partition and the offsets of an item of `aggregate.skip`.

    Raises ValueError if the text is no such item.

    Examples
    --------
    >>> parse_skipped("3:8812"), parse_skipped("3:8812-9000")
    ((3, range(8812, 8813)), (3, range(8812, 9001)))
    """
    match = SKIPPED_OFFSETS.fullmatch(text)
    if match is None:
        raise ValueError("places as PARTITION:OFFSET or PARTITION:FIRST-LAST, as in 3:8812-9000")
    return int(match[1]), range(int(match[2]), int(match[3] or match[2]) + 1)


def parse_groupings(texts: Sequence[str]) -> dict[str, list[tuple[str, ...]]]:
    """Return the groupings by attributes of devices in a setting, by metric.

    Raises ValueError if a text has no metric or attribute, or repeats an attribute or a grouping.

    Examples
    --------
    >>> parse_groupings(["late: country", "late: country, version"])
    {'late': [('country',), ('country', 'version')]}
    """
    groupings: dict[str, list[tuple[str, ...]]] = {}
    for text in texts:
        name, _, attributes = text.partition(":")
        by = tuple(word.strip() for word in attributes.split(","))
        metric_groupings = groupings.setdefault(name.strip(), [])
        if not name.strip() or not all(by) or len({*by}) < len(by) or by in metric_groupings:
            raise ValueError(
                "METRIC: ATTRIBUTE, as in 'late: country' or 'late: country, version', each once, "
                f"not {text!r}"
            )
        metric_groupings.append(by)
    return groupings


def parse_networks(proxies: list[str]) -> list[Network]:
    """Return the networks of trusted proxies.

    Raises ValueError if a text is no address or network, or a network contains all addresses.

    Examples
    --------
    >>> [str(network) for network in parse_networks(["127.0.0.1", "10.1.0.0/16", "::1"])]
    ['127.0.0.1/32', '10.1.0.0/16', '::1/128']
    """
    try:
        parsed = [ipaddress.ip_network(proxy) for proxy in proxies]
    except ValueError:
        parsed = None
    if parsed is None or any(not network.prefixlen for network in parsed):
        raise ValueError(
            "addresses or networks of the proxies, as in 127.0.0.1 or 10.0.3.0/24, never all: a "
            "client that is trusted as a proxy can claim any address"
        )
    return parsed


Duration = Annotated[str, Lasting()]
LeaseDuration = Annotated[str, Lasting(500)]
Interval = Annotated[str, Lasting(100)]
Count = Annotated[int, at_least(1)]
Port = Annotated[int, satisfying(range(MAX_PORT + 1).__contains__, f"a port, 0 to {MAX_PORT}")]
Replication = Annotated[int, satisfying(lambda n: n >= 1 or n == -1, "a number of 1 or more")]
"""-1: the brokers choose the number."""
Share = Annotated[float, satisfying(lambda x: 0 <= x < 1, "a share from 0 (never) to less than 1")]
Rate = Annotated[str, check_rate]
Time = Annotated[str, publish_since_ms]
Groupings = Annotated[list[str], parse_groupings]
SkippedMessages = Annotated[list[str], each(parse_skipped)]
Scopes = Annotated[list[str], each(check_scope)]
Proxies = Annotated[list[str], parse_networks]
Hosts = Annotated[
    list[str],
    matching(
        HOST_NAME,
        "host names without scheme and port, as in dither.example, 127.0.0.1 or [::1]; "
        "*.example for all below example, or * for all",
    ),
]
Origins = Annotated[
    list[str],
    matching(
        ORIGIN_PATTERN,
        "origins as browsers send them, as in https://app.example or http://localhost:3000: in "
        "lower case and without a path; or * for all",
    ),
]
Endpoint = Annotated[
    str,
    matching(
        ENDPOINT_URL,
        "a collector's address without user, query and the path of a signal, as in "
        "http://localhost:4318; headers belong in OTEL_EXPORTER_OTLP_HEADERS",
    ),
]
RegistryUrl = Annotated[
    str,
    matching(
        REGISTRY_URL,
        "http:// or https://, a host and perhaps a path, as in http://localhost:8081; user and "
        "password belong in schemas.user and schemas.password",
    ),
]
SchemaId = Annotated[
    int,
    satisfying(
        range(1 << 31).__contains__,
        "the number that `dither schemas` prints for the reports topic, or 0",
    ),
]
