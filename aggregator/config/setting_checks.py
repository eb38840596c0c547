"""Checks of settings; their ValueErrors say what was expected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from aggregator.config import web_settings
from aggregator.secrets import HASHED_TOKEN
from aggregator.timestamps import from_iso
from estimators.durations import milliseconds
from estimators.errors import nearest

MAX_PORT = 65_535
PORT_SETTINGS = (
    "serve.port",
    "serve.worker_port",
    "aggregate.health_port",
    "coordinate.health_port",
)
ACCESS_SCOPES = ("read", "report", "relay", "admin")
DURATION_SETTINGS = (
    "aggregate.commit_interval",
    "aggregate.deadletter_span",
    "aggregate.future",
    "aggregate.idle",
    "aggregate.past",
    "aggregate.stuck_after",
    "aggregate.stuck_exit",
    "coordinate.lease",
    "gateway.acknowledge_timeout",
    "otlp.interval",
    "publish.interval",
    "publish.lease",
)
SHORTEST_MS = {
    "otlp.interval": 100,
    "publish.interval": 100,
    "publish.lease": 500,
    "coordinate.lease": 500,
}
SMALLEST_VALUES = {"aggregate.memory": 33_554_432, "aggregate.deadletter_consecutive": 0}
BROKERS_CHOICE = ("topics.replication", -1)
SKIPPED_OFFSETS = re.compile(r"(\d{1,9}):(\d{1,18})(?:-(\d{1,18}))?")
SUBJECT_NAMINGS = ("topic", "record", "topic_record")
ALLOWED_CHOICES = {"aggregate.on_gap": ("stop", "skip"), "schemas.naming": SUBJECT_NAMINGS}
GROUP_PROTOCOL = "kafka.group.protocol"
GROUPING_SETTINGS = ("publish.slices", "serve.slices")


def check(key: str, value: Any) -> None:
    """Refuse an invalid value of a setting.

    Raises
    ------
    ValueError
        If the value is invalid.
    """
    if key in web_settings.SETTING_CHECKS:
        web_settings.SETTING_CHECKS[key](value)
    elif key in DURATION_SETTINGS:
        if milliseconds(value) < (shortest := SHORTEST_MS.get(key, 0)):
            raise ValueError(f"a duration of {shortest}ms or more")
    elif key == GROUP_PROTOCOL:
        if value != "classic":
            raise ValueError(
                "classic: workers set session.timeout.ms and partition.assignment.strategy, which "
                "other protocols leave to the brokers"
            )
    elif key == "aggregate.skip":
        for text in value:
            parse_skipped(text)
    elif key in GROUPING_SETTINGS:
        parse_groupings(value)
    elif key == "publish.since":
        publish_since_ms(value)
    elif key in ALLOWED_CHOICES and value not in ALLOWED_CHOICES[key]:
        raise ValueError(f"one of {', '.join(ALLOWED_CHOICES[key])}")
    elif key == "access.anonymous":
        for scope in value:
            if scope not in ACCESS_SCOPES:
                raise ValueError(f"scopes: {nearest(scope, ACCESS_SCOPES)}")
    elif key in PORT_SETTINGS:
        if not 0 <= value <= MAX_PORT:
            raise ValueError(f"a port, 0 to {MAX_PORT}")
    elif key == "aggregate.deadletter_ratio":
        if not 0 <= value < 1:
            raise ValueError("a share from 0 (never) to less than 1")
    elif key in SMALLEST_VALUES:
        if value < SMALLEST_VALUES[key]:
            raise ValueError(f"a number of {SMALLEST_VALUES[key]} or more")
    elif type(value) is int and value < 1 and (key, value) != BROKERS_CHOICE:
        raise ValueError("a number of 1 or more")


def split(key: str, text: str) -> list[str]:
    """Split a list in one text, at commas; groupings at semicolons.

    Examples
    --------
    >>> split("access.anonymous", "read,report"), split("serve.slices", "late: country, version")
    (['read', 'report'], ['late: country, version'])
    """
    if key in GROUPING_SETTINGS:
        return [item for part in text.split(";") if (item := part.strip())]
    return text.replace(",", " ").split()


def check_token(value: Any) -> str:
    """Return the hash and the scopes of a token.

    Raises
    ------
    ValueError
        If the value is invalid.
    """
    if not isinstance(value, str) or not HASHED_TOKEN.fullmatch(value):
        raise ValueError("sha256:<64 hex digits> and scopes, as `dither tokens new` prints it")
    return value


def publish_since_ms(text: str) -> int:
    """Return `publish.since` in ms since the epoch; 0 if it is empty.

    Raises
    ------
    ValueError
        If it is not a time.

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

    Raises
    ------
    ValueError
        If the text is neither.

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
    """Return the attributes of each metric's published slices, by metric.

    Raises
    ------
    ValueError
        If a text has no attributes, or one twice.

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
