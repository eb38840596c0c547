"""Takes over, commits and halts partitions in Redis by their epochs, and reads their open state."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import redis

from aggregator.errors import CommitTooLarge, Fenced, OtherGroup, PartialCommit, StateUnreadable
from aggregator.state.pane_keys import counted_metric
from aggregator.state.partition import Partition
from aggregator.storage import consistent_read, parsing
from aggregator.storage.commands import Commands, script
from aggregator.storage.commit import commit_commands, keys_of
from aggregator.storage.parsing import Command
from aggregator.storage.progress import TORN
from aggregator.storage.redis_keys import partitions_key, tag
from aggregator.storage.snapshot import Snapshot, open_pane, pairs, read_ids, read_panes
from estimators import Metric

MAX_SCRIPT_ARGUMENTS = 1_000_000
"""The most arguments of a script call, keys included: Redis takes 1,048,576."""
SNAPSHOT_KEYS = ("owner", "watermarks", "counts", "open", "sizes", "ids")
"""The keys without which a partition cannot be read: a set of open panes, and hashes."""
MAX_SNAPSHOT_ATTEMPTS = 3
"""Attempts to read a partition while a Redis Cluster moves its panes."""
TOKEN_BYTES = 8
SNAPSHOT_HASHES = ("owner", "watermarks", "counts", "ids")


class PartitionStore:
    """Reads and writes the state of partitions atomically."""

    def __init__(self, commands: Commands, topic: str) -> None:
        self._commands, self._topic = commands, topic
        self._partitions_key = partitions_key(topic)
        self._tokens: dict[int, tuple[int, str]] = {}  # by partition: epoch, token
        self._commit = commands.client.register_script(script("commit"))
        self._snapshot = commands.client.register_script(script("snapshot"))

    def acquire(
        self,
        partition: int,
        worker: str,
        group: str = "",
        metrics: Mapping[str, Metric] | None = None,
    ) -> Snapshot:
        """Become a partition's owner, which fences the previous owner; return the stored state.

        `partition`: the partition; `worker`: name of the new owner, for people; `group`: the
        worker's consumer group; "" for any group; `metrics`: the current definitions by name; open
        panes of other definitions are not read. By default all open panes are read.

        Raises
        ------
        OtherGroup
            If another consumer group counts the partition here. Nothing was changed.
        StateUnreadable
            If counting cannot continue from the stored state.
        TryAgainError
            If the partition changed during each attempt to read it.
        """
        self._commands.ask([("SADD", self._partitions_key, partition)])  # readers look at it
        prefix, token = tag(self._topic, partition), os.urandom(TOKEN_BYTES).hex()
        keys = [f"{prefix}:{name}" for name in SNAPSHOT_KEYS]
        for _ in range(MAX_SNAPSHOT_ATTEMPTS):
            try:
                replies = self._snapshot(keys, [worker, token, group])
            except redis.ResponseError as error:
                raise self._diagnose(prefix, error) from None
            *hashes, ids, open_members, short = replies
            owner = pairs(hashes[0])
            names = (owner.get(key, b"").decode(errors="replace") for key in (b"group", b"worker"))
            stored_group, stored_worker = names
            if group and stored_group != group:
                raise OtherGroup(prefix, group, stored_group, stored_worker)
            uncounted = _uncounted(prefix, open_members, metrics)
            counted = [member for member in open_members if member not in uncounted]
            panes = read_panes(self._commands.ask, prefix, counted, pairs(ids), metrics)
            read_ids(self._commands.ask, prefix, panes)
            stored_owner = self._commands.ask([("HMGET", keys[0], "epoch", "token")])
            if stored_owner != [[owner[b"epoch"], token.encode()]]:
                continue  # another worker took it over, and may have closed panes
            snapshot = Snapshot.of(prefix, hashes, panes, uncounted)
            if short:
                key = short[0].decode(errors="replace")
                if short[1] or not self._has_appeared(prefix, key):
                    raise parsing.loss_error(key, *short[1:])
                continue
            if not snapshot.gone or snapshot.next_offset == TORN:
                self._tokens[partition] = int(snapshot.owner["epoch"]), token
                return snapshot
            if not self._has_appeared(prefix, snapshot.gone):
                raise _missing_part_error(snapshot)
        raise redis.exceptions.TryAgainError(f"{prefix} changes while it is read")

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
            The epoch of the snapshot that :meth:`acquire` returned.
        expected : int
            The stored next offset on which this state was built.
        partition : Partition
            The state whose changes are written; afterwards it is marked as committed.
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
            torn = PartialCommit(name, epoch, expected, detail.decode(errors="replace"))
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
        """Store the reason why a partition is not counted; do nothing if Redis refuses."""
        with contextlib.suppress(redis.RedisError):
            self._commands.client.sadd(self._partitions_key, partition)
            self._commands.client.hset(f"{tag(self._topic, partition)}:owner", "halted", reason)

    def snapshot(self, partition: int) -> Snapshot:
        """Return a partition's open state, without becoming its owner.

        Raises TryAgainError if the partition changed during each attempt.
        """
        prefix, ask = tag(self._topic, partition), self._commands.ask
        request = _SnapshotRequest(prefix)
        for _ in range(MAX_SNAPSHOT_ATTEMPTS):
            ((hashes, panes),) = consistent_read.read(ask, [request])
            read_ids(ask, prefix, panes)
            snapshot = Snapshot.of(prefix, hashes, panes)
            if not snapshot.gone or snapshot.next_offset == TORN:
                return snapshot
            owner = pairs(hashes[0])
            stamp = [owner.get(name.encode()) for name in consistent_read.STAMP_FIELDS]
            if ask([("HMGET", f"{prefix}:owner", *consistent_read.STAMP_FIELDS)]) == [stamp]:
                raise _missing_part_error(snapshot)  # else a pane may have closed meanwhile
        raise redis.exceptions.TryAgainError(f"{prefix} changes while it is read")

    def deployments(self, partitions: Sequence[int]) -> set[str]:
        """Return the names of the deployments that counted these partitions in this Redis."""
        replies = self._commands.replies(
            [("HMGET", f"{tag(self._topic, number)}:owner", "deployment") for number in partitions]
        )
        readable = [reply[0] for reply in replies if not isinstance(reply, StateUnreadable)]
        return {name.decode(errors="replace") for name in readable if name}

    def _diagnose(self, prefix: str, error: redis.ResponseError) -> Exception:
        """Return an error that names the key at which a script failed; `error` if none is found."""
        if "not an integer" in str(error):
            return StateUnreadable(f"{prefix}:owner, field epoch", str(error), "a whole number")
        if "WRONGTYPE" not in str(error):
            return error
        types = {f"{prefix}:{name}": b"hash" for name in SNAPSHOT_KEYS}
        types |= {self._partitions_key: b"set", f"{prefix}:open": b"set"}
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

    def _has_appeared(self, prefix: str, key: str) -> bool:
        """Return whether a key exists after all, because a Redis Cluster was moving it."""
        (existing,) = self._commands.ask([("EXISTS", f"{prefix}:open", key)])
        if existing == 2 and self._commands.ask([("TYPE", key)]) == [b"string"]:
            return self._commands.ask([("STRLEN", key)]) != [0]  # an empty value is damaged
        return bool(existing == 2)


class _SnapshotRequest:
    """The read of all open panes of a partition."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def head(self) -> list[Command]:
        sizes = ("HMGET", f"{self.prefix}:sizes", parsing.INDEXED_SET, "open")
        return [sizes, ("SMEMBERS", f"{self.prefix}:open")]

    def reads(self, head: Sequence[Any]) -> list[Command]:
        commands: list[Command] = [("HGETALL", f"{self.prefix}:{name}") for name in SNAPSHOT_HASHES]
        for member in sorted(head[1]):
            key, _ = parsing.opened(f"{self.prefix}:open", member)
            commands += [("GET", f"{self.prefix}:{key}"), ("STRLEN", f"{self.prefix}:seen:{key}")]
            commands += [("HGETALL", f"{self.prefix}:keys:{key}")]
        return commands

    def weigh(self, commands: Sequence[Command]) -> list[int]:
        return [0] * len(commands)

    def fold(self, stamp: Sequence[Any], head: Sequence[Any], replies: Iterable[Any]) -> Any:
        sizes, open_members = head
        consistent_read.require_open_panes(self.prefix, stamp, sizes, len(open_members))
        values = iter(replies)
        *hashes, ids = (next(values) for _ in SNAPSHOT_HASHES)
        panes = [
            open_pane(self.prefix, member, next(values), next(values), pairs(ids), next(values))
            for member in sorted(open_members)
        ]
        return hashes, panes


def _uncounted(
    prefix: str, open_members: Collection[bytes], metrics: Mapping[str, Metric] | None
) -> frozenset[bytes]:
    """Return the open panes whose definition is not among `metrics`."""
    if metrics is None:
        return frozenset()
    keys = {member: parsing.opened(f"{prefix}:open", member)[0].metric for member in open_members}
    left = {key for key in {*keys.values()} if counted_metric(metrics, key) is None}
    return frozenset(member for member, key in keys.items() if key in left)


def _missing_part_error(snapshot: Snapshot) -> StateUnreadable:
    return StateUnreadable(snapshot.gone, "nothing", "the data of an open pane")
