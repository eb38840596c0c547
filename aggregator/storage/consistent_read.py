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

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import redis

from aggregator.errors import StateUnreadable
from aggregator.storage import parsing
from aggregator.storage.commands import Command, ask_each

FACTS = ("next", "begun", "done", "sizes")
"""Fields of an owner's hash that say whether the sizes are those of the last commit."""
ALWAYS = "indexed"
"""A set that exists as soon as any does."""
STAMP = ("epoch", "token", *FACTS)
"""Fields of an owner's hash of which each commit and each take-over changes one."""
LOOKS = 20


class Plan(NamedTuple):
    """The keys that are read of a partition.

    Attributes
    ----------
    prefix : str
        Of its keys.
    reads : callable
        Returns commands for the members of its set of open panes.
    """

    prefix: str
    reads: Callable[[Collection[bytes]], list[Command]]


class Piece(NamedTuple):
    """The values that were read.

    Attributes
    ----------
    opened : collection of bytes
        Members of the set of open panes.
    replies : list
        To the plan's commands for them.
    """

    opened: Collection[bytes]
    replies: list[Any]


def read(ask: Callable[[Sequence[Command]], list[Any]], plans: Sequence[Plan]) -> list[Piece]:
    """Return a consistent piece of each partition; those of different partitions are of any time.

    Parameters
    ----------
    ask : callable
        Runs commands in their order, in one round trip.
    plans : sequence of Plan

    Raises
    ------
    redis.exceptions.TryAgainError
        If a partition has changed each time that it was read.
    StateUnreadable
        If some of the set of open panes is gone.
    """
    heads = ask_each(ask, [_head(plan) for plan in plans])
    commands = [plan.reads(opened) for plan, (*_, opened) in zip(plans, heads, strict=True)]
    parts = [[*those, _stamp(plan)] for plan, those in zip(plans, commands, strict=True)]
    pieces = []
    for plan, head, those, (*found, after) in zip(
        plans, heads, commands, ask_each(ask, parts), strict=True
    ):
        is_same = after == head[0]
        pieces.append(_piece(plan, head, found) if is_same else _again(ask, plan, those))
    return pieces


def _again(
    ask: Callable[[Sequence[Command]], list[Any]], plan: Plan, commands: list[Command]
) -> Piece:
    """Return a piece of a partition that has changed: all of it from one round trip."""
    for _ in range(LOOKS):
        before, known, opened, *found, after = ask([*_head(plan), *commands, _stamp(plan)])
        expected = plan.reads(opened)
        if before == after and commands == expected:
            return _piece(plan, [before, known, opened], found)
        commands = expected
    raise redis.exceptions.TryAgainError(f"{plan.prefix} changes while it is read")


def _piece(plan: Plan, head: list[Any], found: list[Any]) -> Piece:
    """Return what was found, if all panes are there that are open."""
    (_, _, *facts), (indexed, size), opened = head
    if are_known(facts):
        if indexed is None:
            raise lost(f"{plan.prefix}:sizes", 0, 1)
        if size is not None and parsing.integer(f"{plan.prefix}:sizes", size, 0) != len(opened):
            raise lost(f"{plan.prefix}:open", len(opened), size)
    return Piece(opened, found)


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
