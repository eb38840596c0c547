"""Reading a partition in one consistent piece, by plain commands.

A commit is one script, which Redis runs whole, and it changes the owner's stamp. What was read
between two looks at the same stamp is therefore of one state. All of it is asked for in one round
trip, so that the looks are as near to each other as Redis runs commands, however slow the network.
No right to run scripts is needed, and none to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import redis

STAMP = ("epoch", "next", "begun", "done", "token")
"""Fields of an owner's hash of which each commit and each take-over changes one."""
LOOKS = 20

Command = tuple[str | int, ...]
Panes = dict[bytes, list[Command]]
"""Of the members of a set of open panes, the commands that read them."""


class Plan(NamedTuple):
    """What is read of a partition.

    Attributes
    ----------
    prefix : str
        Of its keys.
    always : list of command
    of_open : callable
        Returns the commands for a member of its set of open panes; none: it is passed over.
    """

    prefix: str
    always: list[Command]
    of_open: Callable[[bytes], list[Command]]


class Piece(NamedTuple):
    """What was found.

    Attributes
    ----------
    always : list
        Replies to the plan's commands.
    open : dict of bytes to list
        By member of the set of open panes: replies to its commands.
    """

    always: list[Any]
    open: dict[bytes, list[Any]]


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
    """
    sets: list[Any] = ask([("SMEMBERS", f"{plan.prefix}:open") for plan in plans])
    panes = [_panes(plan, opened) for plan, opened in zip(plans, sets, strict=True)]
    found: dict[int, Piece] = {}
    for _ in range(LOOKS):
        waiting = [number for number in range(len(plans)) if number not in found]
        blocks = [_block(plans[number], panes[number]) for number in waiting]
        replies = iter(ask([command for block in blocks for command in block]))
        for number, block in zip(waiting, blocks, strict=True):
            before, opened, *rest, after = (next(replies) for _ in block)
            now = panes[number] if opened == sets[number] else _panes(plans[number], opened)
            if before == after and now == panes[number]:
                found[number] = _piece(plans[number], now, rest)
            sets[number], panes[number] = opened, now
        if len(found) == len(plans):
            return [found[number] for number in range(len(plans))]
    changing = next(plan.prefix for number, plan in enumerate(plans) if number not in found)
    raise redis.exceptions.TryAgainError(f"{changing} changes while it is read")


def _panes(plan: Plan, opened: Any) -> Panes:
    commands = {member: plan.of_open(member) for member in opened}
    return {member: those for member, those in commands.items() if those}


def _block(plan: Plan, panes: Panes) -> list[Command]:
    stamp: Command = ("HMGET", f"{plan.prefix}:owner", *STAMP)
    of_panes = (command for those in panes.values() for command in those)
    return [stamp, ("SMEMBERS", f"{plan.prefix}:open"), *plan.always, *of_panes, stamp]


def _piece(plan: Plan, panes: Panes, replies: list[Any]) -> Piece:
    size = len(plan.always)
    rest = iter(replies[size:])
    return Piece(
        replies[:size], {member: [next(rest) for _ in those] for member, those in panes.items()}
    )
