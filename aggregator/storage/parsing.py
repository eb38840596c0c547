"""Parses and checks members and values from Redis, where anybody may have written.

A value in another form than Dither's raises :class:`aggregator.errors.StateUnreadable` with its
key. No value is guessed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from aggregator.errors import StateUnreadable
from aggregator.state.pane_keys import GRAINS, PaneKey
from aggregator.state.slice_tables import decode_chunk
from aggregator.state.watermark import CONFIRMING_BATCHES, NO_TIME, RECENT_BATCHES, Ahead, Watermark
from estimators import Metric, SearchMetric
from estimators.estimate import Counts
from producers.device.rounds import Round, decode

T = TypeVar("T")
Command = tuple[str | bytes | int, ...]
"""A command of Redis, word by word."""
Ask = Callable[[Sequence[Command]], list[Any]]
"""Returns the replies to commands, which take one round trip."""
UNSET = -1
"""The next offset of a partition without a commit."""
TORN = -2
"""The next offset of a partition with a half-applied commit: its sums are not sound."""

COMMIT_FIELDS = ("next", "begun", "done", "sizes")
"""Fields of an owner's hash that say whether the sizes are those of the last commit."""
INDEXED_SET = "indexed"
"""The set that exists as soon as any other set of a partition does."""

MAX_INT64 = 2**63 - 1
OWNER_MINIMUMS = {
    "next": TORN,
    **dict.fromkeys(("epoch", "begin", "gap", "vanished", "high", "updated", "partitions"), 0),
}
"""The numeric fields of an owner's hash, and the minimum of each."""
MAX_PARTITIONS = 2**31 - 1
LAST_COMMIT_MS = 7 * 86_400_000
"""The lifetime of the mark of a partition's last commit. What remains of it tells the age of the
commit by the clock of the Redis server alone."""
MAX_CACHED_WATERMARKS = 10_000
INTEGER_PATTERN = re.compile(r"-?[0-9]{1,19}")


class Read(NamedTuple):
    """A command, and the function that parses its reply or raises StateUnreadable."""

    command: Command
    parse: Callable[[Any], Any]


def hash_fields(
    key: str, names: Sequence[str] | None, parse: Callable[[str, dict[bytes, bytes]], T], reply: Any
) -> T:
    """Return the parsed fields of a hash, from the reply to HGETALL, or to HMGET with names.

    `key`: the key of the hash; `names`: the names of the fields; None for all; `parse`: takes the
    key and the fields, such as :func:`owner`; `reply`: the mapping of all fields, or the values in
    the order of `names`.
    """
    if names is None:
        return parse(key, dict(reply))
    values = zip(names, reply, strict=True)
    return parse(key, {name.encode(): value for name, value in values if value is not None})


def text(key: str, value: bytes) -> str:
    """Return a value as text; raise StateUnreadable if it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise StateUnreadable(key, repr(value), "text in UTF-8") from None


def integer(
    key: str, value: bytes | str, lowest: int = -MAX_INT64, highest: int = MAX_INT64
) -> int:
    """Return a value as an integer in [lowest, highest].

    `key`: where Redis has the value, for errors; `value`: the value; `lowest`, `highest`: the least
    and the largest valid integer. Raises StateUnreadable if the value is no integer, or outside of
    this range.

    >>> integer("dither:flights:deaths", b"12", 0)
    12
    >>> integer("dither:flights:deaths", b"12.5", 0)
    Traceback (most recent call last):
    aggregator.errors.StateUnreadable: Redis has '12.5' at dither:flights:deaths: expected a whole \
    number of at least 0. Restore Redis, or delete the key; \
    docs/operations.md#a-stored-value-cannot-be-read
    """
    if len(value) < 19 and value.isascii() and value.isdigit() and lowest <= int(value) <= highest:
        return int(value)
    shown = value if isinstance(value, str) else text(key, value)
    if not INTEGER_PATTERN.fullmatch(shown) or not lowest <= int(shown) <= highest:
        raise StateUnreadable(key, repr(shown), f"a whole number of at least {lowest}")
    return int(shown)


def texts(key: str, fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the fields of a hash as texts, by name."""
    return {text(key, name): text(key, value) for name, value in fields.items()}


def names(key: str, fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """Return the fields of a hash as bytes, by name."""
    return {text(key, name): value for name, value in fields.items()}


def owner(key: str, fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the fields of an owner's hash; raise StateUnreadable if a numeric field is invalid."""
    facts = texts(key, fields)
    for name, lowest in OWNER_MINIMUMS.items():
        if name in facts:
            integer(f"{key}, field {name}", facts[name], lowest)
    return facts


def watermarks(key: str, fields: Mapping[bytes, bytes]) -> dict[str, Watermark]:
    """Return watermarks by metric key; raise StateUnreadable if a stored watermark is malformed."""
    stored = texts(key, fields)
    return {name: Watermark(*_watermark_times(key, name, mark)) for name, mark in stored.items()}


@functools.lru_cache(MAX_CACHED_WATERMARKS)
def _watermark_times(key: str, name: str, value: str) -> tuple[int, int, int, Ahead]:
    """Return a stored watermark's three times and batches ahead, cached as few change."""
    (*times, ahead), field_key = [*value.split(":"), ""][:4], f"{key}, field {name}"
    if len(times) != 3 or value.count(":") > 3:
        raise StateUnreadable(field_key, repr(value), "three times in ms, separated by colons")
    time, arrived, closed = (integer(field_key, time, NO_TIME) for time in times)
    return time, arrived, closed, _ahead(field_key, ahead, time)


def _ahead(field_key: str, value: str, time: int) -> Ahead:
    """Return the batches ahead of a watermark at `time`, from their stored form."""
    batches: list[tuple[int, int]] = []
    for pair in filter(None, value.split(",")):
        age, _, ahead_ms = pair.partition("+")
        max_age = RECENT_BATCHES - 1 if not batches else batches[-1][0] - 1
        later_batches = integer(field_key, age, 0, max_age)
        batches.append((later_batches, time + integer(field_key, ahead_ms, 1, MAX_INT64 - time)))
    if len(batches) >= CONFIRMING_BATCHES:
        expected = f"fewer than {CONFIRMING_BATCHES} batches ahead of the watermark"
        raise StateUnreadable(field_key, repr(value), expected)
    return tuple(batches)


def counts(key: str, fields: Mapping[bytes, bytes]) -> dict[str, int]:
    """Return numbers of reports by ``outcome:metric``."""
    numbers = texts(key, fields).items()
    return {name: integer(f"{key}, field {name}", number, 0) for name, number in numbers}


def age(left_ms: int) -> int | None:
    """Return the age of a mark in ms, given its remaining lifetime; None if unknown."""
    return LAST_COMMIT_MS - left_ms if 0 <= left_ms <= LAST_COMMIT_MS else None


def partitions(key: str, members: Iterable[bytes]) -> list[int]:
    """Return numbers of partitions, ascending."""
    return sorted(integer(key, member, 0, MAX_PARTITIONS) for member in members)


def start(key: str, member: bytes) -> tuple[int, int]:
    """Return a pane's start, in ms since the epoch, and first offset, from a member of an index.

    Raises StateUnreadable if the member is malformed.
    """
    begin, colon, first = text(key, member).partition(":")
    if not colon:
        raise StateUnreadable(key, repr(member), "a start and an offset, separated by a colon")
    return integer(key, begin, 0), integer(key, first, 0)


def starts(
    key: str, members: Iterable[bytes], first: int | None = None, end: int | None = None
) -> list[int]:
    """Return the starts of panes in an index, found by their scores.

    `key`: the key of the index; `members`: the members of the index; `first`, `end`, optional: the
    members' scores are in [first, end), in ms since the epoch. Raises StateUnreadable if a start is
    wrong, occurs twice, or differs from its score.
    """
    pane_starts = [start(key, member)[0] for member in members]
    if len(pane_starts) > len(set(pane_starts)):
        raise StateUnreadable(key, "a pane twice", "every pane once")
    is_early = first is not None and min(pane_starts, default=first) < first
    if is_early or (end is not None and max(pane_starts, default=end - 1) >= end):
        raise StateUnreadable(key, "a pane with another score", "its start as score")
    return pane_starts


def indexed(key: str, member: bytes) -> tuple[str, str]:
    """Return the grain and metric key in a member of the set of indexes.

    Raises StateUnreadable if the member is malformed.
    """
    grain, _, metric = text(key, member).partition(":")
    if grain not in GRAINS or not metric or ":" in metric:
        raise StateUnreadable(key, repr(member), "a grain and a metric, separated by a colon")
    return grain, metric


def opened(key: str, member: bytes) -> tuple[PaneKey, int]:
    """Return a pane and its first offset, from a member of the set of open panes.

    Raises StateUnreadable if the member is malformed.
    """
    match text(key, member).split(":"):
        case [grain, metric, begin, first] if grain in GRAINS:
            return PaneKey(grain, metric, integer(key, begin, 0)), integer(key, first, 0)
    raise StateUnreadable(key, repr(member), "an open pane, as grain:metric:start:offset")


def statistic(key: str, value: bytes, metric: Metric) -> Counts:
    """Return the statistic of a pane.

    `key`: where Redis has the value, for errors; `value`: the stored bytes; `metric`: the metric.
    Raises StateUnreadable if the size is wrong, or no reports can have these sums.
    """
    size = 8 * len(metric.levels) * metric.randomizer.columns
    if len(value) != size:
        expected = f"{size} bytes, the statistic of {metric.name!r}"
        raise StateUnreadable(key, f"{len(value)} bytes", expected)
    vector = np.frombuffer(value, dtype="<i8").astype(np.int64, copy=False)
    if wrong := metric.randomizer.find_error(metric.table(vector)):
        raise StateUnreadable(key, wrong, f"the statistic of {metric.name!r}")
    return vector


def pane(redis_key: str, key: PaneKey, value: bytes, metric: Metric) -> Counts:
    """Return the statistic of a pane, or the statistics of a chunk of slices.

    `redis_key`: where Redis has the value, for errors; `key`: the key of the pane; `value`: the
    stored bytes; `metric`: the metric. Raises StateUnreadable if the value cannot be the sum of
    reports of this metric.
    """
    if key.chunk is None:
        return statistic(redis_key, value, metric)
    try:
        chunk = decode_chunk(key.chunk, value, metric)
        counts = [metric.counts(row) for row in chunk if row.any()]
    except ValueError as error:
        raise StateUnreadable(redis_key, str(error), f"slices of {metric.name!r}") from None
    if any((row_counts < 0).any() for row_counts in counts):
        expected = f"slices of {metric.name!r}"
        raise StateUnreadable(redis_key, "a negative number of reports", expected)
    return chunk


def open_round(key: str, value: bytes, metric: Metric) -> Round:
    """Return the open or last round of a minimum or maximum.

    `key`: where Redis has the value, for errors; `value`: the stored bytes; `metric`: the metric.
    Raises StateUnreadable if the value is no round of this metric, or contradicts the decisions
    that it contains.
    """
    try:
        stored = decode(value)
        expected = Round.of(SearchMetric.require(metric), stored.progress, stored.opened_ms)
    except ValueError as error:
        raise StateUnreadable(key, str(error), f"a round of {metric.name!r}") from None
    if stored != expected:
        raise StateUnreadable(key, f"{stored}", f"the round that its decisions lead to: {expected}")
    return stored


def are_sizes_current(facts: Sequence[bytes | None]) -> bool:
    """Return whether the sizes are those of the last commit, given :data:`COMMIT_FIELDS`."""
    following, begun, done, sizes = facts
    return sizes is not None and begun == done == sizes and following != b"-2"


def loss_error(key: str, size: bytes | int, expected: bytes | int) -> StateUnreadable:
    """Return the error for a set or hash with fewer members than were committed.

    `key`: the key of the set or hash; `size`, `expected`: the number of members, and how many were
    committed.
    """
    number = int(size)
    shown = f"{number} entries" if number else "nothing"
    committed = expected.decode(errors="replace") if isinstance(expected, bytes) else expected
    return StateUnreadable(key, shown, f"all committed entries, {committed}")


def require_index(
    prefix: str, index: str, is_indexed: bool, min_size: bytes | None, size: int
) -> None:
    """Raise StateUnreadable if an index has lost some or all of its panes.

    `prefix`, `index`: the prefix of the partition, and the name of its index; `is_indexed`: whether
    the partition ever had such panes; `min_size`: the number of panes that were committed, if it is
    known; `size`: how many members the index has.
    """
    key = f"{prefix}:index:{index}"
    if is_indexed and not size:
        raise StateUnreadable(key, "nothing", "an index of panes that were counted")
    if min_size is not None and size < integer(f"{prefix}:sizes", min_size, 0):
        raise loss_error(key, size, min_size)
