"""The commit of a partition: its changes and its next offset, in one call, all or nothing.

Each command in it is short enough for Lua. The ids of a pane's batches are in chunks of
:data:`CHUNK_IDS`, one behind the other, to which commits append; the hash ``P:ids`` has the number
of ids in the chunks of each open pane. So no command copies or frees much, and a commit writes only
new ids.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import redis

from aggregator.errors import CommitTooLarge, Fenced, PartialCommit, StateUnreadable
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, retention_ms
from aggregator.state.partition import Partition
from aggregator.storage import parsing
from aggregator.storage.commands import Commands, script
from aggregator.storage.redis_keys import partitions_key, tag
from aggregator.timestamps import LAST_MS
from producers.wire.batch import BATCH_ID_BYTES

MAX_COMMAND_WORDS = 4_000
"""The most words of a command in a script: Lua unpacks about 8,000 values at most."""
MAX_SCRIPT_ARGUMENTS = 1_000_000
"""The most arguments of a script call, keys included: Redis takes 1,048,576."""
CHUNK_IDS = 4_000
"""The number of ids in a full chunk, which with Redis's header is just below 64 KiB; Redis would
allocate 80 KiB for a larger value.
"""
CHUNK_PADDING = b"\0"
TYPES_BY_KEY = {
    b"owner": b"hash",
    b"watermarks": b"hash",
    b"counts": b"hash",
    b"open": b"set",
    b"sizes": b"hash",
    b"ids": b"hash",
}
"""The types of the keys without which a partition cannot be read."""

Command = list[Any]


class PartitionWriter:
    """Commits and halts partitions."""

    def __init__(self, commands: Commands, topic: str) -> None:
        self._commands, self._topic = commands, topic
        self._partitions_key = partitions_key(topic)
        self._tokens: dict[int, tuple[int, str]] = {}  # by partition: epoch, token
        self._commit = commands.client.register_script(script("commit"))

    def commit(
        self,
        number: int,
        epoch: int,
        expected: int,
        partition: Partition,
        facts: Mapping[str, str | int],
    ) -> int | None:
        """Write a partition's changes and its next offset, all or nothing.

        Parameters
        ----------
        number : int
            The partition.
        epoch : int
            The epoch that :meth:`acquire` returned.
        expected : int
            The stored next offset on which this state was built.
        partition : Partition
            Its changes are written; afterwards it is marked as committed.
        facts : mapping
            Further fields of the owner's hash, for people and readers.

        Returns
        -------
        int or None
            The number of bytes of panes and batch ids that were written. None if an earlier attempt
            made this commit and the reply was lost: then nothing was written now.

        Raises
        ------
        Fenced
            If the stored state is not the expected one. Nothing was written.
        PartialCommit
            If a write failed after Redis had made other writes of this commit.
        CommitTooLarge
            If the commit has more arguments than Redis takes in a call. Nothing was written.
        StateUnreadable
            If a key to which this commit adds has lost members. Nothing was written.
        """
        prefix = tag(self._topic, number)
        owner, name = f"{prefix}:owner", f"{self._topic}:{number}"
        acquired_epoch, token = self._tokens.get(number, (epoch, ""))
        words: list[Any] = [epoch, expected, partition.next_offset]
        words.append(token if acquired_epoch == epoch else "")
        mark = f"{prefix}:committed"
        words += [5, "SET", mark, 1, "PX", parsing.LAST_COMMIT_MS]
        keys = {owner: None, f"{prefix}:sizes": None, mark: None}
        for command in commit_commands(prefix, partition, facts):
            words += [len(command), *command]
            keys.update(dict.fromkeys(keys_of(command)))
        if len(keys) + len(words) > MAX_SCRIPT_ARGUMENTS:
            raise CommitTooLarge(name, len(partition.changed), partition.changed_keys)
        try:
            # A Redis Cluster may have lost this set, and nothing else.
            self._commands.client.sadd(self._partitions_key, number)
            outcome, stored_epoch, detail = self._commit([*keys], words)
        except redis.ResponseError as error:
            raise self._diagnose(prefix, error) from None
        if outcome == b"gone":
            size, _, expected_size = detail.partition(b":")
            raise parsing.loss_error(stored_epoch.decode(errors="replace"), size, expected_size)
        if outcome == b"torn":
            torn = PartialCommit(name, epoch, expected, detail.decode(errors="replace"), prefix)
            self.halt(number, str(torn))
            raise torn
        if outcome == b"fenced":
            now = parsing.integer(f"{owner}, field epoch", stored_epoch, 0)
            following = parsing.integer(f"{owner}, field next", detail, parsing.TORN)
            raise Fenced(name, epoch, now, expected, following)
        partition.mark_committed()
        if outcome == b"known":
            return None
        return sum(len(word) for word in words if isinstance(word, bytes | memoryview))

    def halt(self, partition: int, reason: str) -> None:
        """Store why a partition is not counted; ignore it if Redis refuses."""
        with contextlib.suppress(redis.RedisError):
            self._commands.client.sadd(self._partitions_key, partition)
            self._commands.client.hset(f"{tag(self._topic, partition)}:owner", "halted", reason)

    def _diagnose(self, prefix: str, error: redis.ResponseError) -> Exception:
        """Return the error that names the key where a script failed."""
        if "not an integer" in str(error):
            return StateUnreadable(f"{prefix}:owner, field epoch", str(error), "a whole number")
        if "WRONGTYPE" not in str(error):
            return error
        types = {self._partitions_key: b"set"}
        types |= {f"{prefix}:{name.decode()}": kind for name, kind in TYPES_BY_KEY.items()}
        with contextlib.suppress(redis.ResponseError):
            for member in self._commands.members(f"{prefix}:open"):
                name = member.rpartition(b":")[0].decode(errors="replace")
                types |= {f"{prefix}:{name}": b"string", f"{prefix}:seen:{name}": b"string"}
                types[f"{prefix}:keys:{name}"] = b"hash"
        for key, kind in types.items():
            (key_type,) = self._commands.ask([("TYPE", key)])
            if key_type not in (kind, b"none"):
                return StateUnreadable(key, f"a {key_type.decode()}", f"a {kind.decode()}")
        return error


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
        gone = [f"{prefix}:seen:{key}", f"{prefix}:keys:{key}", *id_keys]
        yield from _parts(["UNLINK"], gone)
        if id_keys:
            words["HDEL", f"{prefix}:ids"].append(str(key))
        if (pane_retention_ms := retention_ms(key.grain, pane.metric)) is not None:
            arrived = partition.watermarks[key.question].arrived
            yield ["PEXPIREAT", f"{prefix}:{key}", min(arrived + pane_retention_ms, LAST_MS)]
            expiring[key.metric] = None
    words["SADD", f"{prefix}:indexed"] += indexed
    words["SADD", f"{prefix}:expiring"] += expiring
    marks = {name: str(mark) for name, mark in partition.watermarks.items()}
    for hash_name, fields in (
        ("watermarks", marks),
        ("counts", partition.counts),
        ("owner", facts),
    ):
        words["HSET", f"{prefix}:{hash_name}"] += [word for pair in fields.items() for word in pair]
    for head, more in words.items():
        yield from _parts(head, more)


def chunks(prefix: str, key: PaneKey, ids: int) -> list[tuple[str, int]]:
    """Return the keys of the chunks of a pane's batch ids, with the number of ids in each.

    Parameters
    ----------
    prefix : str
    key : PaneKey
    ids : int
        The number of ids of the pane.

    Examples
    --------
    >>> chunks("{p}", PaneKey("pane", "delay", 0), 4_001)
    [('{p}:seen:pane:delay:0:0', 4000), ('{p}:seen:pane:delay:0:1', 1)]
    """
    return [
        (f"{prefix}:seen:{key}:{first // CHUNK_IDS}", min(CHUNK_IDS, ids - first))
        for first in range(0, ids, CHUNK_IDS)
    ]


def id_commands(prefix: str, key: PaneKey, pane: Pane) -> Iterator[list[Any]]:
    """Yield the commands that append an open pane's new ids to its chunks.

    Each chunk after the first gets its full size at once, because Redis reserves twice the size
    for a value that grows.

    Parameters
    ----------
    prefix : str
    key : PaneKey
    pane : Pane
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
