"""Reads the ids of a pane's batches from Redis.

The ids are in chunks, to which commits append (:mod:`aggregator.storage.commit`); a pane may also
have ids in one value, ``P:seen:PANE``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from aggregator.errors import StateUnreadable
from aggregator.state.batch_ids import BatchIds, as_ids
from aggregator.state.pane import Uses
from aggregator.state.pane_keys import PaneKey
from aggregator.storage.commit import chunks
from aggregator.storage.parsing import Command
from producers.wire.batch import BATCH_ID_BYTES

PIECE_BYTES = 2**20
"""Bytes that one command reads of a value with all ids; a multiple of the size of an id."""
ROUND_BYTES = 2**22
"""The most bytes that one round trip reads."""
ROUND_COMMANDS = 1_000
MERGE_DIVISOR = 5
"""Ids that were read are sorted, and merged into the others, once they are a fifth as many."""
EXPECTED_IDS = f"batch ids of {BATCH_ID_BYTES} bytes, each once"


@dataclasses.dataclass
class OpenPane:
    """An open pane as it is stored; :func:`read_ids` adds its ids."""

    key: PaneKey
    first_offset: int
    statistic: bytes | None  # None if it is missing
    unchunked_bytes: int  # of ids in one value
    chunked: int  # number of ids in chunks
    used: Uses  # reports by message key, where the metric has a limit
    ids: BatchIds = dataclasses.field(default_factory=BatchIds)
    gone: str = ""  # the key at which ids are missing; "" if none are

    def missing_key(self, prefix: str) -> str:
        """Return the key of the missing statistic or ids; "" if nothing is missing."""
        if self.statistic is None:
            return f"{prefix}:{self.key}"
        has_no_ids = self.key.grain == "pane" and not self.ids
        return self.gone or (f"{prefix}:seen:{self.key}" if has_no_ids else "")


def read_ids(
    ask: Callable[[Sequence[Command]], list[Any]], prefix: str, panes: Sequence[OpenPane]
) -> None:
    """Add the ids of open panes, except those that were stored after the panes were read.

    A repeated id or a wrong size raises StateUnreadable.

    Parameters
    ----------
    ask : callable
        Runs commands in one round trip.
    prefix : str
    panes : sequence of OpenPane
    """
    pane_loads = [_Loading(pane) for pane in panes]
    for reads in _rounds(prefix, panes):
        replies = ask([read.command for read in reads])
        for read, reply in zip(reads, replies, strict=True):
            pane_loads[read.pane].take(str(read.command[1]), reply, read.size)
    for pane_load in pane_loads:
        pane_load.finish(prefix)


class _Loading:
    """Collects the ids of a pane while they are read."""

    def __init__(self, pane: OpenPane) -> None:
        self._pane = pane
        self._waiting: list[bytes] = []
        self._bytes = 0

    def take(self, key: str, reply: bytes, size: int) -> None:
        """Add the ids in a reply to a read of `size` bytes at a key."""
        if size and not reply:
            self._pane.gone = self._pane.gone or key
            return
        if len(reply) < size or size % BATCH_ID_BYTES:
            raise StateUnreadable(key, f"{len(reply)} bytes", EXPECTED_IDS)
        self._waiting.append(reply)
        self._bytes += size
        if self._bytes >= max(ROUND_BYTES, len(self._pane.ids) * BATCH_ID_BYTES // MERGE_DIVISOR):
            self._load()

    def finish(self, prefix: str) -> None:
        """Add the last ids, and check that none is repeated."""
        self._load()
        if self._pane.ids.has_repeats():
            key = f"{prefix}:seen:{self._pane.key}"
            raise StateUnreadable(key, "an id twice", EXPECTED_IDS)

    def _load(self) -> None:
        self._pane.ids.load(as_ids(self._waiting))
        self._waiting, self._bytes = [], 0


class _Read(NamedTuple):
    pane: int
    command: Command
    size: int


def _reads(prefix: str, panes: Sequence[OpenPane]) -> Iterator[_Read]:
    for number, pane in enumerate(panes):
        key = f"{prefix}:seen:{pane.key}"
        for first in range(0, pane.unchunked_bytes, PIECE_BYTES):
            end = min(first + PIECE_BYTES, pane.unchunked_bytes)
            yield _Read(number, ("GETRANGE", key, first, end - 1), end - first)
        for chunk, ids in chunks(prefix, pane.key, pane.chunked):
            size = ids * BATCH_ID_BYTES
            yield _Read(number, ("GETRANGE", chunk, 0, size - 1), size)


def _rounds(prefix: str, panes: Sequence[OpenPane]) -> Iterator[list[_Read]]:
    """Yield the reads of each round trip."""
    together: list[_Read] = []
    waiting = 0
    for read in _reads(prefix, panes):
        if together and (waiting + read.size > ROUND_BYTES or len(together) == ROUND_COMMANDS):
            yield together
            together, waiting = [], 0
        together.append(read)
        waiting += read.size
    if together:
        yield together
