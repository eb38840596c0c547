"""The decoded batches of one metric as columns, in the log's order."""

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


class ReportColumns(NamedTuple):
    """The levels and values of some batches."""

    levels: bytes
    values: bytes
    codes: Integers = NO_SLICES  # the slice of each batch; empty without slices
    sizes: Integers = NO_SLICES  # the reports of each batch; empty without slices


@dataclasses.dataclass(frozen=True)
class BatchRows(ABC):
    """Batches of one metric, a row each, with reports that its mechanism can have made."""

    index: Integers  # of each row's message, ascending
    time_ms: Integers  # the event time in the batch, or 0
    ids: Ids  # 16 bytes each
    codes: Integers | None  # the slice of each row; None without slices

    @abstractmethod
    def size(self, row: int) -> int:
        """Return the number of reports in a row."""

    @abstractmethod
    def sizes(self, rows: NDArray[np.intp]) -> Integers:
        """Return the numbers of reports in some rows."""

    @abstractmethod
    def columns(self, rows: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the concatenated levels and values of some rows."""


@dataclasses.dataclass(frozen=True)
class MatrixRows(BatchRows):
    """Rows of equal size."""

    levels: bytes  # of all rows
    values: bytes

    def size(self, row: int) -> int:
        """Return the number of reports in a row."""
        return len(self.levels) // len(self.ids)

    def sizes(self, rows: NDArray[np.intp]) -> Integers:
        """Return the numbers of reports in some rows."""
        return np.full(rows.size, self.size(0))

    def columns(self, rows: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the concatenated levels and values of some rows."""
        if rows.size == len(self.ids):
            return self.levels, self.values
        parts = (np.frombuffer(x, np.uint8) for x in (self.levels, self.values))
        levels, values = (part.reshape(len(self.ids), -1)[rows].tobytes() for part in parts)
        return levels, values


@dataclasses.dataclass(frozen=True)
class ParsedRows(BatchRows):
    """Rows that protobuf parsed one by one."""

    batches: list[ReportBatch]

    def size(self, row: int) -> int:
        """Return the number of reports in a row."""
        return len(self.batches[row].levels)

    def sizes(self, rows: NDArray[np.intp]) -> Integers:
        """Return the numbers of reports in some rows."""
        return np.array([self.size(row) for row in rows.tolist()], dtype=np.int64)

    def columns(self, rows: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the concatenated levels and values of some rows."""
        batches = [self.batches[i] for i in rows]
        return b"".join([b.levels for b in batches]), b"".join([b.values for b in batches])


class DecodedBatches:
    """The batches of one metric in a stretch of a log, in the log's order.

    `index`, `time_ms` and `ids` are as in :class:`BatchRows`.
    """

    def __init__(self, blocks: Sequence[BatchRows]) -> None:
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

    def size(self, row: int) -> int:
        """Return the number of reports in a batch."""
        return self._blocks[int(self._block[row])].size(int(self._row[row]))

    def are_heartbeats(self) -> NDArray[np.bool_]:
        """Return which batches have no reports: see :func:`producers.wire.batch.heartbeat`."""
        empty = np.zeros(len(self.ids), dtype=np.bool_)
        for number, block in enumerate(self._blocks):
            if isinstance(block, ParsedRows):  # matrix rows have reports
                is_in_block = self._block == number
                sizes = np.array([len(batch.levels) for batch in block.batches])
                empty[is_in_block] = sizes[self._row[is_in_block]] == 0
        return empty

    def columns(self, selected: NDArray[np.intp]) -> Iterator[ReportColumns]:
        """Yield the levels, values and slices of some batches, block by block."""
        for number, block in enumerate(self._blocks):
            rows = selected
            if len(self._blocks) > 1:
                rows = self._row[selected[self._block[selected] == number]]
            if not rows.size:
                continue
            if block.codes is None:
                yield ReportColumns(*block.columns(rows))
                continue
            yield ReportColumns(*block.columns(rows), block.codes[rows], block.sizes(rows))
