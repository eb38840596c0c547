"""Reads one consistent state of a partition with plain commands.

A commit is one atomic script, which changes the owner's stamp. So everything that is read between
two reads of the same stamp is of one state. If the stamp has changed, everything is read again in
one round trip, so that a slow network does not separate the two reads of the stamp. The reader
needs no right to run scripts or to write.

The sizes of a partition's sets show whether a set was deleted: the next commit would create it
again, with only a part of its members. So each commit stores the number of members of each set in
the hash ``P:sizes``, by the set's key. A commit refuses to add to a set that has another number of
members. The owner's field ``sizes`` names the commit that wrote the numbers last: an earlier
version of Dither does not update them, and then they say nothing.
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
"""A set that exists as soon as any does."""
STAMP_FIELDS = ("epoch", "token", *COMMIT_FIELDS)
"""Fields of an owner's hash of which each commit and each take-over changes one."""
MAX_READ_ATTEMPTS = 20
LARGE_BYTES, GROUP_BYTES = 32_000_000, 16_000_000
"""Of replies: above it they are folded one by one, and so many are asked for at a time."""
GROUPED_ATTEMPTS = 1
"""After which a partition is read at once: it may change more often than groups can be read."""


def _list_replies(_: Collection[bytes], replies: Iterable[Any]) -> Any:
    return [*replies]


class ReadPlan(NamedTuple):
    """The keys that are read of a partition."""

    prefix: str  # of its keys
    # Returns commands for the members of its set of open panes.
    reads: Callable[[Collection[bytes]], list[Command]]
    # Makes one value of those members and the replies, all of which it takes, in their order. It
    # may be called again, for replies of a later state.
    fold: Callable[[Collection[bytes], Iterable[Any]], Any] = _list_replies
    # Returns of how many bytes the replies to the commands are at most.
    weigh: Callable[[Sequence[Command]], list[int]] = lambda commands: [0] * len(commands)


class PartitionRead(NamedTuple):
    """The values that were read."""

    opened: Collection[bytes]  # members of the set of open panes
    replies: Any  # to the plan's commands for them, as its `fold` returns them; by default a list


Ask = Callable[[Sequence[Command]], list[Any]]
Stream = Callable[[Sequence[Sequence[Command]]], AbstractContextManager[Iterator[Any]]]


def read(ask: Ask, plans: Sequence[ReadPlan], stream: Stream | None = None) -> list[PartitionRead]:
    """Return a consistent piece of each partition; those of different partitions are of any time.

    Parameters
    ----------
    ask : callable
        Runs commands in their order, in one round trip.
    plans : sequence of ReadPlan
    stream : callable, optional
        Runs groups of commands, and hands out the replies one by one: for what is too large for
        memory, one partition after the other.

    Raises
    ------
    redis.exceptions.TryAgainError
        If a partition has changed each time that it was read.
    StateUnreadable
        If some of the set of open panes is gone.
    """
    heads = ask_each(ask, [_head(plan) for plan in plans])
    commands = [plan.reads(opened) for plan, (*_, opened) in zip(plans, heads, strict=True)]
    weights = (sum(plan.weigh(those)) for plan, those in zip(plans, commands, strict=True))
    if stream is not None and sum(weights) > LARGE_BYTES:
        return [
            _read_streamed(ask, stream, *plan_and_commands)
            for plan_and_commands in zip(plans, commands, strict=True)
        ]
    parts = [[*those, _stamp(plan)] for plan, those in zip(plans, commands, strict=True)]
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
    """Return a piece of a partition that has changed, all of it from one round trip."""

    def at_once(groups: Sequence[Sequence[Command]]) -> nullcontext[Iterator[Any]]:
        return nullcontext(iter(ask([command for group in groups for command in group])))

    return _read_until_stable(at_once, plan, commands)


def _read_until_stable(stream: Stream, plan: ReadPlan, commands: list[Command]) -> PartitionRead:
    """Return a piece of a partition that does not change meanwhile."""
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
    """Return what was found, if all panes are there that are open."""
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
    """Return the error for a key that has lost some of its members, or all.

    Parameters
    ----------
    key : str
        Of the set or hash.
    size, expected : bytes or int
        How many members it has, and how many were committed.
    """
    number = int(size)
    shown = f"{number} entries" if number else "nothing"
    all_of_them = expected.decode(errors="replace") if isinstance(expected, bytes) else expected
    return StateUnreadable(key, shown, f"all that was committed, {all_of_them}")
