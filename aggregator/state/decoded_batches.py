"""Decoded batches of one metric as columns, in the log's order."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import Ids
from aggregator.state.rows import Integers
from producers.wire.reports_pb2 import ReportBatch

NO_SLICES: Integers = np.zeros(0, dtype=np.int64)


class Columns(NamedTuple):
    """The levels and the values of some batches.

    Attributes
    ----------
    levels, values : bytes
    codes, sizes : ndarray of int64, shape (batches,)
        The slice of each batch, and its number of reports; empty if the metric has no slices.
    """

    levels: bytes
    values: bytes
    codes: Integers = NO_SLICES
    sizes: Integers = NO_SLICES


@dataclasses.dataclass(frozen=True)
class Rows(ABC):
    """Batches of one metric that may be counted, a row each: the mechanism can have made them.

    Attributes
    ----------
    index : ndarray of int64, shape (n,)
        Which of the messages each row is, ascending.
    time_ms : ndarray of int64, shape (n,)
        The event time that the batch names; 0: none.
    ids : ndarray of void, shape (n,)
        16 bytes each.
    codes : ndarray of int64, shape (n,)
        The slice of each row; None if the metric has no slices.
    """

    index: Integers
    time_ms: Integers
    ids: Ids
    codes: Integers | None

    @abstractmethod
    def size(self, row: int) -> int:
        """Return the number of reports in a row."""

    @abstractmethod
    def sizes(self, which: NDArray[np.intp]) -> Integers:
        """Return the numbers of reports in some rows."""

    @abstractmethod
    def columns(self, which: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the levels and the values of some rows, one after the other."""


@dataclasses.dataclass(frozen=True)
class MatrixRows(Rows):
    """Rows of one size.

    Attributes
    ----------
    levels, values : bytes
        Of all rows.
    """

    levels: bytes
    values: bytes

    def size(self, row: int) -> int:
        """Return the number of reports in a row."""
        return len(self.levels) // len(self.ids)

    def sizes(self, which: NDArray[np.intp]) -> Integers:
        """Return the numbers of reports in some rows."""
        return np.full(which.size, self.size(0))

    def columns(self, which: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the levels and the values of some rows, one after the other."""
        if which.size == len(self.ids):
            return self.levels, self.values
        parts = (np.frombuffer(x, np.uint8) for x in (self.levels, self.values))
        levels, values = (part.reshape(len(self.ids), -1)[which].tobytes() for part in parts)
        return levels, values


@dataclasses.dataclass(frozen=True)
class ParsedRows(Rows):
    """Rows that were parsed one by one."""

    batches: list[ReportBatch]

    def size(self, row: int) -> int:
        """Return the number of reports in a row."""
        return len(self.batches[row].levels)

    def sizes(self, which: NDArray[np.intp]) -> Integers:
        """Return the numbers of reports in some rows."""
        return np.array([self.size(row) for row in which.tolist()], dtype=np.int64)

    def columns(self, which: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the levels and the values of some rows, one after the other."""
        batches = [self.batches[i] for i in which]
        return b"".join([b.levels for b in batches]), b"".join([b.values for b in batches])


class DecodedBatches:
    """The batches of one metric in a stretch of a log, in the log's order.

    Parameters
    ----------
    blocks : sequence of Rows

    Attributes
    ----------
    index, time_ms, ids
        As :class:`Rows` has them.
    """

    def __init__(self, blocks: Sequence[Rows]) -> None:
        self._blocks = blocks
        sizes = [len(block.ids) for block in blocks]
        self.index, self.time_ms, self.ids = blocks[0].index, blocks[0].time_ms, blocks[0].ids
        self._block, self._row = np.zeros(sizes[0], dtype=np.intp), np.arange(sizes[0])
        if len(blocks) == 1:
            return
        index = np.concatenate([block.index for block in blocks])
        order = np.argsort(index, kind="stable")
        self.index = index[order]
        self.time_ms = np.concatenate([block.time_ms for block in blocks])[order]
        self.ids = np.concatenate([block.ids for block in blocks])[order]
        self._block = np.repeat(np.arange(len(blocks)), sizes)[order]
        self._row = np.concatenate([np.arange(size) for size in sizes])[order]

    def size(self, which: int) -> int:
        """Return the number of reports in a batch."""
        return self._blocks[int(self._block[which])].size(int(self._row[which]))

    def are_heartbeats(self) -> NDArray[np.bool_]:
        """Return which batches have no report: see :func:`producers.wire.batch.heartbeat`."""
        empty = np.zeros(len(self.ids), dtype=np.bool_)
        for number, block in enumerate(self._blocks):
            if isinstance(block, ParsedRows):  # those that are read as a matrix have reports
                mine = self._block == number
                sizes = np.array([len(batch.levels) for batch in block.batches])
                empty[mine] = sizes[self._row[mine]] == 0
        return empty

    def columns(self, which: NDArray[np.intp]) -> Iterator[Columns]:
        """Yield the levels and the values of some batches, and their slices."""
        for number, block in enumerate(self._blocks):
            rows = which
            if len(self._blocks) > 1:
                rows = self._row[which[self._block[which] == number]]
            if not rows.size:
                continue
            if block.codes is None:
                yield Columns(*block.columns(rows))
                continue
            yield Columns(*block.columns(rows), block.codes[rows], block.sizes(rows))
