"""Reads one consistent state of a partition with plain commands.

A commit is one atomic script that changes the owner's stamp, so replies between two reads of the
same stamp belong to one state. If the stamp changed, everything is read again in one round trip, so
that a slow network does not separate the two reads. A reader needs no right to run scripts.

Each commit stores the size of each set in the hash ``P:sizes``; a smaller set has lost members, and
a commit refuses to add to it. The owner's field ``sizes`` names the commit that wrote the sizes;
sizes of an earlier commit prove nothing.
"""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

import redis

from aggregator.errors import StateUnreadable
from aggregator.storage import parsing
from aggregator.storage.commands import Command, ask_each, readable

COMMIT_FIELDS = ("next", "begun", "done", "sizes")
"""Fields of an owner's hash that say whether the sizes are those of the last commit."""
INDEXED_SET = "indexed"
"""A set that exists as soon as any set does."""
STAMP_FIELDS = ("epoch", "token", *COMMIT_FIELDS)
"""Fields of an owner's hash of which each commit and each takeover changes one."""
MAX_READ_ATTEMPTS = 20
LARGE_BYTES, GROUP_BYTES = 32_000_000, 16_000_000
"""Of replies: above it they are folded one by one, and so many are asked for at a time."""
GROUPED_ATTEMPTS = 1
"""Attempts in groups; later ones read at once, as the partition may change faster than groups."""


def _list_replies(_: Collection[bytes], replies: Iterable[Any]) -> Any:
    return [*replies]


class ReadPlan(NamedTuple):
    """What a read asks of a partition."""

    prefix: str
    # Returns the commands for the members of the set of open panes.
    reads: Callable[[Collection[bytes]], list[Command]]
    # Makes one value of members and all replies, in order; called again for a later state.
    fold: Callable[[Collection[bytes], Iterable[Any]], Any] = _list_replies
    # Returns the maximum bytes of the replies to commands.
    weigh: Callable[[Sequence[Command]], list[int]] = lambda commands: [0] * len(commands)


class PartitionRead(NamedTuple):
    """What was read of a partition."""

    opened: Collection[bytes]  # members of the set of open panes
    replies: Any  # what the plan's `fold` returned; by default a list of replies


Ask = Callable[[Sequence[Command]], list[Any]]
Stream = Callable[[Sequence[Sequence[Command]]], AbstractContextManager[Iterator[Any]]]


def read(ask: Ask, plans: Sequence[ReadPlan], stream: Stream | None = None) -> list[PartitionRead]:
    """Read one consistent state of each partition; different partitions may be of different times.

    Parameters
    ----------
    ask : callable
        Runs commands in their order, in one round trip.
    plans : sequence of ReadPlan
    stream : callable, optional
        Runs groups of commands and yields the replies one by one: for large reads, one partition
        after the other.
    """
    heads = ask_each(ask, [_head(plan) for plan in plans])
    commands = [plan.reads(opened) for plan, (*_, opened) in zip(plans, heads, strict=True)]
    weights = (sum(plan.weigh(part)) for plan, part in zip(plans, commands, strict=True))
    if stream is not None and sum(weights) > LARGE_BYTES:
        return [
            _read_streamed(ask, stream, *plan_and_commands)
            for plan_and_commands in zip(plans, commands, strict=True)
        ]
    parts = [[*part, _stamp(plan)] for plan, part in zip(plans, commands, strict=True)]
    pieces = []
    for plan, head, plan_commands, (*replies, stamp_after) in zip(
        plans, heads, commands, ask_each(ask, parts), strict=True
    ):
        is_same = stamp_after == head[0]
        pieces.append(
            _checked_read(plan, head, replies) if is_same else _read_again(ask, plan, plan_commands)
        )
    return pieces


def _read_streamed(
    ask: Ask, stream: Stream, plan: ReadPlan, commands: list[Command]
) -> PartitionRead:
    try:
        return _read_until_stable(stream, plan, commands)
    except redis.RedisError:  # a slot has moved, or the connection is gone: `ask` looks for another
        return _read_again(ask, plan, commands)


def _read_again(ask: Ask, plan: ReadPlan, commands: list[Command]) -> PartitionRead:
    """Read a changed partition again, in one round trip."""

    def at_once(groups: Sequence[Sequence[Command]]) -> nullcontext[Iterator[Any]]:
        return nullcontext(iter(ask([command for group in groups for command in group])))

    return _read_until_stable(at_once, plan, commands)


def _read_until_stable(stream: Stream, plan: ReadPlan, commands: list[Command]) -> PartitionRead:
    """Read a partition until its stamp stays the same."""
    for look in range(MAX_READ_ATTEMPTS):
        groups = [_head(plan), *_group_commands(plan, commands), [_stamp(plan)]]
        if look >= GROUPED_ATTEMPTS:
            groups = [[command for group in groups for command in group]]
        with stream(groups) as replies:
            stamp, sizes, opened = map(readable, itertools.islice(replies, 3))
            expected = plan.reads(opened)
            if commands == expected:
                values = map(readable, itertools.islice(replies, len(commands)))
                piece: PartitionRead | StateUnreadable
                try:
                    piece = _checked_read(plan, [stamp, sizes, opened], values)
                except StateUnreadable as error:  # or a pane was closed meanwhile
                    piece = error
                if deque(replies, 1).pop() == stamp:
                    return cast(PartitionRead, readable(piece))
            commands = expected
    raise redis.exceptions.TryAgainError(f"{plan.prefix} changes while it is read")


def _group_commands(plan: ReadPlan, commands: list[Command]) -> list[list[Command]]:
    ends = itertools.accumulate(plan.weigh(commands))
    numbered = zip((end // GROUP_BYTES for end in ends), commands, strict=True)
    groups = itertools.groupby(numbered, operator.itemgetter(0))
    return [[command for _, command in group] for _, group in groups]


def _checked_read(plan: ReadPlan, head: list[Any], replies: Iterable[Any]) -> PartitionRead:
    """Return the replies, after checking that no open pane is missing."""
    (_, _, *facts), (indexed, size), opened = head
    if are_sizes_current(facts):
        if indexed is None:
            raise loss_error(f"{plan.prefix}:sizes", 0, 1)
        if size is not None and parsing.integer(f"{plan.prefix}:sizes", size, 0) != len(opened):
            raise loss_error(f"{plan.prefix}:open", len(opened), size)
    return PartitionRead(opened, plan.fold(opened, replies))


def _stamp(plan: ReadPlan) -> Command:
    return ("HMGET", f"{plan.prefix}:owner", *STAMP_FIELDS)


def _head(plan: ReadPlan) -> list[Command]:
    sizes = ("HMGET", f"{plan.prefix}:sizes", INDEXED_SET, "open")
    return [_stamp(plan), sizes, ("SMEMBERS", f"{plan.prefix}:open")]


def are_sizes_current(facts: Sequence[bytes | None]) -> bool:
    """Return whether the sizes are those of the last commit, given :data:`COMMIT_FIELDS`."""
    following, begun, done, sizes = facts
    return sizes is not None and begun == done == sizes and following != b"-2"


def loss_error(key: str, size: bytes | int, expected: bytes | int) -> StateUnreadable:
    """Return the error for a set or hash with fewer members than were committed.

    Parameters
    ----------
    key : str
    size, expected : bytes or int
        The number of members, and how many were committed.
    """
    number = int(size)
    shown = f"{number} entries" if number else "nothing"
    committed = expected.decode(errors="replace") if isinstance(expected, bytes) else expected
    return StateUnreadable(key, shown, f"all committed entries, {committed}")
