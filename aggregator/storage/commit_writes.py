"""The Redis commands of a commit, each short enough for Lua."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aggregator.state.pane_keys import retention_ms
from aggregator.state.partition import Partition
from aggregator.storage.id_chunks import chunk_keys, id_commands
from aggregator.timestamps import LAST_MS

MAX_COMMAND_WORDS = 4_000
"""Words of a command in a script: Lua unpacks about 8,000 values at most."""
MAX_SCRIPT_ARGUMENTS = 1_000_000
"""Arguments of a script call, keys included: Redis takes 1,048,576."""

Command = list[Any]


def commit_commands(
    prefix: str, partition: Partition, facts: Mapping[str, str | int]
) -> Iterator[Command]:
    """Yield the commands of a commit, each of at most :data:`MAX_COMMAND_WORDS` words.

    Parameters
    ----------
    prefix : str
    partition : Partition
    facts : mapping
        Further fields of the owner's hash.
    """
    indexes: defaultdict[str, list[str | int]] = defaultdict(list)
    indexed: dict[str, None] = {}
    opened: list[str] = []
    closed: list[str] = []
    expiring: dict[str, None] = {}
    chunked: list[str | int] = []
    deleted: list[str] = []
    for key, pane in partition.changed.items():
        yield ["SET", f"{prefix}:{key}", pane.encode(key.chunk)]
        member = f"{key.grain}:{key.metric}"
        indexed[member] = None
        indexes[f"{prefix}:index:{member}"] += (key.start, f"{key.start}:{pane.first_offset}")
        if not pane.closed:
            opened.append(f"{key}:{pane.first_offset}")
            if pane.unsaved:
                yield from id_commands(prefix, key, pane)
                chunked += (str(key), len(pane.batch_ids) - pane.unchunked)
            uses = [word for name in pane.unsaved_keys for word in (name, pane.used[name])]
            yield from _parts(["HSET", f"{prefix}:keys:{key}"], uses)
            continue
        closed.append(f"{key}:{pane.first_offset}")
        gone = [f"{prefix}:seen:{key}", f"{prefix}:keys:{key}"]
        yield from _parts(["UNLINK"], gone + chunk_keys(prefix, key, pane.saved_ids))
        if pane.saved_ids:
            deleted.append(str(key))
        if (pane_retention_ms := retention_ms(key.grain, pane.metric)) is not None:
            arrived = partition.watermarks[key.question].arrived
            yield ["PEXPIREAT", f"{prefix}:{key}", min(arrived + pane_retention_ms, LAST_MS)]
            expiring[key.metric] = None
    for index, ranks in indexes.items():
        yield from _parts(["ZADD", index], ranks)
    yield from _parts(["SADD", f"{prefix}:indexed"], [*indexed])
    yield from _parts(["SADD", f"{prefix}:expiring"], [*expiring])
    yield from _parts(["HSET", f"{prefix}:ids"], chunked)
    yield from _parts(["HDEL", f"{prefix}:ids"], deleted)
    yield from _parts(["SADD", f"{prefix}:open"], opened)
    yield from _parts(["SREM", f"{prefix}:open"], closed)
    marks = {name: str(mark) for name, mark in partition.watermarks.items()}
    yield from _parts(["HSET", f"{prefix}:watermarks"], _flat(marks))
    yield from _parts(["HSET", f"{prefix}:counts"], _flat(partition.counts))
    yield from _parts(["HSET", f"{prefix}:owner"], _flat(facts))


def keys_of(command: Command) -> Command:
    """Return the keys that a command of :func:`commit_commands` names.

    >>> keys_of(["UNLINK", "one", "two"]), keys_of(["SADD", "one", "member"])
    (['one', 'two'], ['one'])
    """
    return command[1:] if command[0] == "UNLINK" else command[1:2]


def _parts(head: Command, words: Sequence[Any]) -> Iterator[Command]:
    """Yield a command as often as its words require; yield nothing without words.

    >>> [len(part) for part in _parts(["HSET", "key"], range(5_000))]
    [4000, 1004]
    """
    size = MAX_COMMAND_WORDS - 2  # even: pairs stay together
    assert len(head) <= 2  # noqa: S101
    for first in range(0, len(words), size):
        yield [*head, *words[first : first + size]]


def _flat(fields: Mapping[str, str | int]) -> list[str | int]:
    return [word for pair in fields.items() for word in pair]
