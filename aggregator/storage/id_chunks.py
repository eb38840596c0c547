"""How the ids of a pane's batches are kept in Redis: in chunks, to which commits add.

A chunk has :data:`CHUNK_IDS` ids, one behind the other; the hash ``P:ids`` says how many ids are in
the chunks of each open pane. So no command copies or frees much, and a commit writes only its new
ids. Earlier versions kept all ids of a pane in one value, which is read, too, and deleted with the
pane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from aggregator.errors import StateUnreadable
from aggregator.state.batch_ids import BatchIds, as_ids
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey
from aggregator.storage.commands import Command
from producers.wire.batch import BATCH_ID_BYTES

CHUNK_IDS = 4_000
"""With Redis's own header just below 64 KiB, as more than that takes 80."""
PIECE_BYTES = 2**20
"""Of one value of all ids that one command reads: whole ids."""
ROUND_BYTES = 2**22
"""What is asked for at once, in so many commands at most:"""
ROUND_COMMANDS = 1_000
LOADED_SHARE = 5
"""A fifth of what is there is sorted, and merged into it, at a time."""
MOST_IDS = 2**48
EXPECTED = f"batch ids of {BATCH_ID_BYTES} bytes, each once"
PADDING = b"\0"


class OpenPane(NamedTuple):
    """An open pane as it is stored, but for its ids.

    Attributes
    ----------
    member : bytes
        Of the set of open panes.
    statistic : bytes or None
        None if it is gone.
    unchunked : int
        The bytes of ids in one value.
    chunked : int
        The number of ids in chunks.
    uses : list or mapping of bytes
        The hash of message keys.
    """

    member: bytes
    statistic: bytes | None
    unchunked: int
    chunked: int
    uses: Any


class StoredIds(NamedTuple):
    """The ids of an open pane.

    Attributes
    ----------
    ids : BatchIds
    unchunked : int
        How many of them are in one value.
    gone : str
        The key of some that are not there.
    """

    ids: BatchIds
    unchunked: int
    gone: str


def chunk_keys(prefix: str, key: PaneKey | str, ids: int) -> list[str]:
    """Return the keys of the chunks of so many ids.

    Parameters
    ----------
    prefix : str
        Of the partition's keys.
    key : PaneKey or str
        The pane's.
    ids : int

    Examples
    --------
    >>> chunk_keys("{p}", "pane:delay:0", 4_001)
    ['{p}:seen:pane:delay:0:0', '{p}:seen:pane:delay:0:1']
    """
    return [f"{prefix}:seen:{key}:{number}" for number in range(-(-ids // CHUNK_IDS))]


def id_writes(prefix: str, key: PaneKey, pane: Pane) -> Iterator[list[Any]]:
    """Yield the commands that add a pane's new ids to its chunks.

    A chunk behind the first gets its full size at once: a value that grows takes twice its size.

    Parameters
    ----------
    prefix : str
        Of the partition's keys.
    key : PaneKey
    pane : Pane
        Open, with new ids.
    """
    data = memoryview(b"".join(pane.unsaved))
    position = pane.saved_ids
    while data:
        number, place = divmod(position, CHUNK_IDS)
        piece = data[: (CHUNK_IDS - place) * BATCH_ID_BYTES]
        ids = len(piece) // BATCH_ID_BYTES
        chunk = f"{prefix}:seen:{key}:{number}"
        if number and not place and ids < CHUNK_IDS:
            yield ["SETRANGE", chunk, CHUNK_IDS * BATCH_ID_BYTES - 1, PADDING]
        yield ["SETRANGE", chunk, place * BATCH_ID_BYTES, piece]
        data, position = data[len(piece) :], position + ids


def read_ids(
    ask: Callable[[Sequence[Command]], list[Any]], prefix: str, panes: Sequence[OpenPane]
) -> list[StoredIds]:
    """Return the ids of open panes. What was added since their numbers were told is left out.

    Parameters
    ----------
    ask : callable
        Runs commands in one round trip.
    prefix : str
        Of the partition's keys.
    panes : sequence of OpenPane

    Raises
    ------
    StateUnreadable
        If an id is there twice, or a size is wrong.
    """
    loading = [_Loading() for _ in panes]
    for together in _rounds(prefix, panes):
        replies = ask([read.command for read in together])
        for read, reply in zip(together, replies, strict=True):
            loading[read.pane].take(str(read.command[1]), reply, read.size)
    found = []
    for pane, one in zip(panes, loading, strict=True):
        key = f"{prefix}:seen:{pane.member.rpartition(b':')[0].decode(errors='replace')}"
        found.append(StoredIds(one.finish(key), pane.unchunked // BATCH_ID_BYTES, one.gone))
    return found


class _Loading:
    """The ids of a pane, while they are read."""

    def __init__(self) -> None:
        self.ids, self.gone = BatchIds(), ""
        self._waiting: list[bytes] = []
        self._bytes = 0

    def take(self, key: str, reply: bytes, size: int) -> None:
        """Add what was read of a value, of which so many bytes were asked for."""
        if size and not reply:
            self.gone = self.gone or key
            return
        if len(reply) < size or size % BATCH_ID_BYTES:
            raise StateUnreadable(key, f"{len(reply)} bytes", EXPECTED)
        self._waiting.append(reply)
        self._bytes += size
        if self._bytes >= max(ROUND_BYTES, len(self.ids) * BATCH_ID_BYTES // LOADED_SHARE):
            self._load()

    def finish(self, key: str) -> BatchIds:
        """Return all of them."""
        self._load()
        if self.ids.has_repeats():
            raise StateUnreadable(key, "an id twice", EXPECTED)
        return self.ids

    def _load(self) -> None:
        self.ids.load(as_ids(self._waiting))
        self._waiting, self._bytes = [], 0


class _Read(NamedTuple):
    pane: int
    command: Command
    size: int


def _reads(prefix: str, panes: Sequence[OpenPane]) -> Iterator[_Read]:
    for number, pane in enumerate(panes):
        key = pane.member.rpartition(b":")[0].decode(errors="replace")
        for first in range(0, pane.unchunked, PIECE_BYTES):
            end = min(first + PIECE_BYTES, pane.unchunked)
            yield _Read(number, ("GETRANGE", f"{prefix}:seen:{key}", first, end - 1), end - first)
        for index, chunk in enumerate(chunk_keys(prefix, key, pane.chunked)):
            size = min(CHUNK_IDS, pane.chunked - index * CHUNK_IDS) * BATCH_ID_BYTES
            yield _Read(number, ("GETRANGE", chunk, 0, size - 1), size)


def _rounds(prefix: str, panes: Sequence[OpenPane]) -> Iterator[list[_Read]]:
    """Yield what is read in each round trip."""
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
