"""Reads one consistent state of a partition with plain commands.

A commit is one atomic script, which changes the owner's stamp. So everything that is read between
two reads of the same stamp is of one state. If the stamp has changed, everything is read again in
one round trip, so that a slow network does not separate the two reads of the stamp. The reader
needs no right to run scripts or to write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import redis

from aggregator.storage import parsing, sizes
from aggregator.storage.commands import Command, ask_each

STAMP = ("epoch", "token", *sizes.FACTS)
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
    if sizes.are_known(facts):
        if indexed is None:
            raise sizes.lost(f"{plan.prefix}:sizes", 0, 1)
        if size is not None and parsing.integer(f"{plan.prefix}:sizes", size, 0) != len(opened):
            raise sizes.lost(f"{plan.prefix}:open", len(opened), size)
    return Piece(opened, found)


def _stamp(plan: Plan) -> Command:
    return ("HMGET", f"{plan.prefix}:owner", *STAMP)


def _head(plan: Plan) -> list[Command]:
    known = ("HMGET", f"{plan.prefix}:sizes", sizes.ALWAYS, "open")
    return [_stamp(plan), known, ("SMEMBERS", f"{plan.prefix}:open")]
