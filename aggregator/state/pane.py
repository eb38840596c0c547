"""A pane: a statistic over a stretch of event time, open in memory."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import BatchIds
from aggregator.state.decoded_batches import DecodedBatches, ReportColumns
from aggregator.state.rows import Integers
from aggregator.state.slice_tables import encode_chunk
from estimators import Metric
from estimators.estimate import Counts
from producers.wire.batch import BATCH_ID_BYTES

Uses = dict[bytes, int]
"""The number of counted reports by :func:`aggregator.state.admission.digest` of the key."""
PANE_BYTES, KEY_BYTES = 800, 90
"""Measured: the memory of a pane without its arrays and tables, and of a key without the tables."""


@dataclasses.dataclass(eq=False)
class Pane:
    """A statistic over a stretch of event time, or a chunk of its slices, open in memory."""

    metric: Metric
    first_offset: int  # of the message that opened it
    statistic: Counts
    # Counted batches; a copy is a duplicate until the pane closes.
    batch_ids: BatchIds = dataclasses.field(default_factory=BatchIds)
    # Ids that the store does not have, many in each.
    unsaved: list[bytes] = dataclasses.field(default_factory=list)
    # Reports by key, where the metric has a limit.
    used: Uses = dataclasses.field(default_factory=dict)
    # Keys with another number in the store.
    unsaved_keys: set[bytes] = dataclasses.field(default_factory=set)
    closed: bool = False  # since the last commit
    # Batches put aside for `settle`.
    waiting: list[ReportColumns] = dataclasses.field(default_factory=list)
    unchunked: int = 0  # number of ids that the store has in one value
    committed_bytes: int = 0  # `nbytes` at the last commit

    def add(self, batches: DecodedBatches, rows: NDArray[np.intp], uses: Uses) -> None:
        """Add the ids of admitted batches; put their reports aside for :meth:`settle`.

        Parameters
        ----------
        batches : DecodedBatches
        rows : ndarray of intp
            The admitted rows of this pane.
        uses : Uses
            The new numbers of reports of their keys.
        """
        ids = batches.ids if rows.size == batches.ids.size else batches.ids[rows]
        self.batch_ids.add(ids)
        self.unsaved.append(ids.tobytes())
        self.waiting += batches.columns(rows)
        self.used.update(uses)
        self.unsaved_keys.update(uses)

    def settle(self, add_to_slices: Callable[[Integers, Counts], None]) -> int:
        """Add all batches put aside to the statistic; return the number of their reports.

        `add_to_slices` is called with the codes and the statistics of a metric's slices; these sum
        to what is added to the pane.
        """
        decode, waiting = self.metric.randomizer.decode, self.waiting
        self.waiting = []
        if self.metric.slicing is None:
            levels = _levels(_joined([part.levels for part in waiting]))
            reports = decode(_joined([part.values for part in waiting]))
            self.metric.accumulate_checked(self.statistic, levels, reports)
            return len(levels)
        for part in waiting:
            codes, rows = np.unique(part.codes, return_inverse=True)
            slice_sums = np.zeros((codes.size, self.statistic.size), dtype=np.int64)
            levels, reports = _levels(part.levels), decode(part.values)
            self.metric.accumulate_slices(slice_sums, rows, part.sizes, levels, reports)
            self.statistic += slice_sums.sum(axis=0)
            add_to_slices(codes, slice_sums)
        return sum(len(part.levels) for part in waiting)

    @property
    def nbytes(self) -> int:
        """About its memory in bytes; a closed pane is dropped at the next commit."""
        if self.closed:
            return 0
        keys = len(self.used) * KEY_BYTES + sum(map(sys.getsizeof, (self.used, self.unsaved_keys)))
        return PANE_BYTES + self.statistic.nbytes + self.batch_ids.nbytes + keys

    @property
    def saved_ids(self) -> int:
        """The number of ids that the store has in chunks."""
        unsaved = sum(map(len, self.unsaved)) // BATCH_ID_BYTES
        return len(self.batch_ids) - unsaved - self.unchunked

    def encode(self, chunk: int | None) -> bytes | memoryview:
        """Return the stored statistic: little-endian int64, or a chunk of slices."""
        if chunk is not None:
            return encode_chunk(chunk, self.statistic)
        return self.statistic.astype("<i8", copy=False).data.cast("B")  # not copied


def _levels(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


def _joined(parts: list[bytes]) -> bytes:
    """Return the parts as one; a single part is not copied."""
    return parts[0] if len(parts) == 1 else b"".join(parts)
