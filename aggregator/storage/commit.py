"""The commands of a partition's commit, which a script runs in one call, all or nothing.

Each command of the commit is short enough for Lua. The ids of a pane's batches are in chunks of
:data:`CHUNK_IDS`, one behind the other, to which commits append; the hash ``P:ids`` has the number
of ids in the chunks of each open pane. So no command copies or frees much, and a commit writes only
new ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, retention_ms
from aggregator.state.partition import Partition
from aggregator.timestamps import LAST_MS
from producers.wire.batch import BATCH_ID_BYTES

MAX_COMMAND_WORDS = 4_000
"""The most words of a command in a script: Lua unpacks about 8,000 values at most."""
CHUNK_IDS = 4_000
"""The number of ids in a full chunk, which with Redis's header is just below 64 KiB; Redis would
allocate 80 KiB for a larger value.
"""
CHUNK_PADDING = b"\0"
Command = list[Any]


def commit_commands(
    prefix: str, partition: Partition, facts: Mapping[str, str | int]
) -> Iterator[Command]:
    """Yield the commands of a commit, each of at most :data:`MAX_COMMAND_WORDS` words.

    `prefix`: the beginning of the keys of the partition; `partition`: the changed state; `facts`:
    further fields of the owner's hash.
    """
    words: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    indexed: dict[str, None] = {}
    expiring: dict[str, None] = {}
    for key, pane in partition.changed.items():
        yield ["SET", f"{prefix}:{key}", pane.encode(key.chunk)]
        index, opened = f"{key.grain}:{key.metric}", f"{key}:{pane.first_offset}"
        indexed[index] = None
        words["ZADD", f"{prefix}:index:{index}"] += key.start, f"{key.start}:{pane.first_offset}"
        if not pane.closed:
            words["SADD", f"{prefix}:open"].append(opened)
            if pane.unsaved:
                yield from id_commands(prefix, key, pane)
                words["HSET", f"{prefix}:ids"] += str(key), len(pane.batch_ids) - pane.unchunked
            for name in pane.unsaved_keys:
                words["HSET", f"{prefix}:keys:{key}"] += name, pane.used[name]
            continue
        words["SREM", f"{prefix}:open"].append(opened)
        id_keys = [chunk for chunk, _ in chunks(prefix, key, pane.saved_ids)]
        yield from _parts(["UNLINK"], [f"{prefix}:seen:{key}", f"{prefix}:keys:{key}", *id_keys])
        if id_keys:
            words["HDEL", f"{prefix}:ids"].append(str(key))
        if (pane_retention_ms := retention_ms(key.grain, pane.metric)) is not None:
            arrived = partition.watermarks[key.question].arrived
            yield ["PEXPIREAT", f"{prefix}:{key}", min(arrived + pane_retention_ms, LAST_MS)]
            expiring[key.metric] = None
    words["SADD", f"{prefix}:indexed"] += indexed
    words["SADD", f"{prefix}:expiring"] += expiring
    marks = {name: str(mark) for name, mark in partition.watermarks.items()}
    hashes: dict[str, Mapping[str, Any]]
    hashes = {"watermarks": marks, "counts": partition.counts, "owner": facts}
    for hash_name, fields in hashes.items():
        words["HSET", f"{prefix}:{hash_name}"] += [word for pair in fields.items() for word in pair]
    for head, more in words.items():
        yield from _parts(head, more)


def chunks(prefix: str, key: PaneKey, ids: int) -> list[tuple[str, int]]:
    """Return the keys of the chunks of a pane's batch ids, with the number of ids in each.

    `prefix`: the beginning of the keys of the partition; `key`: the key of the pane; `ids`: the
    number of ids of the pane.

    >>> chunks("{p}", PaneKey("pane", "delay", 0), 4_001)
    [('{p}:seen:pane:delay:0:0', 4000), ('{p}:seen:pane:delay:0:1', 1)]
    """
    return [
        (f"{prefix}:seen:{key}:{first // CHUNK_IDS}", min(CHUNK_IDS, ids - first))
        for first in range(0, ids, CHUNK_IDS)
    ]


def id_commands(prefix: str, key: PaneKey, pane: Pane) -> Iterator[list[Any]]:
    """Yield the commands that append an open pane's new ids to its chunks.

    Each chunk after the first gets its full size at once, because Redis reserves twice the size for
    a value that grows. `prefix`: the beginning of the keys of the partition; `key`: the key of the
    pane; `pane`: the pane.
    """
    data = memoryview(b"".join(pane.unsaved))
    position = pane.saved_ids
    while data:
        number, position_in_chunk = divmod(position, CHUNK_IDS)
        piece = data[: (CHUNK_IDS - position_in_chunk) * BATCH_ID_BYTES]
        ids = len(piece) // BATCH_ID_BYTES
        chunk = f"{prefix}:seen:{key}:{number}"
        if number and not position_in_chunk and ids < CHUNK_IDS:
            yield ["SETRANGE", chunk, CHUNK_IDS * BATCH_ID_BYTES - 1, CHUNK_PADDING]
        yield ["SETRANGE", chunk, position_in_chunk * BATCH_ID_BYTES, piece]
        data, position = data[len(piece) :], position + ids


def keys_of(command: Command) -> Command:
    """Return the keys that a command of :func:`commit_commands` names.

    >>> keys_of(["UNLINK", "one", "two"]), keys_of(["SADD", "one", "member"])
    (['one', 'two'], ['one'])
    """
    return command[1:] if command[0] == "UNLINK" else command[1:2]


def _parts(head: Sequence[str], words: Sequence[Any]) -> Iterator[Command]:
    """Yield commands with the same head and up to MAX_COMMAND_WORDS words; none without `words`.

    >>> [len(part) for part in _parts(["HSET", "key"], range(5_000))]
    [4000, 1004]
    """
    size = MAX_COMMAND_WORDS - 2  # even: pairs stay together
    for first in range(0, len(words), size):
        yield [*head, *words[first : first + size]]
