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

FACTS = ("next", "begun", "done", "sizes")
"""Fields of an owner's hash that say whether the sizes are those of the last commit."""
ALWAYS = "indexed"
"""A set that exists as soon as any does."""
STAMP = ("epoch", "token", *FACTS)
"""Fields of an owner's hash of which each commit and each take-over changes one."""
LOOKS = 20
LARGE_BYTES, GROUP_BYTES = 32_000_000, 16_000_000
"""Of replies: above it they are folded one by one, and so many are asked for at a time."""
PACED_LOOKS = 1
"""After which a partition is read at once: it may change more often than groups can be read."""


def _listed(_: Collection[bytes], replies: Iterable[Any]) -> Any:
    return [*replies]


class Plan(NamedTuple):
    """The keys that are read of a partition.

    Attributes
    ----------
    prefix : str
        Of its keys.
    reads : callable
        Returns commands for the members of its set of open panes.
    fold : callable
        Makes one value of those members and the replies, all of which it takes, in their order. It
        may be called again, for replies of a later state.
    weigh : callable
        Returns of how many bytes the replies to the commands are at most.
    """

    prefix: str
    reads: Callable[[Collection[bytes]], list[Command]]
    fold: Callable[[Collection[bytes], Iterable[Any]], Any] = _listed
    weigh: Callable[[Sequence[Command]], list[int]] = lambda commands: [0] * len(commands)


class Piece(NamedTuple):
    """The values that were read.

    Attributes
    ----------
    opened : collection of bytes
        Members of the set of open panes.
    replies : object
        To the plan's commands for them, as its `fold` returns them; by default a list.
    """

    opened: Collection[bytes]
    replies: Any


Ask = Callable[[Sequence[Command]], list[Any]]
Stream = Callable[[Sequence[Sequence[Command]]], AbstractContextManager[Iterator[Any]]]


def read(ask: Ask, plans: Sequence[Plan], stream: Stream | None = None) -> list[Piece]:
    """Return a consistent piece of each partition; those of different partitions are of any time.

    Parameters
    ----------
    ask : callable
        Runs commands in their order, in one round trip.
    plans : sequence of Plan
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
        return [_streamed(ask, stream, *each) for each in zip(plans, commands, strict=True)]
    parts = [[*those, _stamp(plan)] for plan, those in zip(plans, commands, strict=True)]
    pieces = []
    for plan, head, those, (*found, after) in zip(
        plans, heads, commands, ask_each(ask, parts), strict=True
    ):
        is_same = after == head[0]
        pieces.append(_piece(plan, head, found) if is_same else _again(ask, plan, those))
    return pieces


def _streamed(ask: Ask, stream: Stream, plan: Plan, commands: list[Command]) -> Piece:
    try:
        return _looked(stream, plan, commands)
    except redis.RedisError:  # a slot has moved, or the connection is gone: `ask` looks for another
        return _again(ask, plan, commands)


def _again(ask: Ask, plan: Plan, commands: list[Command]) -> Piece:
    """Return a piece of a partition that has changed, all of it from one round trip."""

    def at_once(groups: Sequence[Sequence[Command]]) -> nullcontext[Iterator[Any]]:
        return nullcontext(iter(ask([command for group in groups for command in group])))

    return _looked(at_once, plan, commands)


def _looked(stream: Stream, plan: Plan, commands: list[Command]) -> Piece:
    """Return a piece of a partition that does not change meanwhile."""
    for look in range(LOOKS):
        groups = [_head(plan), *_grouped(plan, commands), [_stamp(plan)]]
        if look >= PACED_LOOKS:
            groups = [[command for group in groups for command in group]]
        with stream(groups) as replies:
            before, known, opened = map(readable, itertools.islice(replies, 3))
            expected = plan.reads(opened)
            if commands == expected:
                values = map(readable, itertools.islice(replies, len(commands)))
                piece: Piece | StateUnreadable
                try:
                    piece = _piece(plan, [before, known, opened], values)
                except StateUnreadable as error:  # or a pane was closed meanwhile
                    piece = error
                if deque(replies, 1).pop() == before:
                    return cast(Piece, readable(piece))
            commands = expected
    raise redis.exceptions.TryAgainError(f"{plan.prefix} changes while it is read")


def _grouped(plan: Plan, commands: list[Command]) -> list[list[Command]]:
    ends = itertools.accumulate(plan.weigh(commands))
    numbered = zip((end // GROUP_BYTES for end in ends), commands, strict=True)
    groups = itertools.groupby(numbered, operator.itemgetter(0))
    return [[command for _, command in group] for _, group in groups]


def _piece(plan: Plan, head: list[Any], found: Iterable[Any]) -> Piece:
    """Return what was found, if all panes are there that are open."""
    (_, _, *facts), (indexed, size), opened = head
    if are_known(facts):
        if indexed is None:
            raise lost(f"{plan.prefix}:sizes", 0, 1)
        if size is not None and parsing.integer(f"{plan.prefix}:sizes", size, 0) != len(opened):
            raise lost(f"{plan.prefix}:open", len(opened), size)
    return Piece(opened, plan.fold(opened, found))


def _stamp(plan: Plan) -> Command:
    return ("HMGET", f"{plan.prefix}:owner", *STAMP)


def _head(plan: Plan) -> list[Command]:
    known = ("HMGET", f"{plan.prefix}:sizes", ALWAYS, "open")
    return [_stamp(plan), known, ("SMEMBERS", f"{plan.prefix}:open")]


def are_known(facts: Sequence[bytes | None]) -> bool:
    """Return whether the sizes are those of the last commit, given :data:`FACTS`."""
    following, begun, done, sizes = facts
    return sizes is not None and begun == done == sizes and following != b"-2"


def lost(key: str, found: bytes | int, expected: bytes | int) -> StateUnreadable:
    """Return the error for a key that has lost some of its members, or all.

    Parameters
    ----------
    key : str
        Of the set or hash.
    found, expected : bytes or int
        How many members it has, and how many were committed.
    """
    number = int(found)
    shown = f"{number} entries" if number else "nothing"
    all_of_them = expected.decode(errors="replace") if isinstance(expected, bytes) else expected
    return StateUnreadable(key, shown, f"all that was committed, {all_of_them}")
