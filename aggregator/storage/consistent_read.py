"""Reads one consistent state of a partition with plain commands.

A commit is one atomic script that changes the owner's stamp, so all replies between two equal
stamps belong to one state. If the stamp changed, everything is read again in one round trip, so
that a slow network does not separate the two reads. A reader needs no right to run scripts.

Each commit stores the size of each set in the hash ``P:sizes``; a smaller set has lost members, and
a commit refuses to add to it. The owner's field ``sizes`` names the commit that wrote the sizes;
sizes of an earlier commit prove nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import redis

from aggregator.errors import StateUnreadable
from aggregator.size_pieces import pieces
from aggregator.storage import parsing
from aggregator.storage.commands import ask_each, readable
from aggregator.storage.parsing import Ask, Command

STAMP_FIELDS = ("epoch", "token", *parsing.COMMIT_FIELDS)
"""Fields of an owner's hash; each commit and each takeover changes at least one of them."""
MAX_READ_ATTEMPTS = 20
LARGE_BYTES, GROUP_BYTES = 32_000_000, 16_000_000
"""Replies of more than LARGE_BYTES in total are folded one by one, and requested in groups of about
GROUP_BYTES.
"""
GROUPED_ATTEMPTS = 1
"""How many attempts read in groups; later attempts read everything in one round trip, because the
partition may change faster than groups are read.
"""


class GuessMissedError(Exception):
    """Raised if replies lack values that a read needs; its next attempt asks for these values."""


class PartitionRequest(Protocol):
    """A read of a partition; the replies to its first commands, the head, determine the rest."""

    prefix: str

    def head(self) -> list[Command]:
        """Return the commands of the head."""

    def reads(self, head: Sequence[Any]) -> list[Command]:
        """Return the commands that read the rest, given the replies to the head."""

    def weigh(self, commands: Sequence[Command]) -> list[int]:
        """Return the maximum size in bytes of the reply to each command that reads the rest."""

    def fold(self, stamp: Sequence[Any], head: Sequence[Any], replies: Iterable[Any]) -> Any:
        """Return the value that was read; called once for each attempt.

        Parameters
        ----------
        stamp : sequence
            The owner's :data:`STAMP_FIELDS`.
        head, replies : sequence, iterable
            The replies to the head's commands, and to the commands that read the rest, in order.

        Raises
        ------
        StateUnreadable
            If Redis has lost a value, or has an invalid one.
        GuessMissedError
            If the commands did not ask for all needed values.
        """


Stream = Callable[[Sequence[Sequence[Command]]], AbstractContextManager[Iterator[Any]]]


def read(ask: Ask, requests: Sequence[PartitionRequest], stream: Stream | None = None) -> list[Any]:
    """Read a consistent state of each partition; states of two partitions may differ in time.

    `ask`: runs commands in their order, in one round trip; `requests`: what to read of each
    partition; `stream`, optional: runs groups of commands and yields the replies one by one; used
    for large reads, partition by partition.
    """
    heads = ask_each(ask, [[_stamp(request), *request.head()] for request in requests])
    commands = [request.reads(head) for request, (_, *head) in zip(requests, heads, strict=True)]
    weights = (sum(request.weigh(part)) for request, part in zip(requests, commands, strict=True))
    if stream is not None and sum(weights) > LARGE_BYTES:
        return [_read_streamed(ask, stream, *pair) for pair in zip(requests, commands, strict=True)]
    parts = [[*part, _stamp(request)] for request, part in zip(requests, commands, strict=True)]
    values = []
    for request, (stamp, *head), (*replies, stamp_after) in zip(
        requests, heads, ask_each(ask, parts), strict=True
    ):
        with contextlib.suppress(GuessMissedError):
            if stamp_after == stamp:
                values.append(request.fold(stamp, head, replies))
                continue
        values.append(_read_again(ask, request, request.reads(head)))
    return values


def _read_streamed(
    ask: Ask, stream: Stream, request: PartitionRequest, commands: list[Command]
) -> Any:
    try:
        return _read_until_stable(stream, request, commands)
    except redis.RedisError:  # a slot has moved, or the connection is gone: `ask` looks for another
        return _read_again(ask, request, commands)


def _read_again(ask: Ask, request: PartitionRequest, commands: list[Command]) -> Any:
    """Read a partition until its state is consistent; each attempt takes one round trip."""

    def at_once(groups: Sequence[Sequence[Command]]) -> nullcontext[Iterator[Any]]:
        return nullcontext(iter(ask([command for group in groups for command in group])))

    return _read_until_stable(at_once, request, commands)


def _read_until_stable(stream: Stream, request: PartitionRequest, commands: list[Command]) -> Any:
    """Read a partition until its stamp is the same before and after the other replies."""
    for look in range(MAX_READ_ATTEMPTS):
        beginning = [_stamp(request), *request.head()]
        groups = [beginning, *_group_commands(request, commands), [_stamp(request)]]
        if look >= GROUPED_ATTEMPTS:
            groups = [[command for group in groups for command in group]]
        with stream(groups) as replies:
            stamp, *head = map(readable, itertools.islice(replies, len(beginning)))
            expected = request.reads(head)
            if commands == expected:
                values = map(readable, itertools.islice(replies, len(commands)))
                failure: StateUnreadable | GuessMissedError | None = None
                try:
                    value = request.fold(stamp, head, values)
                except (StateUnreadable, GuessMissedError) as error:
                    failure = error  # or a pane was closed meanwhile
                if deque(replies, 1).pop() == stamp:
                    if failure is None:
                        return value
                    if isinstance(failure, StateUnreadable):
                        raise failure
                    expected = request.reads(head)
            commands = expected
    raise redis.exceptions.TryAgainError(f"{request.prefix} changes while it is read")


def _group_commands(request: PartitionRequest, commands: list[Command]) -> list[list[Command]]:
    weighed = zip(request.weigh(commands), commands, strict=True)
    groups = pieces(weighed, operator.itemgetter(0), GROUP_BYTES)
    return [[command for _, command in group] for group in groups]


def _stamp(request: PartitionRequest) -> Command:
    return ("HMGET", f"{request.prefix}:owner", *STAMP_FIELDS)


def require_open_panes(
    prefix: str, stamp: Sequence[Any], sizes: Sequence[bytes | None], number: int
) -> None:
    """Raise StateUnreadable if an open pane, or the sizes of sets, are missing.

    `prefix`: the beginning of the keys of the partition; `stamp`: the owner's :data:`STAMP_FIELDS`;
    `sizes`: the stored sizes of ``parsing.INDEXED_SET`` and of the set of open panes; `number`: the
    number of members in the set of open panes.
    """
    (_, _, *facts), (indexed, size) = stamp, sizes
    if parsing.are_sizes_current(facts):
        if indexed is None:
            raise parsing.loss_error(f"{prefix}:sizes", 0, 1)
        if size is not None and parsing.integer(f"{prefix}:sizes", size, 0) != number:
            raise parsing.loss_error(f"{prefix}:open", number, size)
